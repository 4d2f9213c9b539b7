package costmodel

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
	least, most := math.Inf(1), 0.0 // sending
	for _, m := range all.mixed {
		for k := range m {
			least, most = min(least, m[k].send), max(most, m[k].send)
		}
	}
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

// share goes through the times that a stage of several classes may take, and for each through the cheapest devices for it: each class
// takes samples until it has no more devices, the class whose devices for a sample cost least first; two classes have a replica or more.
func (b *bounder) share(o *interval, mixed [][]way, seconds func(*way) float64, prices []float64, found func(seconds, forward, busy, devices float64, used []float64)) {
	if !slices.ContainsFunc(mixed, func(m []way) bool { return len(m) > 0 }) {
		return
	}
	next := make([]int, len(mixed)) // of each class
	need, replica := slices.Repeat([]float64{math.Inf(1)}, len(mixed)), slices.Repeat([]float64{math.Inf(1)}, len(mixed))
	used := make([]float64, len(mixed))
	forward, busy := math.Inf(1), 0.0 // the least, and the most
	for {
		s := math.Inf(1)
		for class, k := range next {
			if k < len(mixed[class]) {
				s = min(s, seconds(&mixed[class][k]))
			}
		}
		if math.IsInf(s, 1) {
			return
		}
		for class := range next {
			for ; next[class] < len(mixed[class]) && seconds(&mixed[class][next[class]]) <= s; next[class]++ {
				w := &mixed[class][next[class]]
				need[class], replica[class], forward = min(need[class], w.devices), min(replica[class], w.replica), min(forward, w.forward)
				busy = max(busy, o.busy(w))
			}
		}
		b.left -= len(mixed)
		b.pairs(need, replica, prices, used, func(cost float64) { found(s, forward, busy, cost, used) })
	}
}

// pairs goes through the classes of which a stage has a replica at least, two of them, and fills it up from the cheapest class for a
// sample on.
func (b *bounder) pairs(need, replica, prices, used []float64, found func(cost float64)) {
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
					if !math.IsInf(n, 1) && used[class] < float64(b.topology.Classes[class].Count) && (cheapest < 0 || prices[class]*n < prices[cheapest]*need[cheapest]) {
						cheapest = class
					}
				}
				if cheapest < 0 {
					break
				}
				more := min(left*need[cheapest], float64(b.topology.Classes[cheapest].Count)-used[cheapest])
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
	for c, k := range b.topology.Classes {
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

func add(sum, more []float64) {
	for i, v := range more {
		sum[i] += v
	}
}
