package episode

import (
	"context"
	"errors"
	"fmt"

	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/env"
	"evenkeel/internal/parallel"
)

// Kind types a step, as in dm_env.
type Kind uint8

const (
	First Kind = iota // begins an episode; carries no reward
	Mid
	Last // ends it; Terminal distinguishes a true end from a time limit
)

// Step is the result of one action per node.
type Step struct {
	Kind     Kind
	Terminal bool
	// Reward is the team's, by objective: speed (progress - 1, progress
	// being the accepted samples per second relative to the state oracle's without noise), waiting (minus the
	// idle share of node time), freshness (minus the share of accepted samples that were
	// computed on an older model), energy (1 - joules per counted sample over the state
	// oracle's; 0 where no node's power is known).
	Reward [env.Objectives]float64
	// Nodes holds every node's own reward, by objective, row-major; valid until the next
	// step. Speed, waiting and energy all reward a node for the right parameter
	// (ownReward), freshness for fresh gradients.
	Nodes []float32
}

// Config describes an episode.
type Config struct {
	Cluster    *cluster.Cluster
	Conditions cluster.Conditions
	Seed       uint64
	Rounds     int                     // time limit, >= 2
	Weights    [env.Objectives]float64 // shown to the agent
}

// Episode is one episode of a simulated cluster under the agent's control. It is used by
// one goroutine at a time.
type Episode struct {
	config      Config
	known       *cluster.Cluster // with the profiles that the simulator runs
	sim         *sim.Simulator
	tracker     *env.Tracker
	allowed     []int // rules; none: fixed
	collect     cluster.Collect
	alloc       cluster.Allocator
	oracle      cluster.Allocator
	perf        []cluster.Performance
	ready       []cluster.Performance // with the time that older work still takes
	truthBase   []cluster.Performance
	oraclePerf  []cluster.Performance
	before      []float64 // true slowdowns of the round that was measured
	sizes       []int
	oracleSizes []int
	nodes       []float32
	rounds      int
	over        bool
}

// errOver is returned by Step when the episode has ended or not begun.
var errOver = errors.New("episode: none is under way; call Reset")

// New prepares an episode; Reset begins it.
func New(config Config) (*Episode, error) {
	if config.Rounds < 2 {
		return nil, fmt.Errorf("episode: %d rounds; an episode needs at least 2", config.Rounds)
	}
	if err := config.Conditions.Validate(); err != nil {
		return nil, fmt.Errorf("episode: %w", err)
	}
	n := len(config.Cluster.Nodes)
	e := &Episode{
		config: config, known: config.Cluster.Revealed(), over: true,
		perf: make([]cluster.Performance, n), ready: make([]cluster.Performance, n), oraclePerf: make([]cluster.Performance, n),
		before: make([]float64, n), sizes: make([]int, n), oracleSizes: make([]int, n), nodes: make([]float32, n*env.Objectives),
	}
	e.truthBase = e.known.Nominal()
	e.allowed = config.Cluster.Choices.Rules()
	return e, nil
}

// Size is the number of nodes, and so of rows and actions.
func (e *Episode) Size() int { return len(e.perf) }

// Rows writes the observation, one row of env.Features per node, into dst.
func (e *Episode) Rows(dst []float32) []float32 { return e.tracker.Rows(dst, e.config.Weights) }

// Allowed are the rules, indices into cluster.Rules, among which the round's may be
// chosen; none where it is fixed.
func (e *Episode) Allowed() []int { return e.allowed }

// BestRule is the allowed rule with the highest average value under the episode's weights.
func (e *Episode) BestRule() int { return e.tracker.BestRule(e.allowed, e.config.Weights) }

// SetRule sets the rule of the coming rounds, an index into cluster.Rules. The nodes'
// rows show it, so it comes before Rows.
func (e *Episode) SetRule(rule int) { e.collectBy(cluster.Rules[rule].Apply(e.config.Cluster.Collect)) }

func (e *Episode) collectBy(c cluster.Collect) {
	e.collect = c
	e.tracker.SetRule(c, count(e.sim.Present()))
}

// Live says which nodes take part in the next round; valid until the next step.
func (e *Episode) Live() []bool { return e.sim.Present() }

// Reset begins the episode anew, from the same seed, with a round sized by the
// profiles alone. If the nodes present cannot hold the global batch, the step is Last
// and Terminal.
func (e *Episode) Reset() (Step, error) {
	e.sim = sim.New(e.config.Cluster, e.config.Conditions, e.config.Seed)
	e.tracker = env.NewTracker(e.config.Cluster)
	e.rounds, e.over = 0, false
	e.collectBy(e.config.Cluster.Collect)
	copy(e.perf, e.config.Cluster.Nominal())
	s, err := e.round()
	if err != nil {
		e.over = true
		return s, err
	}
	if !s.Terminal {
		s.Kind, s.Reward = First, [env.Objectives]float64{}
		clear(e.nodes) // nobody has chosen anything yet
	}
	return s, nil
}

// Step applies one action per node, an index into env.Actions, and runs a round.
func (e *Episode) Step(actions []int) (Step, error) {
	if e.over {
		return Step{}, errOver
	}
	if len(actions) != e.Size() {
		return Step{}, fmt.Errorf("episode: %d actions for %d nodes", len(actions), e.Size())
	}
	for i, a := range actions {
		if a < 0 || a >= len(env.Actions) {
			return Step{}, fmt.Errorf("episode: node %d: action %d outside 0..%d", i, a, len(env.Actions)-1)
		}
	}
	e.tracker.Apply(actions, e.perf)
	return e.round()
}

// round allocates by the current parameters, runs the round and pays the rewards.
func (e *Episode) round() (Step, error) {
	present := e.sim.Present()
	e.tracker.Occupy(e.perf, e.ready)
	finish, err := e.alloc.Allocate(e.config.Cluster, present, e.ready, e.sizes)
	if errors.Is(err, cluster.ErrCapacity) {
		e.over = true
		clear(e.nodes)
		return Step{Kind: Last, Terminal: true, Nodes: e.nodes}, nil
	}
	if err != nil {
		return Step{}, fmt.Errorf("episode: %w", err)
	}
	e.tracker.Predict(finish)
	truth := e.sim.Truth()
	ideal, joules, err := e.ideal(truth)
	if err != nil {
		return Step{}, fmt.Errorf("episode: %w", err)
	}
	stakes := newStakes(e.tracker.Spread(), &e.config.Conditions, len(e.perf), e.tracker.Rule())
	for i := range e.perf {
		if present[i] {
			e.nodes[i*env.Objectives] = float32(e.own(i, finish, &stakes, &truth))
		}
		e.before[i] = truth.Slowdown[i]
	}
	s := Step{Kind: Mid, Nodes: e.nodes}
	report, err := e.sim.Round(context.Background(), cluster.Plan{Sizes: e.sizes, Collect: e.collect})
	if err != nil {
		return Step{}, fmt.Errorf("episode: %w", err)
	}
	e.pay(&s, report, ideal, joules)
	e.tracker.Observe(report)
	if e.rounds++; e.rounds >= e.config.Rounds {
		s.Kind, e.over = Last, true
	}
	return s, nil
}

// own is node i's own reward in a round that is predicted to take finish seconds.
func (e *Episode) own(i int, finish float64, stakes *stakes, truth *cluster.Truth) float64 {
	if rule := e.tracker.Rule(); e.tracker.Late(i) && rule.Quorum < 1 {
		node := &e.known.Nodes[i]
		work := node.Finish(node.Slowed(e.truthBase[i], truth.Slowdown[i]), e.share(i))
		return lateReward(1+lateSlack+rule.Grace, truth.Left[i]/finish, work/finish, truth.Noise[i])
	}
	return stakes.ownReward(e.ratio(i, e.before[i]), e.ratio(i, truth.Slowdown[i]), truth.Noise[i])
}

// ratio is the predicted over the true time in which node i finishes its share, at a true
// slowdown.
func (e *Episode) ratio(i int, slowdown float64) float64 {
	predicted := e.config.Cluster.Nodes[i].Finish(e.ready[i], e.share(i))
	node := &e.known.Nodes[i]
	return predicted / (node.Finish(node.Slowed(e.truthBase[i], slowdown), e.share(i)) + e.sim.Truth().Left[i])
}

// share is what node i is judged by: its least share where it gets none.
func (e *Episode) share(i int) int {
	return max(e.sizes[i], e.config.Cluster.Nodes[i].LeastShare())
}

// pay fills in the rewards that the round's report decides.
func (e *Episode) pay(s *Step, report *cluster.Report, ideal, joules float64) {
	for i := range report.Nodes {
		own := e.nodes[i*env.Objectives:][:env.Objectives]
		own[1], own[3] = own[0], own[0]
		own[2] = float32(-staleShare(&report.Nodes[i]))
	}
	s.Reward = teamReward(report, e.config.Cluster, ideal, joules)
}

func count(present []bool) int {
	n := 0
	for _, p := range present {
		if p {
			n++
		}
	}
	return n
}

// StepAll takes one step in every episode, on all processors; actions and steps are
// in the order of episodes. The result does not depend on how many processors there are.
func StepAll(episodes []*Episode, actions [][]int) ([]Step, error) {
	steps := make([]Step, len(episodes))
	return steps, parallel.Each(len(episodes), func(k int) (err error) {
		steps[k], err = episodes[k].Step(actions[k])
		return err
	})
}
