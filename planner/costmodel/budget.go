package costmodel

import (
	"cmp"
	"math"
	"slices"
)

// offer is a way to run some layers as a stage: what its devices weigh, and what it costs.
type offer struct {
	weight int
	cost   float64
}

// offers are the choices for a stage by its place, rising in weight and falling in cost.
type offers struct{ twice, step, before, last, busiest []offer }

// budgeted is the bound where devices have whole weights, and stages take no more than all weigh: unlike at prices, every cut of the
// layers keeps to that, not the average over several (a surrogate constraint: Glover, 1965).
func (b *bounder) budgeted(o *interval, weights []int) float64 {
	n, budget := len(o.runs), 0
	prices := make([]float64, len(weights))
	for c, w := range weights {
		prices[c] = float64(w)
		budget += w * b.topology.Classes[c].Count
	}
	if budget < levels/4 { // so many devices that they cannot be told apart
		return 0
	}
	most := min(b.stages(), n) - 1
	known := map[*ways]*offers{}
	runs := make([][]*offers, n)
	for from, all := range o.runs {
		runs[from] = make([]*offers, len(all))
		for i, w := range all {
			if w == nil {
				continue
			}
			if known[w] == nil {
				known[w] = b.offers(o, w, prices, budget)
			}
			runs[from][i] = known[w]
		}
	}
	idle := b.idle(o, runs, most, budget)
	none := func() []float64 { return slices.Repeat([]float64{math.Inf(1)}, budget+1) }
	busiest, whole := make([][]float64, n+1), make([][]float64, n+1) // beginning with the busiest stage, and before it
	busiest[n], whole[n] = none(), none()
	for from := n - 1; from > 0; from-- {
		busiest[from], whole[from] = none(), none()
		for i, m := range runs[from] {
			if m != nil {
				b.put(busiest[from], m.busiest, idle[from+1+i])
				b.put(whole[from], m.last, busiest[from+1+i])
				b.put(whole[from], m.before, whole[from+1+i])
			}
		}
	}
	falls := max(min(float64(most), o.micro-2), (o.micro-1)/2)
	best := math.Inf(1)
	for i, w := range o.runs[0] {
		if w == nil {
			continue
		}
		for k, list := range b.headOffers(o, w, falls, prices, budget) {
			after := [...][]float64{whole[i+1], busiest[i+1], idle[i+1]}[k]
			for _, c := range list {
				best = min(best, c.cost+after[budget-c.weight])
			}
		}
	}
	return o.micro*o.low + best
}

// put lowers costs, by the weight that may be taken, to those of a stage and what follows it.
func (b *bounder) put(costs []float64, stage []offer, after []float64) {
	b.left -= len(stage) * len(costs) / 4
	for _, c := range stage {
		to := costs[c.weight:]
		for j, v := range after[:len(to)] {
			if v += c.cost; v < to[j] {
				to[j] = v
			}
		}
	}
}

// idle is the least time, by first layer and weight left, for which the busiest stage waits for those after it.
func (b *bounder) idle(o *interval, runs [][]*offers, most, budget int) [][]float64 {
	n := len(runs)
	chain := func(of func(*offers) []offer, less float64) [][]float64 {
		costs := make([][]float64, n+1)
		costs[n] = make([]float64, budget+1)
		for from := n - 1; from >= 0; from-- {
			costs[from] = slices.Repeat([]float64{math.Inf(1)}, budget+1)
			for i, m := range runs[from] {
				if m != nil {
					b.put(costs[from], of(m), costs[from+1+i])
				}
			}
		}
		for _, list := range costs {
			for j, v := range list {
				list[j] = max(0, v-less)
			}
		}
		return costs
	}
	idle := chain(func(m *offers) []offer { return m.twice }, 0)
	if float64(most) <= o.micro-2 {
		return idle
	}
	few := max(0, int(o.micro)-2)
	if few <= mostCounted {
		return b.counted(o, runs, few, budget)
	}
	// The steps of more stages than that count once; so many stages have a least weight.
	once := chain(func(m *offers) []offer { return m.step }, (o.micro-1)/2*o.pass())
	for from, weight := range lightest(runs, few+1) {
		for j := weight; j <= budget; j++ {
			idle[from][j] = min(idle[from][j], once[from][j])
		}
	}
	return idle
}

// mostCounted is how many stages are counted one by one.
const mostCounted = 14

// counted is idle where steps of up to few stages count twice, those of more once.
func (b *bounder) counted(o *interval, runs [][]*offers, few, budget int) [][]float64 {
	n := len(runs)
	none := func() [][]float64 {
		all := make([][]float64, n+1)
		for from := range all {
			all[from] = slices.Repeat([]float64{math.Inf(1)}, budget+1)
		}
		return all
	}
	idle := none()
	twice, once := none(), none() // of so many stages
	clear(twice[n])
	clear(once[n])
	clear(idle[n])
	// before adds a stage to each of those after it; to more, which may be itself.
	before := func(more, after [][]float64, of func(*offers) []offer) {
		for from := n - 1; from >= 0; from-- {
			for i, m := range runs[from] {
				if m != nil && after[from+1+i][budget] < math.Inf(1) {
					b.put(more[from], of(m), after[from+1+i])
				}
			}
		}
	}
	lower := func(costs [][]float64, less float64) {
		for from := range idle {
			for j, v := range costs[from] {
				idle[from][j] = min(idle[from][j], max(0, v-less))
			}
		}
	}
	for range few {
		next, more := none(), none()
		before(next, twice, func(m *offers) []offer { return m.twice })
		before(more, once, func(m *offers) []offer { return m.step })
		twice, once = next, more
		lower(twice, 0)
	}
	more := none()
	before(more, once, func(m *offers) []offer { return m.step })
	before(more, more, func(m *offers) []offer { return m.step })
	lower(more, (o.micro-1)/2*o.pass())
	return idle
}

// lightest is, by first layer, the least weight of so many stages or more from there to the end.
func lightest(runs [][]*offers, stages int) []int {
	const never = math.MaxInt / 2
	n := len(runs)
	least := slices.Repeat([]int{never}, n+1) // of as many as were counted, or more
	for k := range stages + 1 {
		next := slices.Repeat([]int{never}, n+1)
		if k == 0 {
			next[n] = 0
		}
		for from := n - 1; from >= 0; from-- {
			for i, m := range runs[from] {
				if m != nil && len(m.step) > 0 {
					after := least[from+1+i]
					if k == 0 {
						after = next[from+1+i]
					}
					next[from] = min(next[from], m.step[0].weight+after)
				}
			}
		}
		least = next
	}
	return least
}

// offers are the choices of ways at weights of devices.
func (b *bounder) offers(o *interval, all *ways, prices []float64, budget int) *offers {
	m := &offers{}
	b.left -= len(all.pure)
	for k := range all.pure {
		w := &all.pure[k]
		weight := weigh(prices[w.class] * w.devices)
		before := (1-o.overlap)*w.step + o.overlap*(w.forward+w.send/2)
		m.step = append(m.step, offer{weight, w.step})
		m.before = append(m.before, offer{weight, before})
		m.last = append(m.last, offer{weight, before - o.sent()*w.send})
		if o.busy(w) >= o.least() {
			m.busiest = append(m.busiest, offer{weight, 0})
		}
	}
	least, most := math.Inf(1), 0.0 // sending
	for _, l := range all.mixed {
		for k := range l {
			least, most = min(least, l[k].send), max(most, l[k].send)
		}
	}
	b.share(o, all.mixed, func(w *way) float64 { return w.step }, prices, func(step, forward, busy, devices float64, _ []float64) {
		weight := weigh(devices)
		full := (1-o.overlap)*step + o.overlap*least/2
		m.step = append(m.step, offer{weight, step})
		m.before = append(m.before, offer{weight, full + o.overlap*forward})
		m.last = append(m.last, offer{weight, full + o.overlap*forward - min(o.sent()*most, full)})
		if busy >= o.least() {
			m.busiest = append(m.busiest, offer{weight, 0})
		}
	})
	m.step, m.before, m.last, m.busiest = cheapest(m.step, budget), cheapest(m.before, budget), cheapest(m.last, budget), cheapest(m.busiest, budget)
	for _, c := range m.step {
		m.twice = append(m.twice, offer{c.weight, 2*c.cost - o.pass()})
	}
	return m
}

// headOffers are the choices for the first stage: before the busiest, directly before it and as the busiest.
func (b *bounder) headOffers(o *interval, all *ways, falls float64, prices []float64, budget int) (lists [3][]offer) {
	before, last, busy, later := o.head()
	for k := range all.pure {
		w := &all.pure[k]
		weight := weigh(prices[w.class] * w.devices)
		lists[0] = append(lists[0], offer{weight, before(w)})
		lists[1] = append(lists[1], offer{weight, last(w)})
		if o.busy(w) >= o.least() {
			lists[2] = append(lists[2], offer{weight, later(w.busy, falls)})
		}
	}
	for i, cost := range []func(*way) float64{before, last} {
		b.share(o, b.sorted(all, i, cost), cost, prices, func(cost, _, _, devices float64, _ []float64) {
			lists[i] = append(lists[i], offer{weigh(devices), cost})
		})
	}
	b.share(o, b.sorted(all, 2, busy), busy, prices, func(busy, _, _, devices float64, _ []float64) {
		if busy >= o.least() {
			lists[2] = append(lists[2], offer{weigh(devices), later(busy, falls)})
		}
	})
	for i := range lists {
		lists[i] = cheapest(lists[i], budget)
	}
	return lists
}

// weigh is a whole weight: devices come in whole numbers, and weigh as much each.
func weigh(devices float64) int { return int(math.Ceil(devices - 1e-6)) }

// cheapest leaves choices out that weigh and cost no less than another, or weigh too much.
func cheapest(all []offer, budget int) (keep []offer) {
	slices.SortFunc(all, func(x, y offer) int {
		return cmp.Or(cmp.Compare(x.weight, y.weight), cmp.Compare(x.cost, y.cost))
	})
	for _, c := range all {
		if c.weight <= budget && (len(keep) == 0 || c.cost < keep[len(keep)-1].cost) {
			keep = append(keep, c)
		}
	}
	return keep
}

// wholeWeights are whole weights of devices in the proportion of prices, so many all together.
func (b *bounder) wholeWeights(prices []float64, levels float64) []int {
	sum := 0.0
	for c, p := range prices {
		sum += p * float64(b.topology.Classes[c].Count)
	}
	w := make([]int, len(prices))
	for c, p := range prices {
		w[c] = int(math.Round(p / sum * levels))
	}
	return w
}

// levels is about what all devices weigh.
const levels = 200

// whole raises the bound of an interval by whole weights: in the proportion of its prices, and of those of the work.
func (b *bounder) whole(o *interval) {
	for _, prices := range [][]float64{o.prices, b.start} {
		if o.bound >= b.best || b.left < 0 {
			return
		}
		if slices.Max(prices) > 0 {
			o.bound = max(o.bound, b.budgeted(o, b.wholeWeights(prices, levels)))
		}
	}
}
