package bound

import (
	"math"
	"slices"
)

// offer is a way to run some layers as a stage: what its devices weigh, and what it costs.
type offer struct {
	weight [dimensions]int
	cost   float64
}

// offers are the choices for a stage by its place, without those that weigh and cost no less than another.
type offers struct{ twice, step, before, last, busiest []offer }

// costs are the least costs by weight.
type costs struct {
	*grid
	least []float64
}

func (g *grid) none() []float64 { return slices.Repeat([]float64{math.Inf(1)}, g.size) }

func (c *costs) lower(used []float64, cost float64) {
	at := 0
	for i, v := range c.weight(used) {
		if v > c.most[i] {
			return
		}
		at += v * c.stride[i]
	}
	c.least[at] = min(c.least[at], cost)
}

// cheapest empties the costs, and leaves those out that weigh and cost no less than another.
func (c *costs) cheapest() (keep []offer) {
	var w [dimensions]int
	for at, v := range c.least {
		less := math.Inf(1)
		for i := range w {
			if w[i] = at / c.stride[i] % (c.most[i] + 1); w[i] > 0 {
				less = min(less, c.least[at-c.stride[i]])
			}
		}
		if v < less {
			keep = append(keep, offer{w, v})
		}
		c.least[at] = min(v, less)
	}
	for at := range c.least {
		c.least[at] = math.Inf(1)
	}
	return keep
}

// put lowers costs, by the weight that may be taken, to those of a stage and what follows it.
func (b *bounder) put(g *grid, costs []float64, stage []offer, after []float64) {
	b.left -= len(stage) * g.size / 4
	for i := range stage {
		c := &stage[i]
		width := g.most[0] + 1 - c.weight[0]
		for z := range g.most[2] + 1 - c.weight[2] {
			for y := range g.most[1] + 1 - c.weight[1] {
				from := z*g.stride[2] + y*g.stride[1]
				to := costs[from+c.weight[2]*g.stride[2]+c.weight[1]*g.stride[1]+c.weight[0]:][:width]
				for j, v := range after[from:][:width] {
					if v += c.cost; v < to[j] {
						to[j] = v
					}
				}
			}
		}
	}
}

// budgeted is the bound where stages take no more than there is: unlike at prices, every cut of the layers keeps to that, not the average
// over several. Where devices have weights it is a surrogate constraint (Glover, 1965).
func (b *bounder) budgeted(o *interval, g *grid) float64 {
	n := len(o.runs)
	most := min(b.stages(), n) - 1
	known := map[*ways]*offers{}
	runs := make([][]*offers, n)
	var scratch [4]costs
	for i := range scratch {
		scratch[i] = costs{g, g.none()}
	}
	for from, all := range o.runs {
		runs[from] = make([]*offers, len(all))
		for i, w := range all {
			if w == nil {
				continue
			}
			if known[w] == nil {
				known[w] = b.offers(o, w, &scratch)
			}
			runs[from][i] = known[w]
		}
	}
	idle := b.idle(o, g, runs, most)
	busiest, whole := make([][]float64, n+1), make([][]float64, n+1) // beginning with the busiest stage, and before it
	busiest[n], whole[n] = g.none(), g.none()
	for from := n - 1; from > 0; from-- {
		busiest[from], whole[from] = g.none(), g.none()
		for i, m := range runs[from] {
			if m != nil {
				b.put(g, busiest[from], m.busiest, idle[from+1+i])
				b.put(g, whole[from], m.last, busiest[from+1+i])
				b.put(g, whole[from], m.before, whole[from+1+i])
			}
		}
	}
	falls := max(min(float64(most), o.micro-2), (o.micro-1)/2)
	best := math.Inf(1)
	for i, w := range o.runs[0] {
		if w == nil {
			continue
		}
		for k, list := range b.headOffers(o, w, falls, &scratch) {
			after := [...][]float64{whole[i+1], busiest[i+1], idle[i+1]}[k]
			for _, c := range list {
				at := g.size - 1
				for i, v := range c.weight {
					at -= v * g.stride[i]
				}
				best = min(best, c.cost+after[at])
			}
		}
	}
	return o.micro*o.low + best
}

// idle is the least time, by first layer and weight left, for which the busiest stage waits for those after it.
func (b *bounder) idle(o *interval, g *grid, runs [][]*offers, most int) [][]float64 {
	n := len(runs)
	chain := func(of func(*offers) []offer, less float64) [][]float64 {
		costs := make([][]float64, n+1)
		costs[n] = make([]float64, g.size)
		for from := n - 1; from >= 0; from-- {
			costs[from] = g.none()
			for i, m := range runs[from] {
				if m != nil {
					b.put(g, costs[from], of(m), costs[from+1+i])
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
		return b.counted(o, g, runs, few)
	}
	// The steps of more stages than that count once; so many stages have a least weight.
	once := chain(func(m *offers) []offer { return m.step }, (o.micro-1)/2*o.pass())
	for from, weight := range lightest(runs, few+1) {
		for j := range idle[from] {
			heavy := 0
			for c, n := range g.most {
				heavy += j / g.stride[c] % (n + 1)
			}
			if heavy >= weight {
				idle[from][j] = min(idle[from][j], once[from][j])
			}
		}
	}
	return idle
}

// mostCounted is how many stages are counted one by one.
const mostCounted = 6

// counted is idle where steps of up to few stages count twice, those of more once.
func (b *bounder) counted(o *interval, g *grid, runs [][]*offers, few int) [][]float64 {
	n := len(runs)
	none := func() [][]float64 {
		all := make([][]float64, n+1)
		for from := range all {
			all[from] = g.none()
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
				if m != nil && after[from+1+i][g.size-1] < math.Inf(1) {
					b.put(g, more[from], of(m), after[from+1+i])
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
				if m == nil {
					continue
				}
				after := least[from+1+i]
				if k == 0 {
					after = next[from+1+i]
				}
				for _, c := range m.step {
					next[from] = min(next[from], total(c.weight)+after)
				}
			}
		}
		least = next
	}
	return least
}

// offers are the choices of ways by what devices weigh.
func (b *bounder) offers(o *interval, all *ways, scratch *[4]costs) *offers {
	m := &offers{}
	b.left -= len(all.pure)
	step, before, last, busiest := &scratch[0], &scratch[1], &scratch[2], &scratch[3]
	used := make([]float64, len(b.classes))
	for k := range all.pure {
		w := &all.pure[k]
		used[w.class] = w.devices
		full := (1-o.overlap)*w.step + o.overlap*(w.forward+w.send/2)
		step.lower(used, w.step)
		before.lower(used, full)
		last.lower(used, full-o.sent()*w.send)
		if o.busy(w) >= o.least() {
			busiest.lower(used, 0)
		}
		used[w.class] = 0
	}
	least, most := all.sending()
	b.fill(o, step.grid, all.mixed, func(w *way) float64 { return w.step }, func(s, forward, busy float64, used []float64) {
		full := (1-o.overlap)*s + o.overlap*least/2
		step.lower(used, s)
		before.lower(used, full+o.overlap*forward)
		last.lower(used, full+o.overlap*forward-min(o.sent()*most, full))
		if busy >= o.least() {
			busiest.lower(used, 0)
		}
	})
	m.step, m.before, m.last, m.busiest = step.cheapest(), before.cheapest(), last.cheapest(), busiest.cheapest()
	for _, c := range m.step {
		m.twice = append(m.twice, offer{c.weight, 2*c.cost - o.pass()})
	}
	return m
}

// headOffers are the choices for the first stage: before the busiest, directly before it and as the busiest.
func (b *bounder) headOffers(o *interval, all *ways, falls float64, scratch *[4]costs) (lists [3][]offer) {
	before, last, busy, later := o.head()
	used := make([]float64, len(b.classes))
	for k := range all.pure {
		w := &all.pure[k]
		used[w.class] = w.devices
		scratch[0].lower(used, before(w))
		scratch[1].lower(used, last(w))
		if o.busy(w) >= o.least() {
			scratch[2].lower(used, later(w.busy, falls))
		}
		used[w.class] = 0
	}
	g := scratch[0].grid
	least, _ := all.sending()
	for i, cost := range o.apart() {
		sent := least * float64(1-i) / 2
		b.fill(o, g, b.sorted(all, i, cost), cost, func(cost, forward, _ float64, used []float64) {
			scratch[i].lower(used, cost+o.overlap*(forward+sent))
		})
	}
	b.fill(o, g, b.sorted(all, 2, busy), busy, func(seconds, _, busy float64, used []float64) {
		if busy >= o.least() {
			scratch[2].lower(used, later(seconds, falls))
		}
	})
	for i := range lists {
		lists[i] = scratch[i].cheapest()
	}
	return lists
}

// wholeWeights are whole weights of devices in the proportion of prices, so many all together.
func (b *bounder) wholeWeights(prices []float64, levels float64) []int {
	sum := 0.0
	for c, p := range prices {
		sum += p * float64(b.classes[c].Count)
	}
	w := make([]int, len(prices))
	for c, p := range prices {
		w[c] = int(math.Round(p / sum * levels))
	}
	return w
}

// levels is about what all devices weigh.
const levels = 200

// whole raises the bound of an interval by counting devices, or by weights: in the proportion of its prices, and of those of the work.
func (b *bounder) whole(o *interval) {
	if g := b.counts(); g != nil {
		o.bound = max(o.bound, b.budgeted(o, g))
		return
	}
	for _, prices := range [][]float64{o.prices, b.start} {
		if o.bound >= b.best || b.left < 0 {
			return
		}
		if slices.Max(prices) > 0 {
			g := newGrid([dimensions]int{}, make([]float64, len(prices)))
			budget := 0
			for c, w := range b.wholeWeights(prices, levels) {
				g.prices[c] = float64(w)
				budget += w * b.classes[c].Count
			}
			if budget >= levels/4 { // otherwise so many devices that they cannot be told apart
				o.bound = max(o.bound, b.budgeted(o, newGrid([dimensions]int{budget}, g.prices)))
			}
		}
	}
}
