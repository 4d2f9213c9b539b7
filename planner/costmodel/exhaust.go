package costmodel

import (
	"context"
	"math"
	"slices"
	"sort"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/planner/pipeline"
)

// Exhausted is the outcome of trying every plan of a small job.
type Exhausted struct {
	Stages     []Stage // of the quickest plan, first to last; nil: none is quicker than the limit
	Spread     Spread
	MicroBatch int
	Seconds    float64 // of an iteration of it, simulated
	Complete   bool    // every plan was tried, or left out because it cannot be quicker
}

// ExhaustWork is how much trying all plans of a job may take: units of about 0.1 us, not seconds, so that a job has the same outcome
// wherever it runs.
const ExhaustWork = 1 << 24

const (
	exhaustLayers  = 8       // at most
	exhaustDevices = 8       // of a class, at most
	exhaustLook    = 1 << 14 // of them between two looks at whether it is interrupted
)

// exhaust is Exhaust for plans that hold shared parameters alike.
func (m *Model) exhaust(ctx context.Context, globalBatch int, limit float64, work *int) *Exhausted {
	e := &exhauster{Model: m, ctx: ctx, left: *work, look: *work, result: Exhausted{Seconds: limit, Spread: m.spread}}
	for class, k := range m.topology.Classes {
		e.count += k.Count
		e.over = append(e.over, m.Wides(class))
	}
	if len(m.kindOf) > exhaustLayers || slices.ContainsFunc(m.topology.Classes, func(k cluster.Class) bool { return k.Count > exhaustDevices }) {
		return &e.result
	}
	for _, samples := range m.samples(globalBatch) {
		if !e.spend(1) {
			break
		}
		e.samples, e.micro, e.known, e.least = samples, globalBatch/samples, map[exhaustKey][]exhaustTimes{}, []float64{0}
		e.taken = make([]uint64, len(m.devices))
		for l := range m.kindOf {
			e.least = append(e.least, e.least[l]+e.leastStep(l))
		}
		e.before(len(m.kindOf), 0)
	}
	e.result.Complete, *work = !e.stopped, max(0, e.left)
	return &e.result
}

type exhauster struct {
	*Model
	ctx     context.Context
	count   int  // devices
	left    int  // units of work, and
	look    int  // how many of them when the context is looked at again
	stopped bool // something was left out that may be quicker
	result  Exhausted
	samples int // of a micro-batch
	micro   int // micro-batches
	taken   []uint64
	chosen  []exhaustStage // last to first
	least   []float64      // seconds of a micro-batch that the layers before take at least
	known   map[exhaustKey][]exhaustTimes
	over    [][]int // tensor degrees over machines, by class
}

// spend counts work before it is done, and says whether to do it: once it does not, it never does again.
func (e *exhauster) spend(units int) bool {
	if e.left -= units; e.left <= e.look && !e.stopped {
		e.look = e.left - exhaustLook
		e.stopped = e.left <= 0 || e.ctx.Err() != nil
	}
	return !e.stopped
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
	groups   [MaxGroups]struct{ class, count, tensor, share, machines, most, first int }
}

// leastStep is the least that a layer takes of a micro-batch on any devices.
func (e *exhauster) leastStep(l int) float64 {
	least := math.Inf(1)
	share := (e.samples + e.count - 1) / e.count // of the replica with the most
	for class := range e.devices {
		for _, t := range e.anyTensors(l, class) {
			if r, ok := e.curve(l, class, t).At(share); ok {
				least = min(least, e.passes(class)*(r.Forward+r.Backward))
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
	if len(e.chosen) == e.options.MostStages || !e.spend(4*e.count) {
		return
	}
	e.groups(0, nil, e.largest(to, sum), func(groups []Group) {
		s := exhaustStage{Stage: Stage{To: to, Groups: groups}}
		if n := len(e.chosen); n > 0 {
			next := &e.chosen[n-1].Stage
			machine := e.machine(&s.Stage)
			s.send = e.send(groups, to, classes(next), machine >= 0 && machine == e.machine(next))
		}
		for s.From = to - 1; s.From >= 0 && e.spend(3); s.From-- {
			rest := e.least[s.From]
			step := e.least[to] - rest + s.send
			if !e.may(sum, step, rest, 0) {
				break // nor with more layers
			}
			for _, t := range e.times(&s.Stage) {
				step := t.forward + t.backward + s.send
				if !e.spend(1) || !e.may(sum, step, rest, t.once) {
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

// largest are the largest shares, by class and tensor degree less 1, that a group beside others may have in a stage that ends with layer
// to: all its layers have the group's degree, the last was measured so, and may lead below the limit. A larger share takes no less time.
func (e *exhauster) largest(to int, sum float64) [][]int {
	all := make([][]int, len(e.devices))
	for class, k := range e.topology.Classes {
		for t := 1; t <= min(k.Count, k.PerMachine); t++ {
			curve := e.curve(to-1, class, t)
			all[class] = append(all[class], sort.Search(e.samples, func(i int) bool {
				r, ok := curve.At(i + 1)
				return !ok || !e.may(sum, e.passes(class)*(r.Forward+r.Backward), e.least[to-1], 0)
			}))
		}
	}
	return all
}

// groups goes through all ways to choose groups of this class and those after it from the devices that are not taken, with every largest
// share.
func (e *exhauster) groups(class int, chosen []Group, largest [][]int, found func([]Group)) {
	if !e.spend(1) {
		return
	}
	if class == len(e.devices) {
		if len(chosen) > 0 && !e.mixesWide(chosen) {
			e.shares(chosen, 0, largest, found)
		}
		return
	}
	e.groups(class+1, chosen, largest, found)
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
			degrees := e.over[class]
			for t := 1; t <= min(n, k.PerMachine); t++ {
				degrees = append(degrees[:len(degrees):len(degrees)], t)
			}
			for _, t := range degrees {
				if o := e.options.Tensors; n%t == 0 && within(first, n, t, k.PerMachine) && (len(o) == 0 || slices.Contains(o, t)) {
					e.groups(class+1, append(chosen, Group{Class: class, First: first, Replicas: n / t, Tensor: t}), largest, found)
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
func (e *exhauster) shares(groups []Group, i int, largest [][]int, found func([]Group)) {
	least, most := 0, 0
	upTo := func(g Group) int {
		if len(groups) == 1 { // the layers may have other degrees than the group
			return e.samples
		}
		return largest[g.Class][g.Tensor-1]
	}
	for k, g := range groups {
		if k < i {
			least, most = least+g.Shares[0]+g.Replicas-1, most+g.Shares[0]*g.Replicas
		} else {
			least, most = least+g.Replicas, most+upTo(g)*g.Replicas
		}
	}
	switch {
	case least > e.samples || most < e.samples:
	case i == len(groups):
		found(deal(groups, e.samples-least))
	default:
		for share := 1; share <= upTo(groups[i]) && e.spend(1); share++ {
			groups[i].Shares = slices.Repeat([]int{1}, groups[i].Replicas)
			groups[i].Shares[0] = share
			e.shares(groups, i+1, largest, found)
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
		if e.spread.Experts > 1 { // they have places of their own
			o.first = g.First % e.topology.Classes[g.Class].PerMachine
		}
		o.class, o.count, o.tensor, o.share = g.Class, g.Devices(), g.Tensor, g.Shares[0]
	}
	if all, ok := e.known[k]; ok {
		return all
	}
	w := &strategist{exhauster: e, stage: s, inflight: float64(k.inflight)}
	for l := s.From; l < s.To; l++ {
		w.choices = append(w.choices, e.choices(s.Groups, l))
	}
	w.sums = make([]strategySums, 1+len(w.choices))
	w.next(0)
	e.known[k] = w.found
	return w.found
}

// strategist goes through the strategies of a stage's layers.
type strategist struct {
	*exhauster
	stage    *Stage
	inflight float64
	choices  [][]choice     // by layer of the stage
	sums     []strategySums // of the layers before each
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

// next chooses a strategy of the i-th layer of the stage, and those after it.
func (w *strategist) next(i int) {
	if i == len(w.choices) {
		w.add(&w.sums[i])
		return
	}
	for k := range w.choices[i] {
		c, s := &w.choices[i][k], &w.sums[i+1]
		if !w.spend(1) {
			return
		}
		*s = w.sums[i]
		if i > 0 {
			s.convert += w.exhauster.convert(w.stage.Groups, w.stage.From+i, w.samples, w.chosen[i-1], c.Strategy)
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
			w.next(i + 1)
			w.chosen = w.chosen[:i]
		}
	}
}

// add keeps the times of the chosen strategies unless others are as short.
func (w *strategist) add(s *strategySums) {
	if !w.spend(len(w.found) / 16) {
		return
	}
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
	ends, err := pipeline.Ends(nil, timings, e.micro)
	e.stopped = e.stopped || err != nil // too many passes
	if !e.spend(len(timings) * e.micro) {
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
