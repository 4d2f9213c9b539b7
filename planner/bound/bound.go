package bound

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/evenkeel/evenkeel/planner/costmodel"
)

// Work is a number of seconds that no plan for a global batch takes less than, by formula or simulated, whatever its
// stages, groups, shares and strategies: the devices' work alone, perfectly divided. Nobody waits, nothing is sent, and every
// layer is computed by the tensor degree and micro-batch that take the fewest device-seconds of a sample. Memory has no limit. It
// holds under every schedule: nothing of 1F1B, its bubble or what its stages hold, may be assumed.
//
// A stage's devices are busy for all micro-batches and the update, one after the other. So with x of the samples of layer l, and
// as well of its updates, on class c, sum over l of x[l,c] work[l,c] <= devices[c] seconds. The least such seconds are a linear
// programme, whose dual is: prices of a device of each class, of sum 1 over all devices, that maximise the sum of every work at
// its cheapest class. Any prices give a bound, so none that a search for better ones stops at is wrong.
func Work(m *costmodel.Model, globalBatch int) float64 {
	least := math.Inf(1)
	for _, part := range parts(m) {
		bound, _ := part.workBound(globalBatch)
		least = min(least, bound)
	}
	return least
}

// workBound is Work with the share of the price of all devices that each class has.
func (m *model) workBound(globalBatch int) (least float64, shares []float64) {
	var works [][]float64 // by class
	seen := make([]int, len(m.kindOf))
	for _, k := range m.kindOf {
		seen[k]++
	}
	for l, k := range m.kindOf {
		if seen[k] == 0 {
			continue
		}
		compute, update := make([]float64, len(m.classes)), make([]float64, len(m.classes))
		for class := range m.classes {
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
func (m *model) leastWork(layer, class, globalBatch int) (compute, update float64) {
	compute, update = math.Inf(1), math.Inf(1)
	slow := m.PassFactor(class) // of a unit, whose devices divide updates as well at best
	for _, t := range m.MeasuredTensors(layer, class) {
		// Between measured micro-batches times are linear, so a sample takes least at one of them, or at the largest.
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

// dual climbs to prices with a large sum of cheapest works, moving price between two classes at a time.
func (m *model) dual(works [][]float64) (best float64, share []float64) {
	devices := 0.0
	for _, c := range m.classes {
		devices += float64(c.Count)
	}
	n := len(m.classes)
	share = make([]float64, n) // of the price of all devices that each class has
	for c := range share {
		share[c] = float64(m.classes[c].Count) / devices
	}
	value := func() float64 {
		sum := 0.0
		for _, w := range works {
			least := math.Inf(1)
			for c := range share {
				least = min(least, share[c]/float64(m.classes[c].Count)*w[c])
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

const (
	boundWork = 3 << 28 // stages priced
	aims      = 3       // at most
	firstAim  = 0.9     // of the best plan's time
	nearAim   = 0.99    // of an aim
)

// Lower is a number of seconds that no plan by 1F1B for a global batch takes less than, by formula or simulated, whatever its stages,
// groups, shares and strategies within the options; best is the time of a plan, and the bound is at most that.
// docs/reference/cost-model.md says what it counts and why it holds. It stops when ctx ends, and then is lower.
func Lower(ctx context.Context, m *costmodel.Model, globalBatch int, best float64) float64 {
	least := best
	for _, part := range parts(m) {
		least = min(least, part.lowerBound(ctx, globalBatch, best))
	}
	return least
}

// lowerBound aims at a share of the best plan's time first: the fewer plans may take less, the tighter is the bound over them, and plans
// that take no less than the aim lie above it anyway. Then it aims closer to what was found, or above what was reached.
func (m *model) lowerBound(ctx context.Context, globalBatch int, best float64) float64 {
	bound, shares := m.workBound(globalBatch)
	bound = min(bound, best)
	left, used := boundWork*64/max(64, len(m.kindOf)), 0 // in all, and by the aim before; a stage priced takes longer where there are more
	aim := max(bound, firstAim*best)
	for k := aims; k > 0 && left > used/2 && ctx.Err() == nil; k-- {
		b := &bounder{model: *m, batch: globalBatch, best: aim, left: left}
		for c, share := range shares {
			b.start = append(b.start, aim*share/float64(m.classes[c].Count))
		}
		v := b.below(ctx)
		left, used = b.left, left-b.left
		bound = max(bound, v)
		switch {
		case v < aim && v > nearAim*aim: // no more than that is to be had
			return bound
		case v < aim: // once more
			aim, k = (3*bound+aim)/4, min(k, 2)
		case k == aims:
			aim = (aim + best) / 2
		default:
			aim = best
		}
	}
	return bound
}

// below is a bound on the plans that take less than the best; at most the best.
func (b *bounder) below(ctx context.Context) float64 {
	var all []*family
	for _, samples := range b.samples(b.batch) {
		if ctx.Err() != nil {
			return 0
		}
		all = append(all, b.root(samples))
	}
	lowest := func() *family {
		return slices.MinFunc(all, func(x, y *family) int { return cmp.Compare(x.bound(), y.bound()) })
	}
	for len(all) > 0 && b.left > 0 && ctx.Err() == nil {
		if f := lowest(); f.bound() >= b.best || !b.refine(f) {
			break
		}
	}
	if len(all) == 0 {
		return 0
	}
	return min(b.best, lowest().bound()*(1-1e-9)) // rounding must not lift it above a plan
}

// rounds is how many prices of an interval are tried.
const rounds = 24

// cut is a bound at some prices and how it changes with them. No prices have a bound above any cut.
type cut struct {
	value     float64
	at, slope []float64 // of the price of all devices of a class together
}

// improve climbs to prices of devices with a large bound by cutting planes (Kelley, 1960): the next prices lie between the best and
// those where the cuts allow most.
func (b *bounder) improve(o *interval) {
	n := len(o.prices)
	count := func(c int) float64 { return float64(b.classes[c].Count) }
	parent := make([]float64, n)
	start := make([]float64, n)
	for c := range parent {
		parent[c], start[c] = o.prices[c]*count(c), b.start[c]*count(c)
	}
	best := make([]float64, n)
	var cuts []cut
	o.bound = 0
	for round := range rounds {
		at := make([]float64, n)
		switch round {
		case 0: // without prices
		case 1:
			copy(at, parent)
		case 2:
			copy(at, start)
		default:
			var most float64
			if at, most = peak(cuts, 4*b.best); most <= o.bound*(1+1e-3) {
				return
			}
			for c := range at {
				at[c] = 0.7*at[c] + 0.3*best[c]
			}
		}
		prices := make([]float64, n)
		for c := range prices {
			prices[c] = at[c] / count(c)
		}
		value, slope := b.value(o, prices)
		if value > o.bound {
			o.bound, o.prices, best = value, prices, at
		}
		if o.bound >= b.best || b.left < 0 {
			return
		}
		for c := range slope {
			slope[c] = slope[c]/count(c) - 1
		}
		cuts = append(cuts, cut{value, at, slope})
	}
}

// peak is about where cuts allow the largest value, in a box from 0 to a size, and that value: by golden sections, one coordinate within
// the other, as the least of planes is concave.
func peak(cuts []cut, size float64) (best []float64, most float64) {
	n := len(cuts[0].at)
	x := make([]float64, n)
	best, most = make([]float64, n), math.Inf(-1)
	rest := make([][]float64, n+1) // of each cut, at the coordinates that are set
	for c := range rest {
		rest[c] = make([]float64, len(cuts))
	}
	for i, k := range cuts {
		rest[0][i] = k.value
		for c, g := range k.slope {
			rest[0][i] -= g * k.at[c]
		}
	}
	var climb func(c int) float64
	climb = func(c int) float64 {
		if c == n {
			v := slices.Min(rest[n])
			if v > most {
				most = v
				copy(best, x)
			}
			return v
		}
		value := func(v float64) float64 {
			x[c] = v
			for i, k := range cuts {
				rest[c+1][i] = rest[c][i] + k.slope[c]*v
			}
			return climb(c + 1)
		}
		const golden = 0.6180339887498949
		low, high := 0.0, size
		a, b := high-golden*(high-low), low+golden*(high-low)
		at, bt := value(a), value(b)
		top := max(value(0), at, bt)
		for range sections[min(n, len(sections))-1] {
			if at < bt {
				low, a, at = a, b, bt
				b = low + golden*(high-low)
				bt = value(b)
				top = max(top, bt)
			} else {
				high, b, bt = b, a, at
				a = high - golden*(high-low)
				at = value(a)
				top = max(top, at)
			}
		}
		return top
	}
	climb(0)
	return best, most
}

// sections is how often each coordinate is cut, by how many there are.
var sections = [...]int{60, 30, 18, 8}
