package costmodel

import (
	"cmp"
	"math"
	"slices"
)

// least are the cheapest ways to run some layers as a stage, by its place: after the busiest, with twice its step or once, only
// with its devices, and before the busiest.
type least struct{ twice, step, devices, before part }

func (x *least) parts() [4]*part { return [...]*part{&x.twice, &x.step, &x.devices, &x.before} }

type part struct {
	cost float64
	used []float64 // devices of each class
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

// head is the cheapest way to run the first layers as the first stage, before the busiest or itself the busiest. What comes once
// in the first stage follows all its passes, while other stages' overlaps the last passes of those before them.
type head struct{ before, busiest part }

func (b *bounder) head(o *interval, all *ways, prices []float64) *head {
	n := len(prices)
	used := make([]float64, 2*n)
	x := &head{part{math.Inf(1), used[:n]}, part{math.Inf(1), used[n:]}}
	for i, p := range []struct {
		*part
		cost func(w *way) float64
	}{
		{&x.before, func(w *way) float64 {
			return (1-o.overlap)*max(w.step, w.first, w.busy-(o.micro-1)*o.high) + o.overlap*w.forward
		}},
		{&x.busiest, func(w *way) float64 { return max(0, w.busy-o.micro*o.low) }},
	} {
		for k := range all.pure {
			w := &all.pure[k]
			p.lower(prices[w.class]*w.devices+p.cost(w), w.class, w.devices)
		}
		if len(all.sorted) <= i { // by a cost that prices do not change
			sorted := make([][]way, len(all.mixed))
			for class, m := range all.mixed {
				sorted[class] = slices.Clone(m)
				slices.SortStableFunc(sorted[class], func(x, y way) int { return cmp.Compare(p.cost(&x), p.cost(&y)) })
			}
			all.sorted = append(all.sorted, sorted)
		}
		b.share(all.sorted[i], p.cost, prices, func(cost, _, devices float64, used []float64) {
			if devices+cost < p.part.cost {
				p.part.cost = devices + cost
				copy(p.used, used)
			}
		})
	}
	return x
}

func (b *bounder) least(o *interval, all *ways, prices []float64) {
	n := len(prices)
	if all.least == nil {
		all.least = &least{}
		used := make([]float64, 4*n)
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
		x.twice.lower(devices+2*w.step-o.low, w.class, w.devices)
		x.step.lower(devices+w.step, w.class, w.devices)
		x.devices.lower(devices, w.class, w.devices)
		x.before.lower(devices+(1-o.overlap)*w.step+o.overlap*w.forward, w.class, w.devices)
	}
	b.share(all.mixed, func(w *way) float64 { return w.step }, prices, func(step, forward, devices float64, used []float64) {
		costs := [...]float64{devices + 2*step - o.low, devices + step, devices, devices + (1-o.overlap)*step + o.overlap*forward}
		for i, p := range x.parts() {
			if costs[i] < p.cost {
				p.cost = costs[i]
				copy(p.used, used)
			}
		}
	})
}

// share goes through the times that a stage of several classes may take, and for each through the cheapest devices for it: each class
// takes samples until it has no more devices, the class whose devices for a sample cost least first.
func (b *bounder) share(mixed [][]way, seconds func(*way) float64, prices []float64, found func(seconds, forward, devices float64, used []float64)) {
	if !slices.ContainsFunc(mixed, func(m []way) bool { return len(m) > 0 }) {
		return
	}
	next := make([]int, len(mixed)) // of each class
	need := slices.Repeat([]float64{math.Inf(1)}, len(mixed))
	used := make([]float64, len(mixed))
	forward := math.Inf(1)
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
				need[class], forward = min(need[class], w.devices), min(forward, w.forward)
			}
		}
		b.left -= len(mixed)
		clear(used)
		left, cost := 1.0, 0.0
		for left > 1e-12 {
			cheapest := -1
			for class, n := range need {
				if used[class] == 0 && !math.IsInf(n, 1) && (cheapest < 0 || prices[class]*n < prices[cheapest]*need[cheapest]) {
					cheapest = class
				}
			}
			if cheapest < 0 {
				break
			}
			share := min(left, float64(b.topology.Classes[cheapest].Count)/need[cheapest])
			used[cheapest] = share * need[cheapest]
			cost += prices[cheapest] * used[cheapest]
			left -= share
		}
		if left <= 1e-12 {
			found(s, forward, cost, used)
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
			least, rest := math.Inf(1), before[from+1:]
			for i, v := range stage[from] {
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

// value is the bound at prices of devices, and the devices of each class that the cheapest stages take.
func (b *bounder) value(o *interval, prices []float64) (float64, []float64) {
	n := len(o.runs)
	runs := b.leasts(o, prices)
	most := min(b.stages(), n) - 1
	chains := []chain{b.chain(runs, most, func(x *least) *part { return &x.devices })}
	if o.micro > 2 {
		chains = append(chains, b.chain(runs, min(most, int(o.micro)-2), func(x *least) *part { return &x.twice }))
	}
	few := len(chains) - 1 // the chain of stages that are fewer than the micro-batches
	if int(o.micro)-1 <= most {
		chains = append(chains, b.chain(runs, most, func(x *least) *part { return &x.step }))
	}
	type choice struct {
		cost      float64
		chain, d  int
		to        int
		used      []float64
		isBusiest bool
	}
	behind := make([]choice, n+1) // the stages after the busiest, of any number
	for from := range behind {
		behind[from].cost = math.Inf(1)
		for d := range chains[0].cost {
			x := choice{cost: chains[0].cost[d][from], d: d}
			switch {
			case float64(d) <= o.micro-2:
				if v := at(&chains[few], d, from); v > x.cost {
					x.cost, x.chain = v, few
				}
			default:
				if v := at(&chains[len(chains)-1], d, from) - (o.micro-1)/2*o.low; v > x.cost {
					x.cost, x.chain = v, len(chains)-1
				}
			}
			if x.cost < behind[from].cost {
				behind[from] = x
			}
		}
	}
	whole := make([]choice, n+1)
	whole[n].cost = math.Inf(1)
	for from := n - 1; from >= 0; from-- {
		whole[from].cost = math.Inf(1)
		for i, x := range runs[from] {
			if x == nil {
				continue
			}
			to := from + 1 + i
			first, busiest := &x.before, &x.devices
			if from == 0 {
				h := b.head(o, o.runs[0][i], prices)
				first, busiest = &h.before, &h.busiest
			}
			if v := busiest.cost + behind[to].cost; v < whole[from].cost {
				whole[from] = choice{cost: v, to: to, used: busiest.used, isBusiest: true}
			}
			if v := first.cost + whole[to].cost; v < whole[from].cost {
				whole[from] = choice{cost: v, to: to, used: first.used}
			}
		}
	}
	value, used := o.micro*o.low+whole[0].cost, make([]float64, len(prices))
	if math.IsInf(value, 1) {
		return value, used
	}
	for from := 0; from < n; {
		c := whole[from]
		add(used, c.used)
		from = c.to
		if c.isBusiest {
			k := behind[from]
			chains[k.chain].use(runs, k.d, from, used)
			break
		}
	}
	for c, k := range b.topology.Classes {
		value -= prices[c] * float64(k.Count)
	}
	return value, used
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
