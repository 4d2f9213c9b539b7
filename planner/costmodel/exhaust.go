package costmodel

import (
	"context"
	"math"
	"slices"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/planner/pipeline"
)

// Exhausted is the outcome of trying every plan of a small job.
type Exhausted struct {
	Stages     []Stage // of the quickest plan, first to last; nil: none is quicker than the limit
	MicroBatch int
	Seconds    float64 // of an iteration of it, simulated
	Complete   bool    // every plan was tried, or left out because it cannot be quicker
}

const (
	exhaustLayers  = 8       // at most
	exhaustDevices = 8       // of a class, at most
	exhaustWork    = 1 << 22 // steps
)

// exhaust is Exhaust for plans that hold shared parameters alike.
func (m *Model) exhaust(ctx context.Context, globalBatch int, limit float64) *Exhausted {
	e := &exhauster{Model: m, ctx: ctx, batch: globalBatch, left: exhaustWork, result: Exhausted{Seconds: limit}}
	for _, k := range m.topology.Classes {
		e.count += k.Count
	}
	if len(m.kindOf) > exhaustLayers || slices.ContainsFunc(m.topology.Classes, func(k cluster.Class) bool { return k.Count > exhaustDevices }) {
		return &e.result
	}
	for _, samples := range m.samples(globalBatch) {
		e.samples, e.micro, e.known, e.least = samples, globalBatch/samples, map[exhaustKey][]exhaustTimes{}, []float64{0}
		e.taken = make([]uint64, len(m.devices))
		for l := range m.kindOf {
			e.least = append(e.least, e.least[l]+e.leastStep(l))
		}
		e.before(len(m.kindOf), 0)
	}
	e.result.Complete = !e.ended()
	return &e.result
}

type exhauster struct {
	*Model
	ctx     context.Context
	batch   int
	count   int // devices
	left    int // steps
	result  Exhausted
	samples int // of a micro-batch
	micro   int // micro-batches
	taken   []uint64
	chosen  []exhaustStage // last to first
	least   []float64      // seconds of a micro-batch that the layers before take at least
	known   map[exhaustKey][]exhaustTimes
}

func (e *exhauster) ended() bool {
	return e.left <= 0 || e.left&0xfff == 0 && e.ctx.Err() != nil
}

type exhaustStage struct {
	Stage
	exhaustTimes
	send float64
}

// exhaustTimes are those of a stage by some strategies: of both passes, and what comes once.
type exhaustTimes struct {
	forward, backward, once float64
	strategies              []Strategy
}

// exhaustKey is what the times of a stage hang on.
type exhaustKey struct {
	content  int32
	inflight int
	groups   [MaxGroups]struct{ class, count, tensor, share, machines, most int }
}

// leastStep is the least that a layer takes of a micro-batch on any devices.
func (e *exhauster) leastStep(l int) float64 {
	least := math.Inf(1)
	share := (e.samples + e.count - 1) / e.count // of the replica with the most
	for class := range e.devices {
		for _, t := range e.anyTensors(l, class) {
			if r, ok := e.curve(l, class, t).At(share); ok {
				least = min(least, e.slow(class)*(r.Forward+r.Backward))
			}
		}
	}
	return least
}

// before puts every stage that may lead below the limit before the chosen ones, which begin with layer to and take so many seconds for a
// micro-batch one after the other.
func (e *exhauster) before(to int, sum float64) {
	if to == 0 {
		e.finish()
		return
	}
	if len(e.chosen) == e.options.MostStages {
		return
	}
	e.groups(0, nil, func(groups []Group) {
		s := exhaustStage{Stage: Stage{To: to, Groups: groups}}
		if n := len(e.chosen); n > 0 {
			next := &e.chosen[n-1].Stage
			machine := e.machine(&s.Stage)
			s.send = e.send(groups, to, classes(next), machine >= 0 && machine == e.machine(next))
		}
		for s.From = to - 1; s.From >= 0 && !e.ended(); s.From-- {
			rest := e.least[s.From]
			step := e.least[to] - rest + s.send
			if !e.may(sum, step, rest, 0) {
				break // nor with more layers
			}
			for _, t := range e.times(&s.Stage) {
				step := t.forward + t.backward + s.send
				if !e.may(sum, step, rest, t.once) {
					continue
				}
				s.exhaustTimes = t
				e.chosen = append(e.chosen, s)
				e.before(s.From, sum+step)
				e.chosen = e.chosen[:len(e.chosen)-1]
			}
		}
	})
}

// may says whether an iteration may be below the limit with stages that take a sum for a micro-batch, before them one that takes a step
// and what comes once, and before that layers that take rest. The first micro-batch goes forward, and the last goes back, through all stages alone.
func (e *exhauster) may(sum, step, rest, once float64) bool {
	return sum+step+rest < e.result.Seconds && float64(e.micro)*step+max(rest, once) < e.result.Seconds
}

// groups goes through all ways to choose groups of this class and those after it from the devices that are not taken, with every largest
// share.
func (e *exhauster) groups(class int, chosen []Group, found func([]Group)) {
	if class == len(e.devices) {
		if len(chosen) > 0 {
			e.shares(chosen, 0, found)
		}
		return
	}
	e.groups(class+1, chosen, found)
	k := &e.topology.Classes[class]
	for first := range k.Count {
		for n := 1; first+n <= k.Count && len(chosen) < MaxGroups; n++ {
			mask := (uint64(1)<<n - 1) << first
			if e.taken[class]&mask != 0 {
				break
			}
			if e.moved(class, first, n) {
				continue
			}
			e.taken[class] |= mask
			for t := 1; t <= min(n, k.PerMachine); t++ {
				if o := e.options.Tensors; n%t == 0 && within(first, n, t, k.PerMachine) && (len(o) == 0 || slices.Contains(o, t)) {
					e.groups(class+1, append(chosen, Group{Class: class, First: first, Replicas: n / t, Tensor: t}), found)
				}
			}
			e.taken[class] &^= mask
		}
	}
}

// moved says whether whole machines might as well be those at the beginning of the free ones before them: what comes later then has all
// the places that it would have had.
func (e *exhauster) moved(class, first, n int) bool {
	per, to := e.topology.Classes[class].PerMachine, first
	for to > 0 && e.taken[class]>>(to-1)&1 == 0 {
		to--
	}
	return to < first && to%per == 0 && first%per == 0 && n%per == 0
}

// shares goes through the largest shares of groups from the i-th on. Nothing hangs on the other shares.
func (e *exhauster) shares(groups []Group, i int, found func([]Group)) {
	least, most := 0, 0
	for k, g := range groups {
		if k < i {
			least, most = least+g.Shares[0]+g.Replicas-1, most+g.Shares[0]*g.Replicas
		} else {
			least, most = least+g.Replicas, most+e.samples*g.Replicas
		}
	}
	switch {
	case least > e.samples || most < e.samples:
	case i == len(groups):
		found(deal(groups, e.samples-least))
	default:
		for share := 1; share <= e.samples; share++ {
			groups[i].Shares = slices.Repeat([]int{1}, groups[i].Replicas)
			groups[i].Shares[0] = share
			e.shares(groups, i+1, found)
		}
	}
}

// deal is the groups with so many samples more, none of them above its group's first share.
func deal(groups []Group, samples int) []Group {
	groups = slices.Clone(groups)
	for i := range groups {
		shares := slices.Clone(groups[i].Shares)
		for k := 1; k < len(shares); k++ {
			more := min(samples, shares[0]-1)
			shares[k] += more
			samples -= more
		}
		groups[i].Shares = shares
	}
	return groups
}

// times are those of a stage by strategies that fit memory and may lead below the limit, no two of which one is better in all three.
func (e *exhauster) times(s *Stage) []exhaustTimes {
	k := exhaustKey{content: e.content(s.From, s.To), inflight: min(len(e.chosen)+1, e.micro)}
	for i, g := range s.Groups {
		o := &k.groups[i]
		o.machines, o.most = e.place(g)
		o.class, o.count, o.tensor, o.share = g.Class, g.Devices(), g.Tensor, g.Shares[0]
	}
	if all, ok := e.known[k]; ok {
		return all
	}
	w := &strategist{exhauster: e, stage: s, inflight: float64(k.inflight)}
	for l := s.From; l < s.To; l++ {
		w.choices = append(w.choices, e.choices(s.Groups, l))
	}
	w.next(s.From, &strategySums{})
	e.known[k] = w.found
	return w.found
}

// choice is a strategy of a layer with its cost.
type choice struct {
	Strategy
	cost layerCost
}

// choices are all strategies of a layer, without those of one group that others of the same degree are at least as good as.
func (e *exhauster) choices(groups []Group, l int) (all []choice) {
	degrees := []int{0}
	if g := groups[0]; len(groups) == 1 {
		per := e.topology.Classes[g.Class].PerMachine
		for _, t := range e.anyTensors(l, g.Class) {
			if o := e.options.Tensors; g.Devices()%t == 0 && per%t == 0 && within(g.First, g.Devices(), t, per) && (len(o) == 0 || slices.Contains(o, t)) {
				degrees = append(degrees, t)
			}
		}
	}
	for _, t := range degrees {
		first := len(all)
		for _, sharding := range e.options.Shardings {
			for _, y := range e.Recomputations() {
				y.Tensor, y.Sharding = t, sharding
				c := choice{Strategy: y}
				c.cost = e.layer(groups, l, e.samples, c.Strategy)
				if math.IsInf(c.cost.step[0], 1) || len(groups) == 1 && slices.ContainsFunc(all[first:], func(o choice) bool { return o.cost.within(&c.cost) }) {
					continue
				}
				if len(groups) == 1 {
					all = append(all[:first], slices.DeleteFunc(all[first:], func(o choice) bool { return c.cost.within(&o.cost) })...)
				}
				all = append(all, c)
			}
		}
	}
	return all
}

// within says whether a layer on one group takes no more than o of anything.
func (c *layerCost) within(o *layerCost) bool {
	x, y := &c.terms[0], &o.terms[0]
	return x.ahead() <= y.ahead() && x.back() <= y.back() && c.perIteration[0] <= o.perIteration[0] && c.states[0] <= o.states[0] && c.active[0] <= o.active[0] && c.peak[0] <= o.peak[0]
}

func (t *terms) ahead() float64 { return t.forward + t.gatherForward }
func (t *terms) back() float64  { return t.backward + t.recompute + t.gatherBackward }

// strategist goes through the strategies of a stage's layers.
type strategist struct {
	*exhauster
	stage    *Stage
	inflight float64
	choices  [][]choice // by layer
	chosen   []Strategy
	found    []exhaustTimes
}

// strategySums are those of the layers before.
type strategySums struct {
	terms   [MaxGroups]terms
	memory  [MaxGroups]float64
	peak    [MaxGroups]float64
	convert float64
}

func (w *strategist) next(l int, sums *strategySums) {
	if l == w.stage.To {
		w.add(sums)
		return
	}
	for i := range w.choices[l-w.stage.From] {
		c := &w.choices[l-w.stage.From][i]
		if w.left--; w.left <= 0 {
			return
		}
		s := *sums
		if n := len(w.chosen); n > 0 {
			s.convert += w.exhauster.convert(w.stage.Groups, l, w.samples, w.chosen[n-1], c.Strategy)
		}
		may := true
		for g := range w.stage.Groups {
			s.terms[g].add(c.cost.terms[g])
			s.memory[g] += c.cost.states[g] + w.inflight*c.cost.active[g]
			s.peak[g] = max(s.peak[g], c.cost.peak[g])
			class, x := w.stage.Groups[g].Class, &s.terms[g]
			may = may && s.memory[g]+s.peak[g]+w.reserve(class) <= w.limit(class) && float64(w.micro)*(x.step()+s.convert)+x.sync+x.update < w.result.Seconds
		}
		if may {
			w.chosen = append(w.chosen, c.Strategy)
			w.next(l+1, &s)
			w.chosen = w.chosen[:len(w.chosen)-1]
		}
	}
}

// add keeps the times of the chosen strategies unless others are as short.
func (w *strategist) add(s *strategySums) {
	t, slowest := exhaustTimes{}, 0
	for g := range w.stage.Groups {
		if s.terms[g].step() > s.terms[slowest].step() {
			slowest = g
		}
		t.once = max(t.once, s.terms[g].sync+s.terms[g].update)
	}
	x := &s.terms[slowest]
	t.forward, t.backward = x.ahead()+s.convert/2, x.back()+s.convert/2
	shorter := func(a, b exhaustTimes) bool {
		return a.forward <= b.forward && a.backward <= b.backward && a.once <= b.once
	}
	if slices.ContainsFunc(w.found, func(o exhaustTimes) bool { return shorter(o, t) }) {
		return
	}
	t.strategies = slices.Clone(w.chosen)
	w.found = append(slices.DeleteFunc(w.found, func(o exhaustTimes) bool { return shorter(t, o) }), t)
}

// finish simulates the chosen stages, and keeps them if they are the quickest.
func (e *exhauster) finish() {
	if len(e.chosen) < e.options.LeastStages {
		return
	}
	var timings []pipeline.Timing
	for _, s := range slices.Backward(e.chosen) {
		timings = append(timings, pipeline.Timing{Forward: s.forward, Backward: s.backward, SendNext: s.send / 2})
	}
	e.left -= len(timings) * e.micro
	ends, err := pipeline.Ends(nil, timings, e.micro)
	if err != nil { // too many passes
		e.left = 0
		return
	}
	seconds, last := 0.0, len(e.chosen)-1
	tied := e.exchangeTied(&e.chosen[last].Stage, &e.chosen[0].Stage)
	for i, s := range slices.Backward(e.chosen) {
		end := ends[last-i] + s.once
		if i == 0 || i == last {
			end += tied
		}
		seconds = max(seconds, end)
	}
	if seconds >= e.result.Seconds {
		return
	}
	e.result.Seconds, e.result.MicroBatch, e.result.Stages = seconds, e.samples, nil
	for _, s := range slices.Backward(e.chosen) {
		s.Strategies = s.strategies
		e.result.Stages = append(e.result.Stages, s.Stage)
	}
}
