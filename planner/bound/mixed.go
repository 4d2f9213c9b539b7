package bound

import (
	"cmp"
	"math"
	"slices"
)

// A stage may mix several classes, each of which takes a share of the samples in a whole number of replicas. To take s of the b samples of a
// micro-batch, at most k on each replica of t devices, a class needs s t / k devices or more: the share s / b of b t / k devices. So a stage that
// takes no longer than a given time costs at least as much as dividing its samples, in fractions, over options of that time: the cheapest class
// first, each up to the devices it has, and at least a replica of two classes.

// mixed is the options for stages of several classes on some numbers of machines.
type mixed struct {
	machines
	classes [][]option // shares of such a stage, by class and rising step
}

// machines is numbers of machines. A stage on many of them exchanges much over their links, and one on few has few devices.
type machines struct {
	least, limit int   // at least, and fewer than
	most         []int // devices of each class, if another class has a machine's worth or less beside it
}

// manyLayers is the number of layers above which there is one range of machines, as several would take longer than they tell.
const manyLayers = 64

// ranges are the numbers of machines that a stage of several classes may lie on, with so many samples in a micro-batch.
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
			x.most = append(x.most, min(c.Count, (limit-2)*c.PerMachine)) // a machine is another class's
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

// sending is the least and the most that stages of several classes take to send a micro-batch on.
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

// mixedBy are the options of several classes, each class's by rising order; which says where they are kept, as prices do not change the order.
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

// mixes calls found with each time that a stage of several classes may take, by seconds, and the cheapest devices for it. Each class's options
// come by rising seconds. Times at which no fewer devices suffice, no forward pass is shorter, and the stage is no more busy than the busiest
// must be, are left out.
func (b *bounder) mixes(o *interval, all []mixed, seconds func(*option) float64, prices []float64, found func(x mix, cost float64, used []float64)) {
	for _, m := range all {
		b.mixesOn(o, m, seconds, prices, found)
	}
}

func (b *bounder) mixesOn(o *interval, m mixed, seconds func(*option) float64, prices []float64, found func(x mix, cost float64, used []float64)) {
	n, all := len(prices), m.classes
	used, next := make([]float64, n), make([]int, n)
	need, replica := slices.Repeat([]float64{math.Inf(1)}, n), slices.Repeat([]float64{math.Inf(1)}, n) // least devices for all samples, and of a replica
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

// fillCheapest gives two classes, each pair in turn, a replica, and the rest of the samples to the cheapest classes.
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
