package costmodel

import (
	"math"
	"slices"
)

// WorkBound is a number of seconds that no plan for a global batch takes less than, by formula or simulated, whatever its
// stages, groups, shares and strategies: the devices' work alone, perfectly divided. Nobody waits, nothing is sent, and every
// layer is computed by the tensor degree and micro-batch that take the fewest device-seconds of a sample. Memory has no limit. It
// holds under every schedule: nothing of 1F1B, its bubble or what its stages hold, may be assumed.
//
// A stage's devices are busy for all micro-batches and the update, one after the other. So with x of the samples of layer l, and
// as well of its updates, on class c, sum over l of x[l,c] work[l,c] <= devices[c] seconds. The least such seconds are a linear
// programme, whose dual is: prices of a device of each class, of sum 1 over all devices, that maximise the sum of every work at
// its cheapest class. Any prices give a bound, so none that a search for better ones stops at is wrong.
func (m *Model) WorkBound(globalBatch int) float64 {
	least, _ := m.workBound(globalBatch)
	return least
}

// workBound is WorkBound with the share of the price of all devices that each class has.
func (m *Model) workBound(globalBatch int) (least float64, shares []float64) {
	var works [][]float64 // by class
	seen := make([]int, m.kinds)
	for _, k := range m.kindOf {
		seen[k]++
	}
	for l, k := range m.kindOf {
		if seen[k] == 0 {
			continue
		}
		compute, update := make([]float64, len(m.devices)), make([]float64, len(m.devices))
		for class := range m.devices {
			compute[class], update[class] = m.leastWork(l, class, globalBatch)
			compute[class] *= float64(seen[k])
			update[class] *= float64(seen[k])
		}
		works = append(works, compute, update)
		seen[k] = 0
	}
	return m.dual(works)
}

// leastWork is the least device-seconds of a layer on a class: of all samples, and of the update.
func (m *Model) leastWork(layer, class, globalBatch int) (compute, update float64) {
	compute, update = math.Inf(1), math.Inf(1)
	slow := m.slow(class)
	for _, t := range m.anyTensors(layer, class) {
		// Between measured micro-batches times are linear, so a sample takes least at one of them, or at the largest.
		curve := m.curve(layer, class, t)
		most, _ := curve.At(min(globalBatch, curve[len(curve)-1].MicroBatch))
		for _, r := range append(curve[:len(curve):len(curve)], most) {
			if r.MicroBatch <= globalBatch {
				compute = min(compute, slow*float64(t)*(r.Forward+r.Backward)/float64(r.MicroBatch))
			}
			update = min(update, slow*float64(t)*r.Update)
		}
	}
	return compute * float64(globalBatch), update
}

// anyTensors are all degrees that a layer has runs of, and that a machine has devices for: a plan by hand may use them.
func (m *Model) anyTensors(layer, class int) []int {
	var all []int
	for _, r := range m.profile.Layers[layer].Runs {
		if r.Device == m.devices[class] && r.Tensor <= m.topology.Classes[class].PerMachine {
			all = append(all, r.Tensor)
		}
	}
	return slices.Compact(all)
}

// dual climbs to prices with a large sum of cheapest works, moving price between two classes at a time.
func (m *Model) dual(works [][]float64) (best float64, share []float64) {
	devices := 0.0
	for _, c := range m.topology.Classes {
		devices += float64(c.Count)
	}
	n := len(m.devices)
	share = make([]float64, n) // of the price of all devices that each class has
	for c := range share {
		share[c] = float64(m.topology.Classes[c].Count) / devices
	}
	value := func() float64 {
		sum := 0.0
		for _, w := range works {
			least := math.Inf(1)
			for c := range share {
				least = min(least, share[c]/float64(m.topology.Classes[c].Count)*w[c])
			}
			sum += least
		}
		return sum
	}
	best = value()
	for range 20 * n {
		before := best
		for a := range n {
			for b := range a {
				// The value is concave along the line: thirds close in on its top.
				both, low, high := share[a]+share[b], 0.0, share[a]+share[b]
				at := func(x float64) float64 { share[a], share[b] = x, both-x; return value() }
				kept := share[a]
				for range 80 {
					if x, y := low+(high-low)/3, high-(high-low)/3; at(x) < at(y) {
						low = x
					} else {
						high = y
					}
				}
				if v := at((low + high) / 2); v > best {
					best = v
				} else {
					at(kept)
				}
			}
		}
		if best <= before*(1+1e-9) {
			break
		}
	}
	return best, share
}
