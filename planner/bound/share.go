package bound

import (
	"cmp"
	"math"
	"slices"
)

// reach is stages of several classes on some numbers of machines.
type reach struct {
	machines, limit float64 // at least, and fewer than
	most            []int   // devices of each class
}

// manyLayers is from how many on a bound keeps to what takes less time.
const manyLayers = 64

// reaches are all there may be for micro-batches of so many samples.
func (m *model) reaches(samples int) (all []reach) {
	machines, replicas := 0, 0
	for _, c := range m.classes {
		machines += (c.Count + c.PerMachine - 1) / c.PerMachine
		replicas = max(replicas, c.PerMachine)
	}
	least := max(2, (samples-1)/(m.largestShare()*replicas)+1)
	for least <= machines {
		next := least + max(1, least*least/6)
		if len(m.kindOf) > manyLayers { // whose ranges would take longer than they tell
			next = max(next, machines+1)
		}
		s := reach{machines: float64(least), limit: float64(next)}
		for _, c := range m.classes {
			s.most = append(s.most, min(c.Count, (next-2)*c.PerMachine)) // one is another's
		}
		all = append(all, s)
		least = next
	}
	return all
}

// crowd are ways by class for stages of several classes, on up to so many devices of each.
type crowd struct {
	most []int
	ways [][]way
}

// several leaves crowds out that have ways for one class alone.
func (w *ways) several() {
	w.mixed = slices.DeleteFunc(w.mixed, func(c crowd) bool {
		classes := 0
		for _, m := range c.ways {
			classes += min(1, len(m))
		}
		return classes < 2
	})
}

// sending is the least and the most that stages of several classes take for it.
func (w *ways) sending() (least, most float64) {
	least = math.Inf(1)
	for _, c := range w.mixed {
		for _, m := range c.ways {
			for k := range m {
				least, most = min(least, m[k].send), max(most, m[k].send)
			}
		}
	}
	return least, most
}

// sorted are the ways of groups that share a stage by an order that prices do not change.
func (b *bounder) sorted(all *ways, order int, by func(*way) float64) []crowd {
	if all.sorted[order] == nil && all.mixed != nil {
		for _, c := range all.mixed {
			sorted := crowd{c.most, make([][]way, len(c.ways))}
			for class, m := range c.ways {
				sorted.ways[class] = slices.Clone(m)
				slices.SortStableFunc(sorted.ways[class], func(x, y way) int { return cmp.Compare(by(&x), by(&y)) })
			}
			all.sorted[order] = append(all.sorted[order], sorted)
		}
	}
	return all.sorted[order]
}

// fill goes through the times of stages of several classes and their devices: where each class counts, all that no fewer could
// stand for, otherwise the cheapest.
func (b *bounder) fill(o *interval, g *grid, all []crowd, seconds func(*way) float64, found func(seconds, forward, busy float64, used []float64)) {
	if g.prices != nil {
		b.share(o, all, seconds, g.prices, func(seconds, forward, busy, _ float64, used []float64) { found(seconds, forward, busy, used) })
		return
	}
	for _, c := range all {
		b.wholeShares(o, c, seconds, found)
	}
}

// wholeShares goes through the times that a stage of several classes may take, and for each through the devices that suffice: replicas
// take whole samples, and two classes or more have some.
func (b *bounder) wholeShares(o *interval, all crowd, seconds func(*way) float64, found func(seconds, forward, busy float64, used []float64)) {
	samples := math.Round(float64(b.batch) / o.micro)
	taken := make([][]float64, len(all.ways)) // samples, by devices
	for class := range taken {
		taken[class] = make([]float64, all.most[class]+1)
	}
	used := make([]float64, len(taken))
	b.rising(o, all.ways, seconds, func(class int, w *way) (fewer bool) {
		for n, before := range taken[class] {
			taken[class][n] = max(before, math.Floor(float64(n)/w.replica)*math.Round(samples*w.replica/w.devices))
			fewer = fewer || taken[class][n] > before
		}
		return fewer
	}, func(s, forward, busy float64) {
		var choose func(class int, left float64, classes int)
		choose = func(class int, left float64, classes int) {
			if class == len(taken) {
				if left <= 0 && classes > 1 {
					found(s, forward, busy, used)
				}
				return
			}
			before := -1.0
			for n, v := range taken[class] {
				if v == before {
					continue
				}
				b.left--
				before, used[class] = v, float64(n)
				if v == 0 {
					used[class] = 0
					choose(class+1, left, classes)
					continue
				}
				choose(class+1, left-v, classes+1)
				if v >= left {
					break
				}
			}
			used[class] = 0
		}
		choose(0, samples, 0)
	})
}

// share goes through the times that a stage of several classes may take, and for each through the cheapest devices for it: each class
// takes samples until it has no more devices, the class whose devices for a sample cost least first; two classes have a replica or more.
func (b *bounder) share(o *interval, all []crowd, seconds func(*way) float64, prices []float64, found func(seconds, forward, busy, devices float64, used []float64)) {
	n := len(prices)
	used := make([]float64, n)
	for _, c := range all {
		need, replica := slices.Repeat([]float64{math.Inf(1)}, n), slices.Repeat([]float64{math.Inf(1)}, n)
		b.rising(o, c.ways, seconds, func(class int, w *way) bool {
			fewer := w.devices < need[class] || w.replica < replica[class]
			need[class], replica[class] = min(need[class], w.devices), min(replica[class], w.replica)
			return fewer
		}, func(s, forward, busy float64) {
			b.pairs(need, replica, c.most, prices, used, func(cost float64) { found(s, forward, busy, cost, used) })
		})
	}
}

// rising goes through the ways by class that a stage of several may choose from, by what it may take at most; at each of these times after
// the ways that are new, with the least forward pass of all so far, and the most that one is busy. Times at which no fewer devices do, no
// pass is shorter, and the stage is as busy as it must be or as little, are left out.
func (b *bounder) rising(o *interval, ways [][]way, seconds func(*way) float64, take func(class int, w *way) bool, at func(seconds, forward, busy float64)) {
	next := make([]int, len(ways)) // of each class
	forward, busy := math.Inf(1), 0.0
	for {
		s := math.Inf(1)
		for class, k := range next {
			if k < len(ways[class]) {
				s = min(s, seconds(&ways[class][k]))
			}
		}
		if math.IsInf(s, 1) {
			return
		}
		matters := false
		for class := range next {
			for ; next[class] < len(ways[class]) && seconds(&ways[class][next[class]]) <= s; next[class]++ {
				w := &ways[class][next[class]]
				most := max(busy, o.busy(w))
				fewer := take(class, w)
				matters = matters || fewer || w.forward < forward || busy < o.least() && most >= o.least()
				forward, busy = min(forward, w.forward), most
			}
		}
		b.left -= len(ways)
		if matters {
			b.left -= len(ways) * (len(ways) - 1) / 2
			at(s, forward, busy)
		}
	}
}

// pairs goes through the classes of which a stage has a replica at least, two of them, and fills it up from the cheapest class for a
// sample on.
func (b *bounder) pairs(need, replica []float64, most []int, prices, used []float64, found func(cost float64)) {
	for one := range need {
		for other := range one {
			if math.IsInf(need[one], 1) || math.IsInf(need[other], 1) {
				continue
			}
			clear(used)
			used[one], used[other] = replica[one], replica[other]
			left := 1 - used[one]/need[one] - used[other]/need[other]
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

// grid is what devices a cut of the layers may use: up to so many of each class, or, at prices, devices of a weight together.
type grid struct {
	most   [dimensions]int
	stride [dimensions]int
	size   int
	prices []float64 // of a device of each class; nil: every class is counted by itself
}

const (
	dimensions = 3
	countable  = 1200 // numbers of devices that are told apart
)

func newGrid(most [dimensions]int, prices []float64) *grid {
	g := &grid{most: most, size: 1, prices: prices}
	for c, n := range most {
		g.stride[c] = g.size
		g.size *= n + 1
	}
	return g
}

// counts is the grid of all classes' devices; nil: there are too many.
func (b *bounder) counts() *grid {
	var most [dimensions]int
	size := 1
	for c, k := range b.classes {
		if size *= k.Count + 1; c == dimensions || size > countable {
			return nil
		}
		most[c] = k.Count
	}
	return newGrid(most, nil)
}

// weight is what devices of each class come to. They are whole numbers, and so are weights.
func (g *grid) weight(used []float64) (w [dimensions]int) {
	whole := func(v float64) int { return int(math.Ceil(v - 1e-6)) }
	if g.prices == nil {
		for c, n := range used {
			w[c] = whole(n)
		}
		return w
	}
	sum := 0.0
	for c, n := range used {
		sum += g.prices[c] * n
	}
	w[0] = whole(sum)
	return w
}

func total(w [dimensions]int) (n int) {
	for _, v := range w {
		n += v
	}
	return n
}

// apart is what one of several classes in the first stage costs alone: before the busiest, and directly before it. The forward pass is that
// of the class whose passes take longest, not the longest.
func (o *interval) apart() []func(*way) float64 {
	return []func(*way) float64{
		func(w *way) float64 { return (1 - o.overlap) * o.first(w) },
		func(w *way) float64 { return (1 - o.overlap) * (o.first(w) - w.send) },
	}
}

func add(sum, more []float64) {
	for i, v := range more {
		sum[i] += v
	}
}
