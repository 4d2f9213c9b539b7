package bound

import (
	"math"
	"slices"
	"sync"
)

// finest is the ratio of the ends of an interval that is not split further.
const finest = 1.01

// interval is a set of plans of one micro-batch. The busiest stage of a plan is the one with the largest floor; v is that
// floor (busy) divided by the number of micro-batches. The interval holds the plans with low <= v <= high. So no stage's
// floor is above high, and that of the busiest stage is at least low.
//
// A weight y says how to count what a stage does once in an iteration, its exchange and update. With y = 0 it counts for the
// first stage alone, which ends last. With y > 0 the part y of it counts for the busiest stage, whose exchange need not wait
// for the stages before it; each of those stages then counts with y times its forward pass and 1 - y times both passes. Each
// y gives a valid bound; the largest bound is used.
type interval struct {
	micro     float64      // micro-batches of an iteration
	once      float64      // y
	received  float64      // how often receiving a micro-batch counts for the busiest stage: micro - y/2
	late      float64      // the most by which the passes of the busiest stage for a micro-batch may exceed v
	low, high float64      // seconds
	runs      [][]*options // by first layer and number of layers less 1; nil: no option is quick enough
	prices    []float64    // by class: the price of a device in seconds that gave the largest bound so far
	bound     float64
}

// busy is the floor of a stage in an iteration. The busiest stage has the largest.
func (o *interval) busy(w *option) float64 {
	return (1-o.once)*w.steps + o.once*w.busy + o.received*w.receive
}

// pass is an upper bound on the time for which the busiest stage computes a micro-batch, and so does not wait.
func (o *interval) pass() float64 { return o.low + o.late }

// least is the least floor of the busiest stage over an iteration.
func (o *interval) least() float64 { return o.low * o.micro * (1 - 1e-12) }

// sent is the part of the sending of the stage directly before the busiest that counts as receiving there instead.
func (o *interval) sent() float64 { return 1 - o.once/2 }

// split halves the lowest interval of a cover; false: it is too short.
func (b *bounder) split(c *cover) bool {
	i := slices.Index(c.open, c.lowest())
	o := c.open[i]
	if o.high <= o.low*finest {
		return false
	}
	c.open = slices.Delete(c.open, i, i+1)
	middle := math.Sqrt(o.low * o.high)
	if o.low < o.high/2 {
		middle = 0.75 * o.high
	}
	var halves [2]interval
	var workers [2]bounder
	var group sync.WaitGroup
	for i, ends := range [][2]float64{{o.low, middle}, {middle, o.high}} {
		group.Go(func() {
			half, worker := &halves[i], &workers[i]
			*half, *worker = *o, *b // each may do all the work that is left, so that the result depends on the job alone
			half.low, half.high = ends[0], ends[1]
			worker.narrow(half)
			worker.improve(half)
		})
	}
	group.Wait()
	left := b.left
	for i := range halves {
		b.left -= left - workers[i].left
		if half := &halves[i]; max(half.bound, o.bound) < b.aim {
			half.bound = max(half.bound, o.bound)
			c.open = append(c.open, half)
		}
	}
	return true
}

// narrow drops options that take longer than the interval's busiest stage may.
func (b *bounder) narrow(o *interval) {
	runs, known := make([][]*options, len(o.runs)), map[*options]*options{nil: nil}
	for from, all := range o.runs {
		runs[from] = make([]*options, len(all))
		for i, w := range all {
			fewer, ok := known[w]
			if !ok {
				fewer = o.within(w)
				known[w] = fewer
			}
			runs[from][i] = fewer
		}
	}
	o.runs, o.late = runs, 0
	for _, w := range known {
		if w != nil {
			lists := [][]option{w.pure}
			for _, m := range w.mixed {
				lists = append(lists, m.classes...)
			}
			for _, list := range lists {
				for _, x := range list {
					o.late = max(o.late, o.once/2*x.receive/o.micro)
				}
			}
		}
	}
}

// within are the options that take no longer than the interval's busiest stage may; nil: there are none.
func (o *interval) within(w *options) *options {
	few := func(all []option) (keep []option) {
		for _, x := range all {
			if o.busy(&x) <= o.high*o.micro*(1+1e-12) {
				keep = append(keep, x)
			}
		}
		return keep
	}
	fewer := &options{pure: few(w.pure)}
	for _, m := range w.mixed {
		x := mixed{machines: m.machines}
		for _, of := range m.classes {
			x.classes = append(x.classes, few(of))
		}
		fewer.mixed = append(fewer.mixed, x)
	}
	fewer.mixed = dropAlone(fewer.mixed)
	return fewer.orNil()
}
