package bound

import (
	"math"
	"slices"
)

// least are the cheapest ways to run some layers as a stage, by its place: after the busiest, with twice its step or once, only
// with its devices, before the busiest, directly before it, whose receiving counts what is sent, and as the busiest.
type least struct{ twice, step, devices, before, last, busiest part }

func (x *least) parts() [6]*part {
	return [...]*part{&x.twice, &x.step, &x.devices, &x.before, &x.last, &x.busiest}
}

type part struct {
	cost float64
	used []float64 // devices of each class
}

// take lowers a part to a cost of a stage on devices of several classes.
func (p *part) take(cost float64, used []float64) {
	if cost < p.cost {
		p.cost = cost
		copy(p.used, used)
	}
}

func (p *part) lower(cost float64, class int, devices float64) {
	if cost < p.cost {
		p.cost = cost
		clear(p.used)
		p.used[class] = devices
	}
}

// leasts are those at some prices, by first layer and number of layers; nil: no way.
func (b *bounder) leasts(o *interval, prices []float64) [][]*least {
	n := len(o.runs)
	runs, flat := make([][]*least, n), make([]*least, n*(n+1)/2)
	b.round++
	for from := range n {
		runs[from], flat = flat[:n-from], flat[n-from:]
		for i, all := range o.runs[from] {
			if all == nil {
				continue
			}
			if all.round != b.round {
				b.least(o, all, prices)
				all.round = b.round
			}
			runs[from][i] = all.least
		}
	}
	return runs
}

func (b *bounder) least(o *interval, all *ways, prices []float64) {
	n := len(prices)
	if all.least == nil {
		all.least = &least{}
		used := make([]float64, 6*n)
		for i, p := range all.least.parts() {
			p.used = used[i*n : (i+1)*n]
		}
	}
	x := all.least
	for _, p := range x.parts() {
		p.cost = math.Inf(1)
	}
	b.left -= len(all.pure)
	for k := range all.pure {
		w := &all.pure[k]
		devices := prices[w.class] * w.devices
		x.twice.lower(devices+2*w.step-o.pass(), w.class, w.devices)
		x.step.lower(devices+w.step, w.class, w.devices)
		x.devices.lower(devices, w.class, w.devices)
		before := devices + (1-o.overlap)*w.step + o.overlap*(w.forward+w.send/2)
		x.before.lower(before, w.class, w.devices)
		x.last.lower(before-o.sent()*w.send, w.class, w.devices)
		if o.busy(w) >= o.least() {
			x.busiest.lower(devices, w.class, w.devices)
		}
	}
	least, most := all.sending()
	b.share(o, all.mixed, func(w *way) float64 { return w.step }, prices, func(step, forward, busy, devices float64, used []float64) {
		before := devices + (1-o.overlap)*step + o.overlap*forward
		costs := [...]float64{devices + 2*step - o.pass(), devices + step, devices, before + o.overlap*least/2, before + o.overlap*least/2 - min(o.sent()*most, (1-o.overlap)*step+o.overlap*least/2)}
		for i, v := range costs {
			x.parts()[i].take(v, used)
		}
		if busy >= o.least() {
			x.busiest.take(devices, used)
		}
	})
}

// chain is, by number of stages and first layer, the least cost of so many stages from there to the end.
type chain struct {
	of   func(*least) *part
	cost [][]float64
}

// chain adds stages until there are most, or none is possible.
func (b *bounder) chain(runs [][]*least, most int, of func(*least) *part) chain {
	n := len(runs)
	stage, flat := make([][]float64, n), make([]float64, n*(n+1)/2) // by first layer and number of layers
	for from, all := range runs {
		stage[from], flat = flat[:0:n-from], flat[n-from:]
		for _, x := range all {
			if x != nil {
				stage[from] = append(stage[from], of(x).cost)
			} else {
				stage[from] = append(stage[from], math.Inf(1))
			}
		}
		for k := len(stage[from]); k > 0 && math.IsInf(stage[from][k-1], 1); k-- {
			stage[from] = stage[from][:k-1]
		}
	}
	c := chain{of, [][]float64{slices.Repeat([]float64{math.Inf(1)}, n+1)}}
	c.cost[0][n] = 0
	for d := 1; d <= most; d++ {
		before, now, some := c.cost[d-1], slices.Repeat([]float64{math.Inf(1)}, n+1), false
		for from := n - d; from >= 0; from-- {
			// Fewer layers than stages after this one leave none.
			least, row := math.Inf(1), stage[from][:min(len(stage[from]), n-d-from+1)]
			rest := before[from+1:][:len(row)]
			for i, v := range row {
				if v += rest[i]; v < least {
					least = v
				}
			}
			b.left -= len(stage[from])
			now[from], some = least, some || !math.IsInf(least, 1)
		}
		if !some {
			break
		}
		c.cost = append(c.cost, now)
	}
	return c
}

// use adds the devices of d stages from a layer on.
func (c *chain) use(runs [][]*least, d, from int, used []float64) {
	for ; d > 0; d-- {
		for i, x := range runs[from] {
			if x == nil {
				continue
			}
			if p := c.of(x); p.cost+c.cost[d-1][from+1+i] == c.cost[d][from] {
				add(used, p.used)
				from += 1 + i
				break
			}
		}
	}
}

// pick is the stage that begins with a layer, and, if it is the busiest, the chain of those after it.
type pick struct {
	cost      float64
	chain, d  int
	to        int
	used      []float64
	isLast    bool // before the busiest
	isBusiest bool
}

// chains are those of the stages after the busiest.
type chains struct {
	*interval
	all []chain
	few int // that of stages that are fewer than the micro-batches
}

func (b *bounder) chains(o *interval, runs [][]*least, most int) *chains {
	c := &chains{interval: o, all: []chain{b.chain(runs, most, func(x *least) *part { return &x.devices })}}
	if o.micro > 2 {
		c.all = append(c.all, b.chain(runs, min(most, int(o.micro)-2), func(x *least) *part { return &x.twice }))
	}
	c.few = len(c.all) - 1
	if int(o.micro)-1 <= most {
		c.all = append(c.all, b.chain(runs, most, func(x *least) *part { return &x.step }))
	}
	return c
}

// after is d stages after the busiest, from a layer on, and how fast their idle time falls with v.
func (c *chains) after(d, from int) (x pick, falls float64) {
	x, falls = pick{cost: c.all[0].cost[d][from], d: d}, float64(d)
	chain, less := c.few, 0.0
	if falls > c.micro-2 {
		falls = (c.micro - 1) / 2
		chain, less = len(c.all)-1, falls*c.pass()
	}
	if v := at(&c.all[chain], d, from) - less; v > x.cost {
		x.cost, x.chain = v, chain
	}
	return x, falls
}

// value is the bound at prices of devices, and the devices of each class that the cheapest stages take.
func (b *bounder) value(o *interval, prices []float64) (float64, []float64) {
	n := len(o.runs)
	runs := b.leasts(o, prices)
	most := min(b.stages(), n) - 1
	c := b.chains(o, runs, most)
	behind := make([]pick, n+1) // the stages after the busiest, of any number
	for from := range behind {
		behind[from].cost = math.Inf(1)
		for d := range c.all[0].cost {
			if x, _ := c.after(d, from); x.cost < behind[from].cost {
				behind[from] = x
			}
		}
	}
	whole, busiest := make([]pick, n+1), make([]pick, n+1) // beginning before the busiest stage, and with it
	whole[n].cost, busiest[n].cost = math.Inf(1), math.Inf(1)
	for from := n - 1; from > 0; from-- {
		whole[from].cost, busiest[from].cost = math.Inf(1), math.Inf(1)
		for i, x := range runs[from] {
			if x == nil {
				continue
			}
			to := from + 1 + i
			if k := behind[to]; x.busiest.cost+k.cost < busiest[from].cost {
				busiest[from] = pick{cost: x.busiest.cost + k.cost, to: to, used: x.busiest.used, isBusiest: true, chain: k.chain, d: k.d}
			}
			if v := x.before.cost + whole[to].cost; v < whole[from].cost {
				whole[from] = pick{cost: v, to: to, used: x.before.used}
			}
			if v := x.last.cost + busiest[to].cost; v < whole[from].cost {
				whole[from] = pick{cost: v, to: to, used: x.last.used, isLast: true}
			}
		}
	}
	whole[0] = b.first(c, whole, busiest, runs[0], most, prices)
	value, used := o.micro*o.low+whole[0].cost, make([]float64, len(prices))
	for from := 0; from < n && !math.IsInf(value, 1); {
		x := whole[from]
		add(used, x.used)
		from = x.to
		if x.isLast {
			x = busiest[from]
			add(used, x.used)
			from = x.to
		}
		if x.isBusiest {
			c.all[x.chain].use(runs, x.d, from, used)
			break
		}
	}
	for c, k := range b.classes {
		value -= prices[c] * float64(k.Count)
	}
	return value, used
}

// first is the cheapest first stage, with all after it.
func (b *bounder) first(c *chains, whole, busiest []pick, runs []*least, most int, prices []float64) pick {
	best := pick{cost: math.Inf(1)}
	falls := c.falls(most)
	for i, x := range runs {
		if x == nil {
			continue
		}
		to := 1 + i
		h := b.head(c.interval, c.runs[0][i], falls, prices)
		if v := h.before.cost + whole[to].cost; v < best.cost {
			best = pick{cost: v, to: to, used: h.before.used}
		}
		if v := h.last.cost + busiest[to].cost; v < best.cost {
			best = pick{cost: v, to: to, used: h.last.used, isLast: true}
		}
		for d := range c.all[0].cost {
			k, f := c.after(d, to)
			at, _ := slices.BinarySearch(falls, f)
			p := &h.busiest[at]
			if v := p.cost + k.cost; v < best.cost {
				best = pick{cost: v, to: to, used: p.used, isBusiest: true, chain: k.chain, d: k.d}
			}
		}
	}
	return best
}

// at is the cost of a chain of d stages from a layer on; +Inf: there is none.
func at(c *chain, d, from int) float64 {
	if d >= len(c.cost) {
		return math.Inf(1)
	}
	return c.cost[d][from]
}

// head is the cheapest way to run the first layers as the first stage, before the busiest or itself the busiest. What comes once
// in the first stage follows all its passes, while other stages' overlaps the last passes of those before them.
//
// As the busiest it takes M v and what comes once, of which the bound has M low already; but for the idle time, which falls with v, it has
// low as well, so that seconds may be too many: by how fast it falls.
type head struct {
	before, last part // the last before the busiest is directly before it
	busiest      []part
}

// falls are how fast the idle time of the busiest stage may fall with its time, rising to the most.
func (o *interval) falls(stages int) (all []float64) {
	most := max(min(float64(stages), o.micro-2), (o.micro-1)/2)
	for f := 0.0; ; f = max(1, 2*f) {
		if f >= most {
			return append(all, most)
		}
		all = append(all, f)
	}
}

func (b *bounder) head(o *interval, all *ways, falls, prices []float64) *head {
	n := len(prices)
	x := &head{busiest: make([]part, len(falls))}
	used := make([]float64, n*(2+len(falls)))
	for i, p := range x.parts() {
		*p = part{math.Inf(1), used[i*n : (i+1)*n]}
	}
	before, last, busy, later := o.head()
	for k := range all.pure {
		w := &all.pure[k]
		devices := prices[w.class] * w.devices
		x.before.lower(devices+before(w), w.class, w.devices)
		x.last.lower(devices+last(w), w.class, w.devices)
		if o.busy(w) >= o.least() {
			for i, f := range falls {
				x.busiest[i].lower(devices+later(w.busy, f), w.class, w.devices)
			}
		}
	}
	least, _ := all.sending()
	for i, cost := range o.apart() {
		p, sent := x.parts()[i], least*float64(1-i)/2
		b.share(o, b.sorted(all, i, cost), cost, prices, func(cost, forward, _, devices float64, used []float64) {
			p.take(devices+cost+o.overlap*(forward+sent), used)
		})
	}
	b.share(o, b.sorted(all, 2, busy), busy, prices, func(seconds, _, busy, devices float64, used []float64) {
		if busy < o.least() {
			return
		}
		for i, f := range falls {
			x.busiest[i].take(devices+later(seconds, f), used)
		}
	})
	return x
}

// first is what the first stage takes of a micro-batch and of what comes once, at least, where it is not the busiest.
func (o *interval) first(w *way) float64 {
	if o.assigned {
		return max(w.step, w.first)
	}
	return max(w.step, w.first, w.busy-(o.micro-1)*o.high)
}

// head are the costs of a way as the first stage: before the busiest and directly before it; how busy it is, and what this costs where it is
// the busiest.
func (o *interval) head() (before, last, busy func(*way) float64, later func(busy, falls float64) float64) {
	before = func(w *way) float64 { return (1-o.overlap)*o.first(w) + o.overlap*(w.forward+w.send/2) }
	last = func(w *way) float64 { return before(w) - o.sent()*w.send }
	busy = func(w *way) float64 { return w.busy }
	later = func(busy, falls float64) float64 {
		if later := max(0, busy-o.micro*o.low); o.assigned {
			return later * (1 - falls/o.micro)
		}
		return max(0, busy-o.micro*o.low-falls*(o.high-o.low))
	}
	return before, last, busy, later
}

func (x *head) parts() []*part {
	all := []*part{&x.before, &x.last}
	for i := range x.busiest {
		all = append(all, &x.busiest[i])
	}
	return all
}

// sent is how much of its sending does not count for a stage directly before the busiest, for which it counts as received.
func (o *interval) sent() float64 { return 1 - o.overlap/2 }

// least is the least time of an iteration that the busiest stage's way takes.
func (o *interval) least() float64 {
	if !o.assigned {
		return 0
	}
	return o.low * o.micro * (1 - 1e-12)
}
