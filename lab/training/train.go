package training

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/zeebo/xxh3"

	"evenkeel/agent"
	"evenkeel/cluster/profile"
	"evenkeel/ddqn"
	"evenkeel/ddqn/learn"
	"evenkeel/env"
	"evenkeel/env/episode"
	"evenkeel/internal/badinput"
)

// Config says how a policy is trained; agent.TrainConfig describes its fields, and a
// policy's record holds it.
type Config agent.TrainConfig

const (
	trainGroup   = 8   // nodes followed per episode: rows of a replay step
	trainRows    = 512 // rows of an update
	trainReplay  = 500 // steps kept per environment
	trainTeam    = 0.1 // weight of the team's reward beside a node's own
	trainRate    = 1e-3
	trainShort   = 30  // rounds of the shortest episode
	trainUsual   = 250 // rounds of the longest usual episode: short ones, so that the replay holds many clusters
	trainLong    = 3000
	trainLonger  = 0.1 // share of episodes that are longer than usual
	trainWarmup  = 20  // sets of steps before the first update, fewer in a short run
	trainRandom  = 0.1 // share of the run over which actions turn from random to chosen
	trainRules   = 0.3 // share of rounds under a random rule, where the rule is free, so that all rules are seen
	trainSmooth  = 0.02
	fleetPerNode = 24 // nodes for every node that explores

	// trainAdvantage is the least advantage, at the prior's noise, with which the network
	// overrules the model's update: smaller ones are noise. Best of 0.03, 0.06, 0.12 and
	// 0.25 on drawn cells (docs/decisions/0047-two-controllers.md).
	trainAdvantage = 0.06
)

func (c Config) withDefaults() Config {
	c.Steps = cmp.Or(c.Steps, 480_000)
	c.Envs = cmp.Or(c.Envs, 128)
	c.Updates = cmp.Or(c.Updates, 12)
	c.Gamma = cmp.Or(c.Gamma, 0.5)
	c.Explore = cmp.Or(c.Explore, 0.8)
	if c.Hidden == nil {
		c.Hidden = []int{64, 64}
	}
	return c
}

// Validate reports everything out of range. Its error is bad input.
func (c Config) Validate() error {
	var errs []error
	c = c.withDefaults()
	if c.Steps < c.Envs {
		errs = append(errs, fmt.Errorf("steps is %d; at least one per environment (%d) is needed", c.Steps, c.Envs))
	}
	if c.Envs < 1 || c.Envs > 4096 {
		errs = append(errs, fmt.Errorf("envs is %d; it must lie in 1..4096", c.Envs))
	}
	if c.Updates < 1 || c.Updates > 1000 {
		errs = append(errs, fmt.Errorf("updates is %d; it must lie in 1..1000", c.Updates))
	}
	if !(c.Explore > 0 && c.Explore <= 1) {
		errs = append(errs, fmt.Errorf("explore is %v; it must lie in (0, 1]", c.Explore))
	}
	return badinput.Wrap(errors.Join(errs...))
}

// learner configures the learning of the nodes' network.
func (c Config) learner() learn.Config {
	return learn.Config{
		Batch: trainRows / trainGroup, Group: trainGroup, NStep: 1, Gamma: c.Gamma,
		LearningRate: trainRate, DecayUpdates: c.sets() * c.Updates, FinalRate: 0.02,
	}
}

// sets is the number of steps that each environment takes.
func (c Config) sets() int { return c.Steps / c.Envs }

// Progress is what training reports after every set of steps.
type Progress struct {
	Steps   int     `json:"steps"`
	Total   int     `json:"total"`
	Updates int     `json:"updates"`
	Loss    float64 `json:"loss"`
	MeanQ   float64 `json:"mean_q"`
	Return  float64 `json:"return"` // own reward per node and round, moving average over sets
	Team    float64 `json:"team"`   // the team's speed reward (progress - 1), the same way
	Epsilon float64 `json:"epsilon"`
}

// Trainer trains a policy. While the actor plays one step of every environment with the
// previous weights, the learner takes its gradient steps on what was played before. Each
// runs on a core of its own, and the result does not depend on their speed: the same seed
// gives the same bits.
type Trainer struct {
	config    Config
	sampler   *Sampler
	pcg       *rand.PCG
	rng       *rand.Rand
	streams   []*stream
	replay    *learn.Replay
	learner   *learn.Learner
	actor     *ddqn.Actor
	sets      int // done
	low, high []float32
	first     string // checksum after the first set of updates
	returned  float64
	team      float64
}

// NewTrainer prepares a training run on the catalogue's training split.
func NewTrainer(catalogue *profile.Catalogue, config Config) (*Trainer, error) {
	t, err := newTrainer(catalogue, config)
	if err != nil {
		return nil, err
	}
	for _, s := range t.streams {
		if err := t.begin(s); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// newTrainer is NewTrainer without episodes.
func newTrainer(catalogue *profile.Catalogue, config Config) (*Trainer, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("training: %w", err)
	}
	config = config.withDefaults()
	sampler, err := NewSampler(catalogue)
	if err != nil {
		return nil, err
	}
	t := &Trainer{config: config, sampler: sampler, pcg: rand.NewPCG(config.Seed, 1), low: make([]float32, env.Features), high: make([]float32, env.Features)}
	t.rng = rand.New(t.pcg)
	spec := ddqn.Spec{Features: env.Features, Actions: len(env.Actions), Objectives: env.Objectives, Hidden: config.Hidden}
	net, err := ddqn.NewNetwork(spec, rand.New(rand.NewPCG(config.Seed, 2)))
	if err != nil {
		return nil, fmt.Errorf("training: %w", err)
	}
	t.replay, err = learn.NewReplay(learn.ReplayConfig{Streams: config.Envs, Capacity: trainReplay, Group: trainGroup, Features: env.Features, Objectives: env.Objectives})
	if err != nil {
		return nil, fmt.Errorf("training: %w", err)
	}
	t.learner, err = learn.NewLearner(config.learner(), net, rand.NewPCG(config.Seed, 3))
	if err != nil {
		return nil, fmt.Errorf("training: %w", err)
	}
	t.actor = ddqn.NewActor(net)
	for range config.Envs {
		t.streams = append(t.streams, &stream{})
	}
	return t, nil
}

// Run trains for the configured number of steps and reports after every set. When ctx is
// done it stops between two sets and returns ctx's error; then Run may be called again, or
// the state be saved.
func (t *Trainer) Run(ctx context.Context, report func(Progress)) error {
	for t.sets < t.config.sets() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t.actor.Sync(t.learner.Network()); err != nil {
			return fmt.Errorf("training: %w", err)
		}
		random := max(0, 1-float64(t.sets)/(trainRandom*float64(t.config.sets())))
		played := make(chan error, 1)
		go func() { played <- t.play(random) }()
		stats, learnErr := t.learn()
		if err := errors.Join(<-played, learnErr, t.mark()); err != nil {
			return fmt.Errorf("training: %w", err)
		}
		if err := t.store(); err != nil {
			return fmt.Errorf("training: %w", err)
		}
		t.sets++
		if report != nil {
			report(Progress{
				Steps: t.sets * t.config.Envs, Total: t.config.sets() * t.config.Envs, Updates: t.learner.Updates(),
				Loss: stats.Loss, MeanQ: stats.MeanQ, Return: t.returned, Team: t.team, Epsilon: random,
			})
		}
	}
	return nil
}

// mark notes the checksum of the network after the first set of updates.
func (t *Trainer) mark() error {
	if t.first != "" || t.learner.Updates() == 0 {
		return nil
	}
	h := xxh3.New()
	err := ddqn.Write(h, map[string]*ddqn.Network{"nodes": t.learner.Network()}, nil)
	t.first = fmt.Sprintf("%016x", h.Sum64())
	return err
}

// learn takes the gradient steps of one set.
func (t *Trainer) learn() (stats learn.Stats, err error) {
	if t.sets < min(trainWarmup, max(2, t.config.sets()/10)) {
		return stats, nil
	}
	for range t.config.Updates {
		if stats, err = t.learner.Update(t.replay); err != nil {
			return stats, err
		}
	}
	return stats, nil
}

// play takes one step in every environment.
func (t *Trainer) play(random float64) error {
	envs, actions := make([]*episode.Episode, len(t.streams)), make([][]int, len(t.streams))
	for k, s := range t.streams {
		t.choose(s, random)
		s.rows = s.episode.Rows(s.rows)
		widen(t.low, t.high, s.rows)
		s.q = t.actor.Q(s.q, s.rows)
		t.act(s, k, random)
		s.note()
		envs[k], actions[k] = s.episode, s.actions
	}
	steps, err := episode.StepAll(envs, actions)
	if err != nil {
		return err
	}
	returned, team, nodes := 0.0, 0.0, 0.0
	for k, s := range t.streams {
		returned += s.earn(steps[k])
		team += steps[k].Reward[0]
		nodes += float64(len(s.follow))
	}
	returned /= nodes
	team /= float64(len(t.streams))
	if t.sets == 0 {
		t.returned, t.team = returned, team
	}
	t.returned += trainSmooth * (returned - t.returned)
	t.team += trainSmooth * (team - t.team)
	return nil
}

// widen extends the ranges of the features by rows.
func widen(low, high, rows []float32) {
	for r := 0; r < len(rows); r += len(low) {
		for i, v := range rows[r : r+len(low)] {
			low[i], high[i] = min(low[i], v), max(high[i], v)
		}
	}
}

// store moves what was played into the replay and replaces episodes that ended.
func (t *Trainer) store() error {
	for k, s := range t.streams {
		for _, p := range s.played {
			if err := t.replay.Add(k, p); err != nil {
				return err
			}
		}
		if len(s.played) > 1 {
			if err := t.begin(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// Trained returns the policy as trained so far.
func (t *Trainer) Trained() *agent.Trained {
	r := agent.Record{
		Advantage: trainAdvantage, Low: slices.Clone(t.low), High: slices.Clone(t.high),
		Config: agent.TrainConfig(t.config), Updates: t.learner.Updates(), First: t.first, Return: t.returned, Workloads: t.sampler.workloads,
	}
	for _, w := range t.sampler.workloads {
		for _, d := range t.sampler.devices[w] {
			if !slices.Contains(r.Devices, d.Name) {
				r.Devices = append(r.Devices, d.Name)
			}
		}
	}
	return agent.NewTrained(t.learner.Network().Clone(), r)
}
