package bound

import (
	"cmp"
	"math"
	"slices"
)

// option is a way to run some layers as a stage, or as a class's share of a stage of several classes. Its numbers are lower
// bounds.
type option struct {
	class   int
	devices float64 // of a whole stage
	replica float64 // devices of a replica, where several classes share the stage
	step    float64 // seconds of a micro-batch, both passes, with sending on
	forward float64 // part of step: the forward pass
	send    float64 // part of step: sending on, and receiving the gradient
	receive float64 // seconds to receive a micro-batch and to send its gradient back
	first   float64 // seconds of a micro-batch and of what comes once in an iteration
	steps   float64 // seconds of all micro-batches of an iteration
	busy    float64 // steps, and what comes once
}

// options are the options of a run of layers.
type options struct {
	pure  []option // on one class
	mixed []mixed  // on several classes, at least two of which have options

	round    int // in which cheapest was computed
	cheapest *places
	sorted   [3][]mixed // mixed in the three orders of firstPlaces; see mixedBy
}

func (w *options) orNil() *options {
	if len(w.pure) == 0 && len(w.mixed) == 0 {
		return nil
	}
	return w
}

// dropAlone drops the entries in which fewer than two classes have options.
func dropAlone(all []mixed) []mixed {
	return slices.DeleteFunc(all, func(m mixed) bool {
		n := 0
		for _, of := range m.classes {
			n += min(1, len(of))
		}
		return n < 2
	})
}

// optionsOf are the options of layers from..to-1 that take less than the aim by themselves; nil: there are none.
func (b *bounder) optionsOf(floors []floor, from, to int, micro float64, prices []float64) *options {
	all := &options{}
	for _, m := range b.ranges(b.batch / int(micro)) {
		all.mixed = append(all.mixed, mixed{m, make([][]option, len(b.classes))})
	}
	for i := range floors {
		f := &floors[i]
		if f.unable[to] > f.unable[from] || f.memory[to]-f.memory[from] > f.capacity {
			continue
		}
		w := option{class: f.class, devices: f.devices, replica: f.replica, forward: f.forward[to] - f.forward[from], first: f.first[to] - f.first[from]}
		for k, price := range prices {
			// The layers fit in the capacity, so their price is at most that of the capacity.
			w.step = max(w.step, f.steps[k][to]-f.steps[k][from]-price*f.capacity/micro)
			w.busy = max(w.busy, f.busy[k][to]-f.busy[k][from]-price*f.capacity)
		}
		w.send, w.receive = f.send[to], f.receive[from]
		w.step, w.busy, w.first = w.step+w.send, w.busy+micro*w.send, w.first+w.send
		w.steps = micro * w.step
		switch {
		case max(w.busy, w.steps)+(micro-0.5)*w.receive >= b.aim: // the last send is not over when the last pass is computed
		case f.mixed:
			of := &all.mixed[f.machines].classes[f.class]
			*of = append(*of, w)
		default:
			all.pure = append(all.pure, w)
		}
	}
	all.pure = undominated(all.pure)
	for _, m := range all.mixed {
		for class, of := range m.classes {
			m.classes[class] = undominated(of)
			slices.SortStableFunc(m.classes[class], func(x, y option) int { return cmp.Compare(x.step, y.step) })
		}
	}
	all.mixed = dropAlone(all.mixed)
	return all.orNil()
}

// undominated drops an option if another one, on no more devices of the class, is as good in every term, with and without
// sending.
func undominated(all []option) (keep []option) {
	slices.SortStableFunc(all, func(x, y option) int { return cmp.Or(cmp.Compare(x.devices, y.devices), cmp.Compare(x.class, y.class)) })
	for _, w := range all {
		if !slices.ContainsFunc(keep, func(o option) bool {
			return o.class == w.class && o.divides(&w) && o.step <= w.step && o.busy <= w.busy && o.forward <= w.forward && o.first <= w.first &&
				o.receive <= w.receive && o.forward+o.send/2 <= w.forward+w.send/2 && o.step-o.send <= w.step-w.send && o.first-o.send <= w.first-w.send && o.busy-o.send <= w.busy-w.send
		}) {
			keep = append(keep, w)
		}
	}
	return keep
}

// divides says whether replicas of another option are whole replicas of this one.
func (w *option) divides(o *option) bool {
	return w.replica == o.replica || w.replica > 0 && math.Mod(o.replica, w.replica) == 0
}
