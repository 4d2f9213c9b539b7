package costmodel

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"evenkeel/planner/pipeline"
	"evenkeel/planner/search"
)

// Stages are the stage configurations of a candidate under this condition, first to last.
func (c *Condition) Stages(k search.Candidate) (stages []Stage) {
	first := c.Pool() // of the devices in use
	for _, choice := range slices.Backward(k.Choices) {
		f := &c.configurations[choice.Shape]
		stage := Stage{From: choice.From, To: choice.To}
		for _, g := range f.groups {
			first[g.Class] -= g.Devices()
			g.First = first[g.Class]
			stage.Groups = append(stage.Groups, g)
		}
		for _, number := range c.strategiesOf(choice) {
			stage.Strategies = append(stage.Strategies, f.strategies[number])
		}
		stage.useGroupTensor(c.MicroBatch, len(stages) > 0 && !c.divided)
		stages = append(stages, stage)
	}
	slices.Reverse(stages)
	return stages
}

func (c *Condition) strategiesOf(s search.Choice) []int32 {
	all := make([]int32, s.To-s.From)
	left := slices.Clone(c.packings[s.Point.Key])
	for i := range all {
		r := slices.IndexFunc(left, func(r packedRun) bool { return r.kind == c.kindOf[s.From+i] && r.count > 0 })
		all[i] = left[r].strategy
		left[r].count--
	}
	return all
}

// Cost is the cost of a pipeline.
type Cost struct {
	Seconds float64 // of an iteration: sum of steps + (micro-batches - 1) x largest step + largest per-iteration cost
	Stages  []StageCost
	Timings []pipeline.Timing // of each stage
	// Orders are the passes of each device under another schedule than 1F1B. Then Seconds is 0.
	Orders  [][]pipeline.Operation
	Overlap bool // with Orders: transfers overlap with computing
}

// UnpricedError reports a layer whose cost under its strategy is unknown.
type UnpricedError struct {
	Stage, Layer int
	Reason       string
}

// Error implements error.
func (e *UnpricedError) Error() string {
	return fmt.Sprintf("planner: stage %d, layer %d: %s", e.Stage, e.Layer, e.Reason)
}

// Price prices stages, first to last, under 1F1B. The batches are numbers of samples. The stages must follow each other, use
// devices of the cluster, and have shares that sum to the micro-batch. The error is an *UnpricedError.
func (m *Model) Price(globalBatch, microBatch int, stages []Stage) (*Cost, error) {
	cost, _, err := m.priceStages(globalBatch, microBatch, stages, nil)
	return cost, err
}

func (m *Model) priceStages(globalBatch, microBatch int, stages []Stage, known *Pricer) (*Cost, []held, error) {
	if len(stages) == 1 && m.alone != nil {
		return m.alone.priceStages(globalBatch, microBatch, stages, known)
	}
	c, last := &Condition{Model: m, GlobalBatch: globalBatch, MicroBatch: microBatch}, len(stages)-1
	tied := m.exchangeTied(&stages[0], &stages[last], m.tied*m.options.States.Gradients)
	cost := &Cost{Timings: make([]pipeline.Timing, len(stages))}
	all := make([]held, len(stages))
	var front search.Front
	received := 0.0 // seconds of the boundary before
	for i := range stages {
		x := known.stage(c, &stages[i], len(stages)-i)
		if x.err != nil {
			return nil, nil, &UnpricedError{i, x.err.Layer, x.err.Reason}
		}
		s, timing := x.cost, x.timing
		all[i] = x.held
		if i == 0 || i == last {
			s.Sync += tied
		}
		if i < last {
			next := &stages[i+1]
			s.Send = m.send(stages[i].Groups, m.input(next.From), next.classes(), m.together(&stages[i], next))
			timing.SendNext = s.Send / 2
		}
		cost.Timings[i] = timing
		cost.Stages = append(cost.Stages, s)
		b := m.sending(s.Send)
		front = search.Front{Max: max(front.Max, s.Step()+b.Busy+received, b.Link), Sum: front.Sum + s.Step() + b.Passing, PerIteration: max(front.PerIteration, s.Sync+s.Update), Stages: i + 1}
		received = b.Busy
	}
	cost.Seconds = c.Total(front) * float64(globalBatch)
	return cost, all, nil
}

// pricedStage is the cost of a stage, or why it has none.
type pricedStage struct {
	cost   StageCost
	timing pipeline.Timing
	held   held
	err    *UnpricedError // without the number of the stage
}

// stage prices a stage that is the behind-th from the end (1: the last).
func (c *Condition) stage(s *Stage, behind int) *pricedStage {
	priced := &pricedStage{}
	cost, h := &priced.cost, &priced.held
	inflight := float64(min(behind, c.microBatches()))
	var sums [MaxGroups]Times
	var convert float64
	var usage [MaxGroups]Usage
	var x layerCost
	for i, y := range s.Strategies {
		l := s.From + i
		if i == 0 || y != s.Strategies[i-1] || c.kindOf[l] != c.kindOf[l-1] {
			x = c.layer(s.Groups, l, c.MicroBatch, y) // otherwise it costs as much as the layer before
		}
		if math.IsInf(x.step[0], 1) {
			priced.err = &UnpricedError{Layer: l, Reason: c.unpriced(s.Groups, l, y)}
			return priced
		}
		if i > 0 {
			convert += c.convert(s.Groups, c.MicroBatch, c.input(l), s.Strategies[i-1], y)
		}
		for g := range s.Groups {
			sums[g].add(x.times[g])
			usage[g].States += x.states[g]
			usage[g].Activations += inflight * x.active[g]
			usage[g].Working = max(usage[g].Working, x.peak[g])
			h.kept[g] += x.active[g]
			h.whole[g] += x.whole[g]
		}
	}
	slowest, last := 0, 0
	for i, g := range s.Groups {
		usage[i].Device, usage[i].Limit = c.topology.Classes[g.Class].Device, c.limit(g.Class)
		usage[i].Working += c.reserve(g.Class)
		cost.Memory = append(cost.Memory, usage[i])
		if sums[i].Step() > sums[slowest].Step() {
			slowest = i
		}
		if sums[i].Once() > sums[last].Once() {
			last = i
		}
	}
	t := sums[slowest]
	cost.Forward, cost.Backward, cost.Recompute, cost.Gather, cost.Convert = t.forward, t.backward, t.recompute, t.gatherForward+t.gatherBackward, convert
	cost.Sync, cost.Update = sums[last].sync, sums[last].update
	forward, backward := t.forward+t.gatherForward+convert/2, t.backward+t.recompute+t.gatherBackward+convert/2
	priced.timing = pipeline.Timing{Forward: forward, Backward: backward, Weights: t.backward / 2}
	return priced
}

// unpriced says why a layer has no price under a strategy.
func (c *Condition) unpriced(groups []Group, l int, y Strategy) string {
	for i, g := range groups {
		_, tensor, share := replicas(groups, c.MicroBatch, y, i)
		if _, ok := c.Curve(l, g.Class, tensor).At(share); !ok {
			return fmt.Sprintf("layer %d (%s) was not profiled on %s at tensor degree %d with a micro-batch of %d samples", l, c.profile.Layers[l].Name, c.topology.Classes[g.Class].Device, tensor, share)
		}
		if why := c.Cannot(groups, g, l, tensor); why != "" {
			return fmt.Sprintf("layer %d (%s): %s", l, c.profile.Layers[l].Name, why)
		}
	}
	return "it cannot run"
}

// Pricer prices plans that have many stages in common, and remembers their costs. It is not safe for concurrent use.
type Pricer struct {
	m          *Model
	known      map[string]*pricedStage
	strategies map[Strategy]uint64 // numbered
	key        []byte
}

// mostKnown bounds the stages that a Pricer remembers, some 600 bytes each.
const mostKnown = 1 << 15

// Pricer is a new one for the model.
func (m *Model) Pricer() *Pricer {
	return &Pricer{m: m, known: map[string]*pricedStage{}, strategies: map[Strategy]uint64{}}
}

// Price is Model.Price. The costs share their Memory, which must not be changed.
func (p *Pricer) Price(globalBatch, microBatch int, stages []Stage) (*Cost, error) {
	cost, _, err := p.m.priceStages(globalBatch, microBatch, stages, p)
	return cost, err
}

// stage is Condition.stage, but remembers the result. A nil Pricer remembers nothing.
func (p *Pricer) stage(c *Condition, s *Stage, behind int) *pricedStage {
	if p == nil {
		return c.stage(s, behind)
	}
	key := p.number(c, s, behind)
	x := p.known[string(key)]
	if x == nil {
		x = c.stage(s, behind)
		if len(p.known) >= mostKnown {
			clear(p.known)
		}
		p.known[string(key)] = x
	}
	return x
}

// number encodes all that the cost of a stage depends on. Of shares that is the largest of each group, of devices their position
// within machines.
func (p *Pricer) number(c *Condition, s *Stage, behind int) []byte {
	key := p.key[:0]
	add := func(n int) { key = binary.AppendUvarint(key, uint64(n)) }
	add(c.MicroBatch)
	add(min(behind, c.microBatches()))
	add(s.From)
	add(len(s.Groups))
	for _, g := range s.Groups {
		add(g.Class)
		add(g.First % c.topology.Classes[g.Class].PerMachine)
		add(g.Replicas)
		add(g.Tensor)
		add(slices.Max(g.Shares))
	}
	for from := 0; from < len(s.Strategies); {
		y, to := s.Strategies[from], from+1
		for to < len(s.Strategies) && s.Strategies[to] == y {
			to++
		}
		n, ok := p.strategies[y]
		if !ok {
			n = uint64(len(p.strategies))
			p.strategies[y] = n
		}
		key = binary.AppendUvarint(key, n)
		add(to - from)
		from = to
	}
	p.key = key
	return key
}

// ReplicaTimes are the times of layers on a replica, by which a micro-batch is divided. It is not safe for concurrent use.
type ReplicaTimes struct {
	m    *Model
	sums map[replicaKey][][2]float64 // forward, and forward with backward, of the layers before
}

type replicaKey struct{ class, tensor, samples int }

// ReplicaTimes are those of a model.
func (m *Model) ReplicaTimes() *ReplicaTimes { return &ReplicaTimes{m, map[replicaKey][][2]float64{}} }

// Stage is the seconds that layers from..to-1 take on one replica, if the share checkpointed of each layer is recomputed. False: the
// replica was not profiled with these samples.
func (t *ReplicaTimes) Stage(class, tensor, samples, from, to int, checkpointed float64) (float64, bool) {
	k := replicaKey{class, tensor, samples}
	sums, ok := t.sums[k]
	if !ok {
		sums = t.read(k)
		t.sums[k] = sums
	}
	if sums == nil {
		return 0, false
	}
	return sums[to][1] - sums[from][1] + checkpointed*(sums[to][0]-sums[from][0]), true
}

func (t *ReplicaTimes) read(k replicaKey) [][2]float64 {
	sums := make([][2]float64, 1, len(t.m.profile.Layers)+1)
	slow := t.m.PassFactor(k.class)
	for l := range t.m.profile.Layers {
		run, ok := t.m.Curve(l, k.class, k.tensor).At(k.samples)
		if !ok {
			return nil
		}
		last := sums[l]
		sums = append(sums, [2]float64{last[0] + slow*run.Forward, last[1] + slow*(run.Forward+run.Backward)})
	}
	return sums
}
