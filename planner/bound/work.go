package bound

import (
	"math"

	"evenkeel/planner/costmodel"
)

// Work is a lower bound, in seconds, on the iteration time of every plan for a global batch under any schedule, by formula
// and simulated. It counts computing alone, perfectly divided: no device waits, nothing is sent, memory has no limit, and
// every layer has the tensor degree and micro-batch that take the fewest device-seconds per sample.
//
// The devices of a stage compute all micro-batches and the update one after the other. So if class c computes the part
// x[l,c] of layer l, the sum over l of x[l,c] work[l,c] is at most devices[c] times the iteration. The least iteration is a
// linear program. Its dual: choose prices of devices, 1 for all together, to maximise the sum over layers of the work on the
// cheapest class. Any prices give a bound.
func Work(m *costmodel.Model, globalBatch int) float64 {
	least := math.Inf(1)
	for _, part := range parts(m) {
		seconds, _ := part.work(globalBatch)
		least = min(least, seconds)
	}
	return least
}

// work is Work, and the share of each class in the price of all devices.
func (m *model) work(globalBatch int) (seconds float64, shares []float64) {
	var works [][]float64 // device-seconds by class: of computing, and of updating, each kind of layer
	left := make([]int, len(m.kinds))
	for _, k := range m.kinds {
		left[k]++
	}
	for l, k := range m.kinds {
		if left[k] == 0 {
			continue // its kind is done
		}
		compute, update := make([]float64, len(m.classes)), make([]float64, len(m.classes))
		for class := range m.classes {
			compute[class], update[class] = m.leastWork(l, class, globalBatch)
			compute[class] *= float64(left[k])
			update[class] *= float64(left[k])
		}
		works = append(works, compute, update)
		left[k] = 0
	}
	return m.dual(works)
}

// leastWork is the least device-seconds of a layer on a class, for all samples and for the update.
func (m *model) leastWork(layer, class, globalBatch int) (compute, update float64) {
	compute, update = math.Inf(1), math.Inf(1)
	slow := m.PassFactor(class) // at best, the devices of a unit divide the update too
	for _, t := range m.MeasuredTensors(layer, class) {
		// Times are linear between measured micro-batches, so a sample takes least at a measured one or at the largest.
		curve := m.Curve(layer, class, t)
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

// dual finds prices with a large sum of least works. It moves price between two classes at a time.
func (m *model) dual(works [][]float64) (best float64, shares []float64) {
	n := len(m.classes)
	shares = make([]float64, n)
	for c := range shares {
		shares[c] = m.count(c) / float64(m.Count())
	}
	value := func() float64 {
		sum := 0.0
		for _, w := range works {
			least := math.Inf(1)
			for c := range shares {
				least = min(least, shares[c]/m.count(c)*w[c])
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
				// The value is concave along the line: ternary search closes in on its top.
				both, low, high := shares[a]+shares[b], 0.0, shares[a]+shares[b]
				at := func(x float64) float64 { shares[a], shares[b] = x, both-x; return value() }
				kept := shares[a]
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
	return best, shares
}
