package bound

import (
	"math"
	"slices"
)

// priced is the least cost of something at given prices of devices, and the devices of each class that it uses. A cost is in
// seconds: time of the iteration plus the price of the devices.
type priced struct {
	cost float64
	used []float64
}

func (p *priced) reset() {
	p.cost = math.Inf(1)
	clear(p.used)
}

// lower takes a cost on devices of one class if it is less.
func (p *priced) lower(cost float64, class int, devices float64) {
	if cost < p.cost {
		p.reset()
		p.cost, p.used[class] = cost, devices
	}
}

// take takes a cost on devices of several classes if it is less.
func (p *priced) take(cost float64, used []float64) {
	if cost < p.cost {
		p.cost = cost
		copy(p.used, used)
	}
}

// places are the least costs of some layers as a stage, by its position relative to the busiest stage. With M micro-batches,
// the bound of a plan is M low, plus the price of its devices, plus:
//
//   - for each stage after the busiest: its part of the time for which the busiest waits. The busiest stage waits for all
//     stages after it twice: between its first forward and its first backward pass, and between its last ones. With d stages
//     after it, it runs d passes in each of these times. So each stage after it adds twice its step minus v (twice). With
//     more than M - 2 stages after it, the two waits overlap: each stage adds its step, and (M - 1) v / 2 is subtracted once
//     (once). A wait is never negative, so it may also be left out (none);
//   - for each stage before the busiest: its step, which delays the start and the end of the busiest (before); for the weight
//     y only its forward pass. The stage directly before it counts without sending (last), as the busiest counts that as
//     receiving;
//   - for the busiest stage: nothing else (busiest).
type places struct{ twice, once, none, before, last, busiest priced }

func (x *places) all() [6]*priced {
	return [...]*priced{&x.twice, &x.once, &x.none, &x.before, &x.last, &x.busiest}
}

// cheapest are the places of all runs of layers at some prices, by first layer and number of layers minus 1; nil: no option.
func (b *bounder) cheapest(o *interval, prices []float64) [][]*places {
	runs := make([][]*places, len(o.runs))
	b.round++
	for from, all := range o.runs {
		runs[from] = make([]*places, len(all))
		for i, w := range all {
			if w == nil {
				continue
			}
			if w.round != b.round { // runs of layers that cost the same share their options
				b.price(o, w, prices)
				w.round = b.round
			}
			runs[from][i] = w.cheapest
		}
	}
	return runs
}

// price fills the places of a run's options.
func (b *bounder) price(o *interval, w *options, prices []float64) {
	if w.cheapest == nil {
		w.cheapest = &places{}
		for _, p := range w.cheapest.all() {
			p.used = make([]float64, len(prices))
		}
	}
	x := w.cheapest
	for _, p := range x.all() {
		p.reset()
	}
	b.left -= len(w.pure)
	for k := range w.pure {
		w := &w.pure[k]
		devices := prices[w.class] * w.devices
		x.twice.lower(devices+2*w.step-o.pass(), w.class, w.devices)
		x.once.lower(devices+w.step, w.class, w.devices)
		x.none.lower(devices, w.class, w.devices)
		before := devices + (1-o.once)*w.step + o.once*(w.forward+w.send/2)
		x.before.lower(before, w.class, w.devices)
		x.last.lower(before-o.sent()*w.send, w.class, w.devices)
		if o.busy(w) >= o.least() {
			x.busiest.lower(devices, w.class, w.devices)
		}
	}
	least, most := w.sending()
	b.mixes(o, w.mixed, func(w *option) float64 { return w.step }, prices, func(m mix, devices float64, used []float64) {
		x.twice.take(devices+2*m.seconds-o.pass(), used)
		x.once.take(devices+m.seconds, used)
		x.none.take(devices, used)
		before := devices + (1-o.once)*m.seconds + o.once*m.forward + o.once*least/2
		x.before.take(before, used)
		x.last.take(before-min(o.sent()*most, (1-o.once)*m.seconds+o.once*least/2), used)
		if m.busy >= o.least() {
			x.busiest.take(devices, used)
		}
	})
}

// firstPlaces are the least costs of some layers as the first stage: before the busiest, directly before it, and as the
// busiest. The first stage does its exchange and update after all its passes; those of other stages overlap with the last
// passes of the stages before them.
//
// As the busiest, it is busy for x seconds more than M low. Then v may be larger than low by up to x / M, and the wait, which
// was computed with low, may be shorter by up to x falls / M. falls depends on the number of stages after it, so there is a
// cost for each of some values of falls.
func (b *bounder) firstPlaces(o *interval, w *options, falls, prices []float64) (before, last priced, busiest []priced) {
	none := func() priced { return priced{math.Inf(1), make([]float64, len(prices))} }
	before, last = none(), none()
	for range falls {
		busiest = append(busiest, none())
	}
	both := func(w *option) float64 { return max(w.step, w.first) }
	more := func(busy, falls float64) float64 { return max(0, busy-o.micro*o.low) * (1 - falls/o.micro) }
	for k := range w.pure {
		w := &w.pure[k]
		devices := prices[w.class] * w.devices
		cost := devices + (1-o.once)*both(w) + o.once*(w.forward+w.send/2)
		before.lower(cost, w.class, w.devices)
		last.lower(cost-o.sent()*w.send, w.class, w.devices)
		if o.busy(w) >= o.least() {
			for i, f := range falls {
				busiest[i].lower(devices+more(w.busy, f), w.class, w.devices)
			}
		}
	}
	// The class with the longest step decides the forward pass of a stage of several classes. That need not be the longest one.
	least, _ := w.sending()
	cost := func(w *option) float64 { return (1 - o.once) * both(w) }
	b.mixes(o, w.mixedBy(0, cost), cost, prices, func(m mix, devices float64, used []float64) {
		before.take(devices+m.seconds+o.once*(m.forward+least/2), used)
	})
	cost = func(w *option) float64 { return (1 - o.once) * (both(w) - w.send) }
	b.mixes(o, w.mixedBy(1, cost), cost, prices, func(m mix, devices float64, used []float64) {
		last.take(devices+m.seconds+o.once*m.forward, used)
	})
	cost = func(w *option) float64 { return w.busy }
	b.mixes(o, w.mixedBy(2, cost), cost, prices, func(m mix, devices float64, used []float64) {
		for i, f := range falls {
			if m.busy >= o.least() {
				busiest[i].take(devices+more(m.seconds, f), used)
			}
		}
	})
	return before, last, busiest
}

// chain is the least cost of the stages from a layer to the end, by number of stages and layer, all in the same place.
type chain struct {
	place func(*places) *priced
	cost  [][]float64
}

// chain adds stages, at most the given number, as long as one more is possible.
func (b *bounder) chain(runs [][]*places, most int, place func(*places) *priced) chain {
	n := len(runs)
	stage := make([][]float64, n) // by first layer and number of layers minus 1
	for from, all := range runs {
		for _, x := range all {
			cost := math.Inf(1)
			if x != nil {
				cost = place(x).cost
			}
			stage[from] = append(stage[from], cost)
		}
		for k := len(stage[from]); k > 0 && math.IsInf(stage[from][k-1], 1); k-- {
			stage[from] = stage[from][:k-1]
		}
	}
	c := chain{place, [][]float64{slices.Repeat([]float64{math.Inf(1)}, n+1)}}
	c.cost[0][n] = 0
	for d := 1; d <= most; d++ {
		before, now, some := c.cost[d-1], slices.Repeat([]float64{math.Inf(1)}, n+1), false
		for from := n - d; from >= 0; from-- {
			least, row := math.Inf(1), stage[from][:min(len(stage[from]), n-d-from+1)] // every stage after this one needs a layer
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

// at is the cost of d stages from a layer on; +Inf: there are none.
func (c *chain) at(d, from int) float64 {
	if d >= len(c.cost) {
		return math.Inf(1)
	}
	return c.cost[d][from]
}

// use adds the devices of the d cheapest stages from a layer on.
func (c *chain) use(runs [][]*places, d, from int, used []float64) {
	for ; d > 0; d-- {
		for i, x := range runs[from] {
			if x == nil {
				continue
			}
			if p := c.place(x); p.cost+c.cost[d-1][from+1+i] == c.cost[d][from] {
				add(used, p.used)
				from += 1 + i
				break
			}
		}
	}
}

// behind is the cheapest chain of d stages after the busiest.
type behind struct {
	cost  float64
	chain *chain
	d     int
}

// waits are the chains of the stages after the busiest: without its wait, and with its wait for up to micro - 2 stages (few)
// or more (many).
type waits struct {
	*interval
	none, few, many chain
}

func (b *bounder) waits(o *interval, runs [][]*places, most int) *waits {
	c := &waits{interval: o, none: b.chain(runs, most, func(x *places) *priced { return &x.none })}
	c.few, c.many = c.none, c.none
	if o.micro > 2 {
		c.few = b.chain(runs, min(most, int(o.micro)-2), func(x *places) *priced { return &x.twice })
	}
	if int(o.micro)-1 <= most {
		c.many = b.chain(runs, most, func(x *places) *priced { return &x.once })
	}
	return c
}

// falls is the rate at which the wait for d stages falls when v rises.
func (c *waits) falls(d int) float64 {
	if float64(d) <= c.micro-2 {
		return float64(d)
	}
	return (c.micro - 1) / 2
}

// after is d stages after the busiest, from a layer on.
func (c *waits) after(d, from int) behind {
	x, wait, less := behind{c.none.cost[d][from], &c.none, d}, &c.few, 0.0
	if float64(d) > c.micro-2 {
		wait, less = &c.many, c.falls(d)*c.pass()
	}
	if v := wait.at(d, from) - less; v > x.cost {
		x.cost, x.chain = v, wait
	}
	return x
}

// stage is the stage that begins with a given layer, and the cost from there to the end.
type stage struct {
	cost      float64
	to        int // the layer after its last
	used      []float64
	isLast    bool // directly before the busiest
	isBusiest bool // followed by behind
	behind    behind
}

// value is the bound of an interval at some prices of devices, and the devices of each class that the cheapest plan takes.
func (b *bounder) value(o *interval, prices []float64) (float64, []float64) {
	n := len(o.runs)
	runs := b.cheapest(o, prices)
	most := min(b.Count(), len(b.layers), b.options.MostStages, n) - 1 // stages besides the busiest
	c := b.waits(o, runs, most)
	cheapest := make([]behind, n+1) // any number of stages after the busiest, by layer
	for from := range cheapest {
		cheapest[from].cost = math.Inf(1)
		for d := range c.none.cost {
			if x := c.after(d, from); x.cost < cheapest[from].cost {
				cheapest[from] = x
			}
		}
	}
	whole, busiest := make([]stage, n+1), make([]stage, n+1) // from a stage before the busiest on, and from the busiest on
	whole[n].cost, busiest[n].cost = math.Inf(1), math.Inf(1)
	lower := func(at *stage, x stage) {
		if x.cost < at.cost {
			*at = x
		}
	}
	for from := n - 1; from > 0; from-- {
		whole[from].cost, busiest[from].cost = math.Inf(1), math.Inf(1)
		for i, x := range runs[from] {
			if x == nil {
				continue
			}
			to := from + 1 + i
			lower(&busiest[from], stage{cost: x.busiest.cost + cheapest[to].cost, to: to, used: x.busiest.used, isBusiest: true, behind: cheapest[to]})
			lower(&whole[from], stage{cost: x.before.cost + whole[to].cost, to: to, used: x.before.used})
			lower(&whole[from], stage{cost: x.last.cost + busiest[to].cost, to: to, used: x.last.used, isLast: true})
		}
	}
	// The wait of the busiest stage falls at one of these rates, or more slowly.
	falls, mostFalls := []float64{0}, max(min(float64(most), o.micro-2), (o.micro-1)/2)
	for f := 1.0; f < mostFalls; f *= 2 {
		falls = append(falls, f)
	}
	falls = append(falls, mostFalls)
	whole[0].cost = math.Inf(1)
	for i, w := range o.runs[0] {
		if w == nil {
			continue
		}
		to := 1 + i
		before, last, first := b.firstPlaces(o, w, falls, prices)
		lower(&whole[0], stage{cost: before.cost + whole[to].cost, to: to, used: before.used})
		lower(&whole[0], stage{cost: last.cost + busiest[to].cost, to: to, used: last.used, isLast: true})
		for d := range c.none.cost {
			x, at := c.after(d, to), 0
			for falls[at] < c.falls(d) {
				at++
			}
			lower(&whole[0], stage{cost: first[at].cost + x.cost, to: to, used: first[at].used, isBusiest: true, behind: x})
		}
	}
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
			x.behind.chain.use(runs, x.behind.d, from, used)
			break
		}
	}
	for c := range b.classes {
		value -= prices[c] * b.count(c)
	}
	return value, used
}

func add(sum, more []float64) {
	for i, v := range more {
		sum[i] += v
	}
}
