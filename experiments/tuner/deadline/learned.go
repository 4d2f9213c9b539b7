package main

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/sim"
	"github.com/evenkeel/evenkeel/ddqn"
	"github.com/evenkeel/evenkeel/ddqn/learn"
)

// A learned deadline: once a round a Double-DQN network chooses by how much the deadline departs from
// the rule's, and how long micro-steps after it may be. The rule still holds the samples at
// the global batch in the mean, so that the network decides which rounds are long and not how
// long they are.

var (
	factors   = []float64{0.8, 0.9, 0.96, 1, 1.04, 1.1, 1.2}
	overtimes = []float64{0.03, 0.06, 0.1, 0.16}
)

const (
	ruleFactor, ruleOvertime = 3, 2 // what the rule does
	features                 = 26
	asked                    = 8 // actions that a round is judged under
)

func action(k int) (factor, overtime float64) {
	return factors[k/len(overtimes)], overtimes[k%len(overtimes)]
}

// chooser is the agent's rule with a network that corrects its deadlines.
type chooser struct {
	agent.Policy
	cluster                          *cluster.Cluster
	actor                            *ddqn.Actor // nil: the rule
	explore                          float64
	rng                              *rand.Rand
	least                            float64 // advantage over the rule's own action from which it is overruled
	row                              []float32
	q                                []float32
	action                           int
	planned                          float64 // seconds of the newest deadline
	newest, late, often, size, noise float64
}

func newChooser(c *cluster.Cluster, actor *ddqn.Actor, explore, least float64, rng *rand.Rand) *chooser {
	return &chooser{Policy: agent.NewModel(c), cluster: c, actor: actor, explore: explore, least: least, rng: rng, row: make([]float32, features)}
}

func (p *chooser) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	if report != nil && p.planned > 0 {
		const rate = 0.05
		p.newest = min(report.Wait.Seconds()/p.planned-1, 2)
		p.late += rate * (p.newest - p.late)
		over := 0.0
		if p.newest > 0.02 {
			over = 1
		}
		p.often += rate * (over - p.often)
		ratio := float64(report.Accepted)/float64(p.cluster.GlobalBatch) - 1
		p.size += rate * (ratio - p.size)
		p.noise += rate * (math.Abs(ratio) - p.noise)
	}
	if err := p.Policy.Decide(report, present, plan); err != nil {
		return err
	}
	p.look(plan)
	p.action = ruleFactor*len(overtimes) + ruleOvertime
	if p.rng != nil && p.rng.Float64() < p.explore {
		p.action = p.rng.IntN(len(factors) * len(overtimes))
	} else if p.actor != nil {
		p.q = p.actor.Q(p.q, p.row)
		best := p.action
		for k, v := range p.q {
			if v > p.q[best] {
				best = k
			}
		}
		if float64(p.q[best]-p.q[p.action]) > p.least {
			p.action = best
		}
	}
	factor, overtime := action(p.action)
	plan.Finish *= factor
	plan.Collect.Overtime = overtime
	return nil
}

// look writes the observation: what the cluster's micro-steps are, and what the rounds were like.
func (p *chooser) look(plan *cluster.Plan) {
	var full, small, weight []float64
	sum := 0.0
	for i, b := range plan.Sizes {
		if n := &p.cluster.Nodes[i]; b > 0 {
			full = append(full, n.Cost(min(n.Full(), b))*plan.Perf[i].PerSample/plan.Finish)
			small = append(small, n.Cost(n.LeastShare())*plan.Perf[i].PerSample/plan.Finish)
			weight = append(weight, float64(b))
			sum += float64(b)
		}
	}
	row := p.row[:0]
	put := func(v float64) { row = append(row, float32(min(max(v, -3), 3))) }
	for _, limit := range []float64{0.02, 0.03, 0.06, 0.1, 0.16, 0.3} {
		part := 0.0
		for i := range small {
			if small[i] <= limit {
				part += weight[i] / sum
			}
		}
		put(part)
	}
	for _, values := range [][]float64{full, small} {
		slices.Sort(values)
		for _, q := range []float64{0, 0.25, 0.5, 0.75, 1} {
			put(math.Log(values[int(q*float64(len(values)-1))]+1e-4) / 3)
		}
	}
	put(math.Log(float64(len(full)))/4 - 0.7)
	put(math.Log(sum/float64(len(full)))/4 - 0.7)
	put(5 * p.newest)
	put(5 * p.late)
	put(2 * p.often)
	put(5 * p.size)
	put(5 * p.noise)
	for len(row) < features {
		row = append(row, 0)
	}
	p.row = row
}

// judge plays a round under several actions before it runs, with the same noise.
type judge struct {
	*sim.Simulator
	chooser *chooser
	rng     *rand.Rand
	ahead   sim.Simulator
	actions []int
	rewards []float32
	row     []float32
}

func (j *judge) Round(ctx context.Context, plan cluster.Plan) (*cluster.Report, error) {
	p := j.chooser
	taken, _ := action(p.action)
	p.planned = plan.Collect.Deadline.Seconds()
	rule := ruleFactor*len(overtimes) + ruleOvertime
	j.row = append(j.row[:0], p.row...)
	if j.rng != nil {
		base, err := j.play(ctx, plan, taken, rule)
		if err != nil {
			return nil, err
		}
		// A second is worth the samples that it holds, not those of a mean second: longer rounds
		// alone are no gain, as the rule would shorten them again.
		price := float64(base.Accepted) / p.planned * taken
		worth := func(r *cluster.Report) float64 {
			return (float64(r.Accepted) - price*r.Wait.Seconds()) / float64(p.cluster.GlobalBatch)
		}
		mean := worth(base)
		j.actions, j.rewards = j.actions[:0], j.rewards[:0]
		for range asked {
			k := j.rng.IntN(len(factors) * len(overtimes))
			r, err := j.play(ctx, plan, taken, k)
			if err != nil {
				return nil, err
			}
			j.actions, j.rewards = append(j.actions, k), append(j.rewards, float32(10*(worth(r)-mean)))
		}
	}
	return j.Simulator.Round(ctx, plan)
}

func (j *judge) play(ctx context.Context, plan cluster.Plan, taken float64, k int) (*cluster.Report, error) {
	j.ahead.CopyFrom(j.Simulator)
	factor, overtime := action(k)
	plan.Collect.Deadline = max(1, time(plan.Collect.Deadline.Seconds()*factor/taken))
	plan.Collect.Overtime = overtime
	report, err := j.ahead.Round(ctx, plan)
	if err != nil {
		return nil, err
	}
	return &cluster.Report{Accepted: report.Accepted, Wait: report.Wait}, nil
}

// train returns a network that was trained on clusters of the training split.
func train(ctx context.Context, rounds int, progress func(done int, reward float64)) (*ddqn.Network, error) {
	const streams, capacity, updates = 32, 500, 2
	rng := rand.New(rand.NewPCG(1, 1))
	spec := ddqn.Spec{Features: features, Actions: len(factors) * len(overtimes), Objectives: 1, Hidden: []int{64, 64}}
	net, err := ddqn.NewNetwork(spec, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		return nil, err
	}
	replay, err := learn.NewReplay(learn.ReplayConfig{Streams: streams, Capacity: capacity, Group: asked, Features: features, Objectives: 1})
	if err != nil {
		return nil, err
	}
	sets := rounds / streams
	learner, err := learn.NewLearner(learn.Config{Batch: 64, Group: asked, NStep: 1, Gamma: 0.5, LearningRate: 1e-3, DecayUpdates: updates * sets, FinalRate: 0.02}, net, rand.NewPCG(1, 3))
	if err != nil {
		return nil, err
	}
	actor, gained := ddqn.NewActor(net), 0.0
	source, err := newClusters(11)
	if err != nil {
		return nil, err
	}
	type stream struct {
		control *agent.Control
		judge   *judge
		left    int
	}
	all := make([]stream, streams)
	for set := range sets {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := actor.Sync(learner.Network()); err != nil {
			return nil, err
		}
		for i := range all {
			s := &all[i]
			if s.left == 0 {
				c, conditions, err := source.episode()
				if err != nil {
					return nil, err
				}
				p := newChooser(c, actor, 0.3, 0, rng)
				s.judge = &judge{Simulator: sim.New(c, conditions, rng.Uint64()), chooser: p, rng: rng}
				s.control, s.left = &agent.Control{Cluster: c, Runner: s.judge, Policy: p}, 30+rng.IntN(170)
			}
			s.left--
			if _, err := s.control.Round(ctx); err != nil {
				s.left = 0 // too few nodes are left; another cluster
				continue
			}
			first := learn.Step{Kind: learn.First, Actions: slices.Clone(s.judge.actions), Rewards: slices.Clone(s.judge.rewards), Weights: []float32{1}}
			for range asked {
				first.Rows = append(first.Rows, s.judge.row...)
			}
			last := learn.Step{Kind: learn.Last, Terminal: true, Rows: first.Rows} // a round is judged by itself: a second's price holds the rest
			for _, step := range []learn.Step{first, last} {
				if err := replay.Add(i, step); err != nil {
					return nil, err
				}
			}
			for k, a := range s.judge.actions {
				if a == s.judge.chooser.action {
					gained += 0.001 * (float64(s.judge.rewards[k]) - gained)
				}
			}
		}
		if set > 10 {
			for range updates {
				if _, err := learner.Update(replay); err != nil {
					return nil, err
				}
			}
		}
		progress((set+1)*streams, gained)
	}
	return learner.Network(), nil
}
