package bound

import (
	"cmp"
	"math"
	"slices"
)

// A stage may mix several classes. Each takes a share of the samples, in whole replicas. With at most k samples on a replica
// of t devices, a class needs at least s t / k devices for s of the b samples of a micro-batch: the part s / b of b t / k
// devices. So a stage within a given time costs at least as much as the following: divide its samples, in fractions, over
// options of that time, starting with the cheapest class, each class up to the devices that it has, with a replica of two
// classes at least.

// mixed is the options for stages of several classes on some numbers of machines.
type mixed struct {
	machines
	classes [][]option // by class: its shares of such a stage, by rising step
}

// machines is a range of numbers of machines. A stage on many machines exchanges much over their links; one on few machines
// has few devices.
type machines struct {
	least, limit int   // at least, and fewer than
	most         []int // by class: the most devices, as another class needs one of the machines
}

// manyLayers is the number of layers above which there is only one range of machines. More ranges take more time than they
// are worth.
const manyLayers = 64

// ranges are the ranges of machines that a stage of several classes may lie on, for a micro-batch of so many samples.
func (m *model) ranges(samples int) (all []machines) {
	replicas := 0 // of a machine, at most
	for _, c := range m.classes {
		replicas = max(replicas, c.PerMachine)
	}
	least := max(2, (samples-1)/(m.largestShare()*replicas)+1) // fewer do not hold enough replicas
	for least <= m.machines() {
		limit := least + max(1, least*least/6)
		if len(m.layers) > manyLayers {
			limit = max(limit, m.machines()+1)
		}
		x := machines{least: least, limit: limit}
		for _, c := range m.classes {
			x.most = append(x.most, min(c.Count, (limit-2)*c.PerMachine)) // another class takes a machine
		}
		all = append(all, x)
		least = limit
	}
	return all
}

// machines is the number of machines of all classes.
func (m *model) machines() (n int) {
	for _, c := range m.classes {
		n += (c.Count + c.PerMachine - 1) / c.PerMachine
	}
	return n
}

// sending is the least and the most time that stages of several classes take to send a micro-batch on.
func (w *options) sending() (least, most float64) {
	least = math.Inf(1)
	for _, m := range w.mixed {
		for _, all := range m.classes {
			for k := range all {
				least, most = min(least, all[k].send), max(most, all[k].send)
			}
		}
	}
	return least, most
}

// mixedBy are the options of several classes, those of each class by rising order. They are kept in sorted[which], because
// prices do not change the order.
func (w *options) mixedBy(which int, order func(*option) float64) []mixed {
	if w.sorted[which] == nil {
		for _, m := range w.mixed {
			m.classes = slices.Clone(m.classes)
			for class, all := range m.classes {
				m.classes[class] = slices.Clone(all)
				slices.SortStableFunc(m.classes[class], func(x, y option) int { return cmp.Compare(order(&x), order(&y)) })
			}
			w.sorted[which] = append(w.sorted[which], m)
		}
	}
	return w.sorted[which]
}

// mix is a stage of several classes: its time, its least forward pass, and the floor (interval.busy) of its busiest class.
type mix struct{ seconds, forward, busy float64 }

// mixes calls found with each time that a stage of several classes may take, and the cheapest devices for that time. The
// options of each class are sorted by seconds. It skips a longer time if that needs no fewer devices, has no shorter forward
// pass, and does not make the stage busy enough to be the busiest.
func (b *bounder) mixes(o *interval, all []mixed, seconds func(*option) float64, prices []float64, found func(x mix, cost float64, used []float64)) {
	for _, m := range all {
		b.mixesOn(o, m, seconds, prices, found)
	}
}

func (b *bounder) mixesOn(o *interval, m mixed, seconds func(*option) float64, prices []float64, found func(x mix, cost float64, used []float64)) {
	n, all := len(prices), m.classes
	used, next := make([]float64, n), make([]int, n)
	// The least devices for all samples, and for a replica.
	need, replica := slices.Repeat([]float64{math.Inf(1)}, n), slices.Repeat([]float64{math.Inf(1)}, n)
	x := mix{forward: math.Inf(1)}
	for {
		x.seconds = math.Inf(1)
		for class, k := range next {
			if k < len(all[class]) {
				x.seconds = min(x.seconds, seconds(&all[class][k]))
			}
		}
		if math.IsInf(x.seconds, 1) {
			return
		}
		matters := false
		for class := range next {
			for ; next[class] < len(all[class]) && seconds(&all[class][next[class]]) <= x.seconds; next[class]++ {
				w := &all[class][next[class]]
				most := max(x.busy, o.busy(w))
				matters = matters || w.devices < need[class] || w.replica < replica[class] || w.forward < x.forward || x.busy < o.least() && most >= o.least()
				need[class], replica[class] = min(need[class], w.devices), min(replica[class], w.replica)
				x.forward, x.busy = min(x.forward, w.forward), most
			}
		}
		b.left -= n
		if matters {
			b.left -= n * (n - 1) / 2
			fillCheapest(need, replica, m.most, prices, used, func(cost float64) { found(x, cost, used) })
		}
	}
}

// fillCheapest tries each pair of classes: both get a replica, and the cheapest classes get the rest of the samples.
func fillCheapest(need, replica []float64, most []int, prices, used []float64, found func(cost float64)) {
	for one := range need {
		for other := range one {
			if math.IsInf(need[one], 1) || math.IsInf(need[other], 1) {
				continue
			}
			clear(used)
			used[one], used[other] = replica[one], replica[other]
			left := 1 - used[one]/need[one] - used[other]/need[other] // share of the samples
			for left > 1e-12 {
				cheapest := -1
				for class, n := range need {
					if !math.IsInf(n, 1) && used[class] < float64(most[class]) && (cheapest < 0 || prices[class]*n < prices[cheapest]*need[cheapest]) {
						cheapest = class
					}
				}
				if cheapest < 0 {
					break
				}
				more := min(left*need[cheapest], float64(most[cheapest])-used[cheapest])
				used[cheapest] += more
				left -= more / need[cheapest]
			}
			if left > 1e-12 {
				continue
			}
			cost := 0.0
			for class, n := range used {
				cost += prices[class] * n
			}
			found(cost)
		}
	}
}
