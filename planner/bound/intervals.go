package bound

import (
	"math"
	"slices"
	"sync"
)

// finest is the ratio of the ends of an interval that is not split further.
const finest = 1.01

// interval is the plans of a micro-batch whose busiest stage takes v seconds for a micro-batch, low <= v <= high, where v is the largest of the
// floors of the plan's stages (busy, divided by the micro-batches) and the busiest stage the one that has it. So no stage's floor is above high,
// and the busiest stage's is low at least.
//
// What a stage does once in an iteration, its exchange and update, is counted by a weight y. With y = 0 it counts for the first stage alone, which
// ends last. With y > 0 that part of it counts for the busiest stage, whose exchange need not wait for the stages before it; then the stages
// before it count y times their forward pass and 1 - y times both passes. Each y gives a valid bound, and the larger one holds.
type interval struct {
	micro     float64      // micro-batches of an iteration
	once      float64      // y
	received  float64      // how often receiving a micro-batch counts for the busiest stage: micro - y/2
	late      float64      // by how much all passes of the busiest stage for a micro-batch may exceed v
	low, high float64      // seconds
	runs      [][]*options // by first layer and number of layers less 1; nil: no option is quick enough
	prices    []float64    // of devices of each class, in seconds: those with the largest bound so far
	bound     float64
}

// busy is the floor of a stage in an iteration, by which the busiest stage is found.
func (o *interval) busy(w *option) float64 {
	return (1-o.once)*w.steps + o.once*w.busy + o.received*w.receive
}

// pass is at most what the busiest stage computes for a micro-batch, which is time in which it does not wait.
func (o *interval) pass() float64 { return o.low + o.late }

// least is the least floor, over an iteration, of the busiest stage.
func (o *interval) least() float64 { return o.low * o.micro * (1 - 1e-12) }

// sent is the part of its sending that does not count for the stage directly before the busiest, as it counts as received there.
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
			*half, *worker = *o, *b // each with all the work that is left, so that the outcome depends on the job alone
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

// narrow leaves out the options that take longer than the interval's busiest stage may.
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

// within are the options that take no longer than the interval's busiest stage may; nil: none.
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
