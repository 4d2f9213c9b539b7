package planner_test

import (
	"math"
	"slices"
)

// brute tries every plan that plan check accepts of a small job, by 1F1B, priced by the twin: every micro-batch, every cut into stages, every
// choice of devices, tensor degrees, shares and strategies of layers. It leaves out only what cannot be quicker than limit, and of a stage on
// the same devices the strategies whose passes, and what comes once after them, all take longer than by others.
type brute struct {
	*twinCase
	micro  int // micro-batches
	limit  float64
	best   *twinPlan
	free   []uint // devices of each class, a bit each
	behind []bruteStage
	least  []float64 // seconds of a micro-batch of the layers before
	known  map[bruteKey][]bruteTimes
	tried  int // iterations simulated
}

type bruteStage struct {
	twinStage
	bruteTimes
	send float64
}

// bruteTimes are those of a stage: a forward and a backward pass, and what comes once.
type bruteTimes struct {
	forward, backward, once float64
	strategies              []twinStrategy
}

// bruteKey is what the times of a stage depend on.
type bruteKey struct {
	from, to, behind, samples int
	groups                    [3]struct{ class, count, tensor, share, machines, most, first int } // first of its machine, where it matters
}

// quickest is the least simulated time of a plan below limit; best is nil where there is none.
func (c *twinCase) quickest(limit float64) *brute {
	b := &brute{twinCase: c, limit: limit}
	c.seen = map[string]int{}
	batch, cluster := c.Plan.GlobalBatch, c.Cluster
	for _, s := range c.spreadsOf() {
		c.Plan = twinPlan{GlobalBatch: batch, Context: s.Context, Experts: s.Experts}
		c.Cluster = c.inUnits().Cluster
		for i := range c.Cluster.Classes {
			if k := &c.Cluster.Classes[i]; s.Context > 0 && cluster.Classes[i].PerMachine%s.Context != 0 {
				k.Count = 0 // its machines have no units
			}
		}
		b.micros()
		c.Cluster = cluster
	}
	c.Plan = twinPlan{GlobalBatch: batch}
	return b
}

// micros tries every micro-batch.
func (b *brute) micros() {
	c := b.twinCase
	batch, of := c.Plan.GlobalBatch, c.Plan
	for micro := 1; micro <= batch; micro++ {
		if batch%micro != 0 {
			continue
		}
		c.Plan = twinPlan{GlobalBatch: batch, MicroBatch: micro, Context: of.Context, Experts: of.Experts}
		b.micro, b.known, b.behind, b.free = batch/micro, map[bruteKey][]bruteTimes{}, nil, nil
		for _, k := range c.Cluster.Classes {
			b.free = append(b.free, 1<<k.Count-1)
		}
		b.least = []float64{0}
		for l := range c.Layers {
			b.least = append(b.least, b.least[l]+b.leastStep(l))
		}
		b.before(len(c.Layers), 0)
	}
}

// leastStep is the least that a layer takes of a micro-batch anywhere.
func (b *brute) leastStep(l int) float64 {
	least := math.Inf(1)
	for key := range b.Layers[l].Runs {
		k := &b.Cluster.Classes[key.Class]
		for share := 1; share <= b.Plan.MicroBatch; share++ {
			if r, ok := b.Layers[l].run(key, share); ok && share*6 >= b.Plan.MicroBatch {
				least = min(least, (r.Forward+r.Backward)*k.Slow/b.context())
			}
		}
	}
	return least
}

// before puts every stage before those chosen, which begin with layer to and take so many seconds for a micro-batch one after the other.
func (b *brute) before(to int, sum float64) {
	if to == 0 {
		b.simulate()
		return
	}
	b.groups(0, nil, func(groups []twinGroup) {
		s := bruteStage{twinStage: twinStage{To: to, Groups: groups}}
		if len(b.behind) > 0 {
			last := b.behind[len(b.behind)-1]
			b.Plan.Stages = []twinStage{{From: to - 1, To: to, Groups: groups}, last.twinStage}
			s.send = b.send(0)
		}
		for s.From = to - 1; s.From >= 0; s.From-- {
			rest := b.least[s.From]
			step := b.least[to] - rest + s.send
			if sum+step+rest >= b.limit || float64(b.micro)*step+rest >= b.limit {
				break
			}
			for _, t := range b.times(&s.twinStage, len(b.behind)+1) {
				step := t.forward + t.backward + s.send
				if sum+step+rest >= b.limit || float64(b.micro)*step+max(rest, t.once) >= b.limit {
					continue
				}
				s.bruteTimes = t
				b.behind = append(b.behind, s)
				b.before(s.From, sum+step)
				b.behind = b.behind[:len(b.behind)-1]
			}
		}
	})
}

// groups goes through all groups of a stage on free devices, of this class and those after it, with every largest share of each.
func (b *brute) groups(class int, chosen []twinGroup, found func([]twinGroup)) {
	if class == len(b.free) {
		if len(chosen) == 1 || len(chosen) > 1 && !slices.ContainsFunc(chosen, b.wide) {
			b.shares(chosen, 0, found)
		}
		return
	}
	b.groups(class+1, chosen, found)
	k := &b.Cluster.Classes[class]
	for first := range k.Count {
		for count := 1; first+count <= k.Count; count++ {
			mask := uint(1<<count-1) << first
			if b.free[class]&mask != mask {
				break
			}
			b.free[class] &^= mask
			for t := 1; t <= count; t++ {
				if g := (twinGroup{Class: class, First: first, Count: count, Tensor: t}); count%t == 0 && b.within(g, t) && (!b.wide(g) || b.measured(g)) {
					b.groups(class+1, append(chosen, g), found)
				}
			}
			b.free[class] |= mask
		}
	}
}

// within says whether every replica of a degree lies within a machine, or takes whole machines.
func (b *brute) within(g twinGroup, t int) bool {
	per := b.Cluster.Classes[g.Class].PerMachine
	if t > per {
		return b.Plan.Context <= 1 && t%per == 0 && g.First%per == 0
	}
	for d := g.First; d < g.First+g.Count; d += t {
		if d/per != (d+t-1)/per {
			return false
		}
	}
	return true
}

// shares goes through the largest shares that groups may have. Nothing depends on the other shares.
func (b *brute) shares(groups []twinGroup, i int, found func([]twinGroup)) {
	least, most := 0, 0
	for k := range groups {
		g := &groups[k]
		n := g.Count / g.Tensor
		if k < i {
			least, most = least+g.Shares[0]+n-1, most+g.Shares[0]*n
		} else {
			least, most = least+n, most+b.Plan.MicroBatch*n
		}
	}
	switch {
	case least > b.Plan.MicroBatch || most < b.Plan.MicroBatch:
	case i == len(groups):
		found(b.dealt(groups, least))
	default:
		for share := 1; share <= b.Plan.MicroBatch; share++ {
			g := &groups[i]
			g.Shares = slices.Repeat([]int{1}, g.Count/g.Tensor)
			g.Shares[0] = share
			b.shares(groups, i+1, found)
		}
	}
}

// dealt is the groups with samples dealt to the replicas that have one, until there are enough.
func (b *brute) dealt(groups []twinGroup, samples int) []twinGroup {
	groups = slices.Clone(groups)
	for i := range groups {
		g := &groups[i]
		g.Shares = slices.Clone(g.Shares)
		for k := 1; k < len(g.Shares); k++ {
			for ; g.Shares[k] < g.Shares[0] && samples < b.Plan.MicroBatch; samples++ {
				g.Shares[k]++
			}
		}
	}
	return groups
}

// times are those of a stage by strategies that fit memory, of which none is at least as short in all three as another.
func (b *brute) times(s *twinStage, behind int) []bruteTimes {
	key := bruteKey{from: s.From, to: s.To, behind: min(behind, b.micro), samples: b.Plan.MicroBatch}
	for i := range s.Groups {
		g := &s.Groups[i]
		k := &key.groups[i]
		k.machines, k.most = b.Cluster.place(g)
		if b.Plan.Experts > 1 {
			k.first = g.First % b.Cluster.Classes[g.Class].PerMachine
		}
		k.class, k.count, k.tensor, k.share = g.Class+1, g.Count, g.Tensor, slices.Max(g.Shares)
	}
	if all, ok := b.known[key]; ok {
		return all
	}
	w := &bruteLayers{brute: b, stage: s, flight: float64(key.behind)}
	w.sums = make([]twinLayerPrice, len(s.Groups))
	for l := s.From; l < s.To; l++ {
		w.options = append(w.options, b.options(s, l))
	}
	w.next(s.From)
	b.known[key] = w.found
	return w.found
}

// bruteOption is a layer's strategy with its price on each group.
type bruteOption struct {
	twinStrategy
	prices []twinLayerPrice
}

// options are all strategies of a layer. On one group those are left out that another of the same degree is at least as good as in everything.
func (b *brute) options(s *twinStage, l int) (all []bruteOption) {
	degrees := []int{0}
	if len(s.Groups) == 1 {
		g := s.Groups[0]
		for t := 1; t <= g.Count; t++ {
			if g.Count%t == 0 && (b.Cluster.Classes[g.Class].PerMachine%t == 0 || t > b.Cluster.Classes[g.Class].PerMachine) && b.within(g, t) {
				degrees = append(degrees, t)
			}
		}
	}
	one := twinStage{From: l, To: l + 1, Groups: s.Groups, alone: s.From == 0 && s.To == len(b.Layers)}
	for _, t := range degrees {
		var same []bruteOption
	next:
		for _, sharding := range []string{"none", "optimizer", "gradients", "full"} {
			for _, recompute := range []string{"", "selective", "all"} {
				if recompute == "selective" && !b.selects {
					continue
				}
				o := bruteOption{twinStrategy: twinStrategy{t, sharding, recompute == "all", recompute == "selective"}}
				one.Strategies = []twinStrategy{o.twinStrategy}
				if b.divides(&b.Layers[l]) && b.blocks(&one, o.twinStrategy) != "" {
					continue next
				}
				for g := range s.Groups {
					p, ok := b.layer(&one, &s.Groups[g], l)
					if !ok {
						continue next
					}
					o.prices = append(o.prices, p)
				}
				worse := func(x, y bruteOption) bool {
					p, q := &x.prices[0], &y.prices[0]
					return len(x.prices) == 1 && p.ahead() >= q.ahead() && p.back() >= q.back() && p.once() >= q.once() && p.states >= q.states && p.kept >= q.kept && p.working >= q.working
				}
				if !slices.ContainsFunc(same, func(x bruteOption) bool { return worse(o, x) }) {
					same = append(slices.DeleteFunc(same, func(x bruteOption) bool { return worse(x, o) }), o)
				}
			}
		}
		all = append(all, same...)
	}
	return all
}

func (p *twinPrice) ahead() float64 { return p.Forward + p.gatherForward }
func (p *twinPrice) back() float64  { return p.Backward + p.Again + p.gatherBackward }

// bruteLayers goes through the strategies of a stage's layers.
type bruteLayers struct {
	*brute
	stage   *twinStage
	flight  float64
	options [][]bruteOption
	chosen  []twinStrategy
	sums    []twinLayerPrice
	convert float64
	found   []bruteTimes
}

func (w *bruteLayers) next(l int) {
	if l == w.stage.To {
		w.add()
		return
	}
	before := slices.Clone(w.sums)
	convert := w.convert
options:
	for _, o := range w.options[l-w.stage.From] {
		copy(w.sums, before)
		w.convert = convert
		if n := len(w.chosen); n > 0 && w.chosen[n-1].Tensor != o.Tensor {
			w.convert += w.brute.convert(&twinStage{From: l - 1, To: l + 1, Groups: w.stage.Groups, Strategies: []twinStrategy{w.chosen[n-1], o.twinStrategy}})
		}
		for g := range w.sums {
			sum, p := &w.sums[g], &o.prices[g]
			sum.add(&p.twinPrice)
			sum.states += p.states
			sum.kept += p.kept
			sum.working = max(sum.working, p.working)
			class := &w.Cluster.Classes[w.stage.Groups[g].Class]
			if sum.states+w.flight*sum.kept+sum.working+w.Options.Reserve+w.Options.beside(class.Memory) > w.Options.Memory*class.Memory/(1+w.Options.Margin) ||
				float64(w.micro)*(sum.pass()+w.convert)+sum.once() >= w.limit {
				continue options
			}
		}
		w.chosen = append(w.chosen, o.twinStrategy)
		w.next(l + 1)
		w.chosen = w.chosen[:len(w.chosen)-1]
	}
	copy(w.sums, before)
	w.convert = convert
}

// add keeps the times of the chosen strategies, unless others are as good.
func (w *bruteLayers) add() {
	slow, once := &w.sums[0], &w.sums[0]
	for g := range w.sums {
		if w.sums[g].pass() > slow.pass() {
			slow = &w.sums[g]
		}
		if w.sums[g].once() > once.once() {
			once = &w.sums[g]
		}
	}
	t := bruteTimes{forward: slow.ahead() + w.convert/2, backward: slow.back() + w.convert/2, once: once.once()}
	worse := func(x, y bruteTimes) bool {
		return x.forward >= y.forward && x.backward >= y.backward && x.once >= y.once
	}
	if slices.ContainsFunc(w.found, func(x bruteTimes) bool { return worse(t, x) }) {
		return
	}
	t.strategies = slices.Clone(w.chosen)
	w.found = append(slices.DeleteFunc(w.found, func(x bruteTimes) bool { return worse(x, t) }), t)
}
