package agent

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/ddqn"
	"github.com/evenkeel/evenkeel/env"
)

// TrainConfig says how a policy is trained. The zero value trains the embedded policy.
type TrainConfig struct {
	Seed          uint64  `json:"seed"`
	Steps         int     `json:"steps"`          // rounds over all environments; zero: 300,000
	Envs          int     `json:"envs"`           // episodes side by side; zero: 32
	EpisodeRounds int     `json:"episode_rounds"` // zero: 200
	Hidden        []int   `json:"hidden"`         // nil: 64, 64
	UpdatesPerSet int     `json:"updates"`        // gradient steps per step of all environments; zero: 3
	Epsilon       float64 `json:"epsilon"`        // share of random actions at the end; zero: 0.03
	Gamma         float64 `json:"gamma"`          // zero: 0.8
	LearningRate  float64 `json:"learning_rate"`  // zero: 1e-3
	Group         int     `json:"group"`          // nodes followed per episode; zero: 8
	NStep         int     `json:"n_step"`
	Team          float64 `json:"team"`           // weight of the team's reward beside the nodes' own; zero: 0
}

func (c TrainConfig) withDefaults() TrainConfig {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	setf := func(v *float64, d float64) {
		if *v == 0 {
			*v = d
		}
	}
	set(&c.Steps, 300_000)
	set(&c.Envs, 128)
	set(&c.EpisodeRounds, 250)
	set(&c.UpdatesPerSet, 3)
	set(&c.Group, 8)
	set(&c.NStep, 1)
	setf(&c.Epsilon, 0.8)
	setf(&c.Gamma, 0.8)
	setf(&c.LearningRate, 1e-3)
	if c.Hidden == nil {
		c.Hidden = []int{64, 64}
	}
	return c
}

// Progress is what training reports after every set of steps.
type Progress struct {
	Steps, Total, Updates int
	Epsilon, Loss, MeanQ  float64
	Return                float64 // mean own speed reward per round and followed node
	Team                  float64 // mean progress of the team
}

// stream is one environment of the training run and the nodes it follows.
type stream struct {
	env     *env.Env
	weights [env.Objectives]float64
	follow  []int
	live    []bool
	rows    []float32
	q       []float32
	actions []int
	pending []ddqn.Step
}

// Trainer trains a policy. It alternates: while the actor plays one step of every
// environment with the weights of before, the learner takes its gradient steps on what
// was played until then. Both use one core, and the result does not depend on their
// speed.
type Trainer struct {
	config    TrainConfig
	scenarios *Scenarios
	rng       *rand.Rand
	pcg       *rand.PCG
	streams   []*stream
	replay    *ddqn.Replay
	learner   *ddqn.Learner
	actor     *ddqn.Actor
	steps     int
	returns   float64
	team      float64
}

// NewTrainer prepares a training run on the catalogue's training split.
func NewTrainer(catalogue *profile.Catalogue, config TrainConfig) (*Trainer, error) {
	config = config.withDefaults()
	scenarios, err := NewScenarios(catalogue)
	if err != nil {
		return nil, err
	}
	t := &Trainer{config: config, scenarios: scenarios, pcg: rand.NewPCG(config.Seed, 1)}
	t.rng = rand.New(t.pcg)
	net, err := ddqn.NewNetwork(ddqn.Spec{Features: env.Features, Actions: len(env.Actions), Objectives: env.Objectives, Hidden: config.Hidden}, rand.New(rand.NewPCG(config.Seed, 2)))
	if err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	t.replay, err = ddqn.NewReplay(ddqn.ReplayConfig{Streams: config.Envs, Capacity: 500, Group: config.Group, Features: env.Features, Objectives: env.Objectives})
	if err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	sets := config.Steps / config.Envs
	t.learner, err = ddqn.NewLearner(ddqn.LearnerConfig{
		Group: config.Group, NStep: config.NStep, Gamma: config.Gamma, LearningRate: config.LearningRate,
		DecayUpdates: sets * config.UpdatesPerSet, FinalRate: 0.02, Batch: 512 / config.Group,
	}, net, rand.NewPCG(config.Seed, 3))
	if err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	t.actor = ddqn.NewActor(net)
	for range config.Envs {
		s := &stream{}
		if err := t.begin(s); err != nil {
			return nil, err
		}
		t.streams = append(t.streams, s)
	}
	return t, nil
}

// begin starts a new episode in a stream.
func (t *Trainer) begin(s *stream) error {
	config := t.scenarios.Episode(t.rng, int(logUniform(t.rng, 30, float64(t.config.EpisodeRounds))))
	e, err := env.New(config)
	if err != nil {
		return err
	}
	if _, err := e.Reset(); err != nil {
		return err
	}
	s.env, s.weights = e, config.Weights
	s.follow = t.rng.Perm(e.Size())
	s.follow = s.follow[:min(len(s.follow), t.config.Group)]
	s.actions = make([]int, e.Size())
	s.pending = append(s.pending[:0], ddqn.Step{Kind: ddqn.First})
	s.rows = e.Rows(s.rows)
	return nil
}

// Run trains until the configured number of steps, reporting after every set.
func (t *Trainer) Run(ctx context.Context, report func(Progress)) error {
	sets := t.config.Steps / t.config.Envs
	for set := t.steps / t.config.Envs; set < sets; set++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t.actor.Sync(t.learner.Network()); err != nil {
			return err
		}
		explore := max(0, 1-float64(set)/(0.1*float64(sets)))
		played := make(chan error, 1)
		go func() { played <- t.play(explore) }()
		var stats ddqn.Stats
		var learnErr error
		if set > 20 {
			for range t.config.UpdatesPerSet {
				if stats, learnErr = t.learner.Update(t.replay); learnErr != nil {
					break
				}
			}
		}
		if err := <-played; err != nil {
			return err
		}
		if learnErr != nil {
			return learnErr
		}
		if err := t.keep(); err != nil {
			return err
		}
		t.steps += t.config.Envs
		if report != nil {
			report(Progress{Steps: t.steps, Total: t.config.Steps, Updates: t.learner.Updates(), Epsilon: explore, Loss: stats.Loss, MeanQ: stats.MeanQ, Return: t.returns, Team: t.team})
		}
	}
	return nil
}

// Network is the network as trained so far.
func (t *Trainer) Network() *ddqn.Network { return t.learner.Network() }

// play takes one step in every stream.
func (t *Trainer) play(explore float64) error {
	const width = env.Objectives
	t.returns, t.team = 0, 0
	for index, s := range t.streams {
		s.q = t.actor.Q(s.q, s.rows)
		var w32 [width]float32
		for i, w := range s.weights {
			w32[i] = float32(w)
		}
		count := len(env.Actions)
		for i := range s.actions {
			s.actions[i] = ddqn.Greedy(s.q[i*count*width:(i+1)*count*width], count, width, w32[:])
		}
		// One node in 24 explores, of the followed ones, and less in some streams than in
		// others: were all to, the network would know large fleets only in turmoil.
		epsilon := t.config.Epsilon * math.Pow(0.1, float64(index)/float64(len(t.streams)))
		explorers := min(max(len(s.actions)/24, 1), len(s.follow))
		for k, i := range s.follow {
			if t.rng.Float64() < explore || k < explorers && t.rng.Float64() < epsilon {
				s.actions[i] = t.rng.IntN(count)
			}
		}
		p := ddqn.Step{Kind: s.pending[0].Kind}
		t.snapshot(s, &p)
		p.Actions = make([]int, t.config.Group)
		p.Rewards = make([]float32, t.config.Group*width)
		p.Weights = w32[:]
		for k, i := range s.follow {
			p.Actions[k] = s.actions[i]
		}
		step, err := s.env.Step(s.actions)
		if err != nil {
			return err
		}
		own := 0.0
		for k, i := range s.follow {
			for o := range width {
				r := step.Nodes[i*width+o]
				p.Rewards[k*width+o] = r + float32(t.config.Team*step.Reward[o])
			}
			own += float64(step.Nodes[i*width])
		}
		t.returns += own / float64(len(s.follow)) / float64(len(t.streams))
		t.team += step.Reward[0] / float64(len(t.streams))
		s.rows = s.env.Rows(s.rows)
		s.pending = append(s.pending[:0], p)
		if step.Kind == env.Last {
			last := ddqn.Step{Kind: ddqn.Last, Terminal: step.Terminal}
			t.snapshot(s, &last)
			s.pending = append(s.pending, last)
		}
	}
	return nil
}

// snapshot copies the followed nodes' rows.
func (t *Trainer) snapshot(s *stream, p *ddqn.Step) {
	p.Rows = make([]float32, t.config.Group*env.Features)
	p.Live = make([]bool, t.config.Group)
	present := s.env.Live()
	for k, i := range s.follow {
		copy(p.Rows[k*env.Features:], s.rows[i*env.Features:(i+1)*env.Features])
		p.Live[k] = present[i]
	}
}

// keep moves what was played into the replay and starts new episodes where one ended.
func (t *Trainer) keep() error {
	for k, s := range t.streams {
		for _, p := range s.pending {
			if err := t.replay.Add(k, p); err != nil {
				return fmt.Errorf("agent: %w", err)
			}
		}
		if len(s.pending) > 1 {
			if err := t.begin(s); err != nil {
				return err
			}
			continue
		}
		s.pending = append(s.pending[:0], ddqn.Step{Kind: ddqn.Mid})
	}
	return nil
}
