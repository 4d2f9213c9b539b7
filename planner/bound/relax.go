package bound

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"github.com/evenkeel/evenkeel/planner/costmodel"
)

// finest is the ratio of the ends of an interval that is not split further.
const finest = 1.01

// family is the plans of a micro-batch, bounded in several ways.
type family struct {
	trees  []*tree
	splits int
}

// tree is intervals that together hold all plans of a micro-batch that may take less than the best.
type tree struct{ open []*interval }

func (t *tree) lowest() *interval {
	return slices.MinFunc(t.open, func(x, y *interval) int { return cmp.Compare(x.bound, y.bound) })
}

func (t *tree) bound() float64 {
	if len(t.open) == 0 {
		return math.Inf(1)
	}
	return t.lowest().bound
}

// best is the tree with the largest bound.
func (f *family) best() *tree {
	return slices.MaxFunc(f.trees, func(x, y *tree) int { return cmp.Compare(x.bound(), y.bound()) })
}

func (f *family) bound() float64 { return f.best().bound() }

// tries is how often all trees of a family are split before only the best is.
const tries = 4

// refine splits the lowest interval of the best tree that can be split; false: none can.
func (b *bounder) refine(f *family) bool {
	if f.splits++; f.splits < tries {
		for _, t := range f.trees {
			if len(t.open) > 0 {
				b.split(t, false)
			}
		}
		return true
	}
	slices.SortStableFunc(f.trees, func(x, y *tree) int { return cmp.Compare(y.bound(), x.bound()) })
	return slices.ContainsFunc(f.trees, func(t *tree) bool { return len(t.open) > 0 && b.split(t, true) })
}

// samples are the micro-batches that a plan may have, over all replicas.
func (m *model) samples(globalBatch int) []int {
	devices := 0
	for _, c := range m.classes {
		devices += c.Count
	}
	share := m.largestShare()
	var all []int
	for _, b := range costmodel.Divisors(globalBatch) {
		if b > devices*share {
			break
		}
		if micro := m.options.MicroBatches; micro != nil && !slices.ContainsFunc(micro, func(n int) bool {
			return b%n == 0 && (m.options.Replicas == nil || slices.Contains(m.options.Replicas, b/n))
		}) {
			continue
		}
		all = append(all, b)
	}
	return all
}

// largestShare is the most samples of a micro-batch that a replica may take.
func (m *model) largestShare() int {
	share := 0
	for _, l := range m.layers {
		for _, r := range l.Runs {
			share = max(share, r.MicroBatch)
		}
	}
	return share
}

// bounder looks for the least of the bounds of all plans, by the samples of a micro-batch and by the busiest stage's time.
type bounder struct {
	model
	batch int
	best  float64
	left  int       // stages that it may still price
	start []float64 // prices of devices
	round int       // of prices tried
}

// interval is the plans of a micro-batch whose busiest stage takes low to high seconds for a micro-batch.
type interval struct {
	micro     float64 // micro-batches
	overlap   float64 // how much of what comes once counts for the busiest stage; the rest of it is the passes after it
	received  float64 // how often a micro-batch's receiving counts for the busiest stage
	receive   float64 // by how much all its passes for a micro-batch may take longer than v
	assigned  bool    // v is that of the ways, of which each stage takes at least one's time; otherwise that of the stages themselves
	low, high float64
	runs      [][]*ways // by first layer and number of layers
	prices    []float64
	bound     float64
	whole     bool // whole weights were tried
}

// ways are those to run some layers as a stage: on one class, or on several, by class and rising step.
type ways struct {
	pure  []way
	mixed []crowd

	round  int // in which least was found
	least  *least
	sorted [3][]crowd // mixed, by what they cost in the first stage before the busiest and directly before it, and by busy
}

type way struct {
	class         int
	devices       float64
	replica       float64 // devices of one, where several classes share a stage
	step, forward float64 // seconds of a micro-batch; the first with sending on
	send          float64 // of it
	first         float64 // seconds of a micro-batch and of what comes once
	receive       float64 // seconds of a micro-batch, from the stage before and back
	steps, busy   float64 // seconds of an iteration: all micro-batches, and with what comes once
}

// root bounds all plans of a micro-batch.
func (b *bounder) root(samples int) *family {
	micro := float64(b.batch / samples)
	prices := b.memoryPrices()
	floors := b.floors(b.batch, samples, prices)
	n := len(b.kindOf)
	known := map[[3]int32]*ways{}
	runs := make([][]*ways, n)
	for from := range n {
		runs[from] = make([]*ways, n-from)
		for to := from + 1; to <= n; to++ {
			k := [3]int32{b.Run(from, to), int32(to / n), int32(min(from, 1))}
			w, ok := known[k]
			if !ok {
				w = b.ways(floors, from, to, micro, prices)
				known[k] = w
			}
			runs[from][to-from-1] = w
		}
	}
	f := &family{}
	for i := range 3 {
		o := &interval{micro: micro, overlap: float64(i/2) / 2, assigned: i > 0, high: b.best / micro, prices: slices.Clone(b.start), runs: runs}
		o.received = micro - o.overlap/2
		b.narrow(o)
		b.improve(o)
		f.trees = append(f.trees, &tree{[]*interval{o}})
	}
	return f
}

// stages is the most that a plan may have.
func (m *model) stages() int {
	devices := 0
	for _, c := range m.classes {
		devices += c.Count
	}
	return min(devices, len(m.kindOf), m.options.MostStages)
}

// memoryPrices are some seconds of an iteration for a byte, 0 the first: shares of the best plan's time for a device's memory.
func (b *bounder) memoryPrices() []float64 {
	largest := 0.0
	for class := range b.classes {
		largest = max(largest, b.Limit(class)-b.Reserve(class))
	}
	prices := []float64{0}
	for _, share := range []float64{0.03, 0.1, 0.3, 1, 3} {
		prices = append(prices, share*b.best/largest)
	}
	return prices
}

// ways lists those of running layers as a stage in less time than the best plan takes; nil: none.
func (b *bounder) ways(floors []floor, from, to int, micro float64, prices []float64) *ways {
	all := &ways{}
	for _, s := range b.reaches(b.batch / int(micro)) {
		all.mixed = append(all.mixed, crowd{s.most, make([][]way, len(b.classes))})
	}
	for i := range floors {
		f := &floors[i]
		if f.unable[to] > f.unable[from] || f.memory[to]-f.memory[from] > f.capacity {
			continue
		}
		w := way{class: f.class, devices: f.devices, replica: f.replica, forward: f.forward[to] - f.forward[from], first: f.first[to] - f.first[from]}
		for k, price := range prices {
			w.step = max(w.step, f.steps[k][to]-f.steps[k][from]-price*f.capacity/micro)
			w.busy = max(w.busy, f.busy[k][to]-f.busy[k][from]-price*f.capacity)
		}
		w.send, w.receive = f.send[to], f.receive[from]
		w.step, w.busy, w.first = w.step+w.send, w.busy+micro*w.send, w.first+w.send
		w.steps = micro * w.step
		switch {
		case max(w.busy, w.steps)+(micro-0.5)*w.receive >= b.best: // when its last pass is computed, a stage has not sent what it owes
		case f.mixed:
			of := &all.mixed[f.reach].ways[f.class]
			*of = append(*of, w)
		default:
			all.pure = append(all.pure, w)
		}
	}
	all.pure = undominatedWays(all.pure)
	for _, c := range all.mixed {
		for class, m := range c.ways {
			c.ways[class] = undominatedWays(m)
			slices.SortStableFunc(c.ways[class], func(x, y way) int { return cmp.Compare(x.step, y.step) })
		}
	}
	all.several()
	return all.orNil()
}

func (w *ways) orNil() *ways {
	if len(w.pure) == 0 && len(w.mixed) == 0 {
		return nil
	}
	return w
}

// undominatedWays leaves ways out for which there is another on no more devices of the class that takes no longer.
func undominatedWays(all []way) (keep []way) {
	slices.SortStableFunc(all, func(x, y way) int { return cmp.Or(cmp.Compare(x.devices, y.devices), cmp.Compare(x.class, y.class)) })
	for _, w := range all {
		if !slices.ContainsFunc(keep, func(o way) bool {
			return o.class == w.class && o.divides(&w) && o.step <= w.step && o.busy <= w.busy && o.forward <= w.forward && o.first <= w.first &&
				o.receive <= w.receive && o.forward+o.send/2 <= w.forward+w.send/2 && o.step-o.send <= w.step-w.send && o.first-o.send <= w.first-w.send && o.busy-o.send <= w.busy-w.send
		}) {
			keep = append(keep, w)
		}
	}
	return keep
}

// divides says whether replicas of one way are cut into those of another.
func (w *way) divides(o *way) bool {
	return w.replica == o.replica || w.replica > 0 && math.Mod(o.replica, w.replica) == 0
}

// split halves the lowest interval of a tree; false: it is too short.
func (b *bounder) split(t *tree, whole bool) bool {
	i := slices.Index(t.open, t.lowest())
	o := t.open[i]
	if whole && !o.whole {
		o.whole = true
		if b.whole(o); o.bound >= b.best {
			t.open = slices.Delete(t.open, i, i+1)
		}
		return true
	}
	if o.high <= o.low*finest {
		return false
	}
	t.open = slices.Delete(t.open, i, i+1)
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
			*half, *worker = *o, *b // each with what work is left, so that the outcome hangs on the job alone
			half.low, half.high, half.whole = ends[0], ends[1], false
			worker.narrow(half)
			worker.improve(half)
		})
	}
	group.Wait()
	left := b.left
	for i := range halves {
		b.left -= left - workers[i].left
		if half := &halves[i]; max(half.bound, o.bound) < b.best {
			half.bound = max(half.bound, o.bound)
			t.open = append(t.open, half)
		}
	}
	return true
}

// narrow leaves ways out that take too long for an interval.
func (b *bounder) narrow(o *interval) {
	o.runs, o.receive = b.runsWithin(o), 0
	for _, all := range o.runs {
		for _, w := range all {
			if w != nil {
				lists := [][]way{w.pure}
				for _, c := range w.mixed {
					lists = append(lists, c.ways...)
				}
				for _, list := range lists {
					for k := range list {
						o.receive = max(o.receive, o.overlap/2*list[k].receive/o.micro)
					}
				}
			}
		}
	}
}

// runsWithin are an interval's runs without ways that take too long for it.
func (b *bounder) runsWithin(o *interval) [][]*ways {
	runs, known := make([][]*ways, len(o.runs)), map[*ways]*ways{nil: nil}
	for from, all := range o.runs {
		runs[from] = make([]*ways, len(all))
		for i, w := range all {
			fewer, ok := known[w]
			if !ok {
				fewer = &ways{pure: o.within(w.pure)}
				for _, c := range w.mixed {
					less := crowd{c.most, make([][]way, len(c.ways))}
					for class, m := range c.ways {
						less.ways[class] = o.within(m)
					}
					fewer.mixed = append(fewer.mixed, less)
				}
				fewer.several()
				fewer = fewer.orNil()
				known[w] = fewer
			}
			runs[from][i] = fewer
		}
	}
	return runs
}

// busy is how long a stage is at least, as the busiest is found by.
func (o *interval) busy(w *way) float64 {
	return (1-o.overlap)*w.steps + o.overlap*w.busy + o.received*w.receive
}

// pass is the least that all passes of the busiest stage, which keep it from waiting, must be counted as.
func (o *interval) pass() float64 { return o.low + o.receive }

// within are the ways that do not take longer than the interval's busiest stage.
func (o *interval) within(all []way) (keep []way) {
	for _, w := range all {
		if o.busy(&w) <= o.high*o.micro*(1+1e-12) {
			keep = append(keep, w)
		}
	}
	return keep
}
