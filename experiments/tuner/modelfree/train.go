package main

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/sim"
	"github.com/evenkeel/evenkeel/ddqn"
	"github.com/evenkeel/evenkeel/ddqn/learn"
	"github.com/evenkeel/evenkeel/env/episode"
	"github.com/evenkeel/evenkeel/experiments/internal/modelfree"
)

// config configures a training run. The defaults and constants are those of training.Config,
// so that the budget equals that of the project's own policy.
type config struct {
	Seed    uint64  `json:"seed"`
	Steps   int     `json:"steps"`
	Envs    int     `json:"envs"`
	Updates int     `json:"updates"`
	Gamma   float64 `json:"gamma"`
	Hidden  []int   `json:"hidden"`
}

func defaults() config {
	return config{Seed: 1, Steps: 1_500_000, Envs: 128, Updates: 12, Gamma: 0.5, Hidden: []int{64, 64}}
}

const (
	group             = 8   // nodes followed per episode
	rows              = 512 // of an update
	kept              = 500 // steps per environment
	shortest, longest = 30, 250
	explore           = 0.8
	perExplorer       = 24 // one of so many nodes explores
	width             = modelfree.Features
)

// drawer draws an episode, as training.Sampler does.
type drawer func(rng *rand.Rand, rounds int) (episode.Config, error)

type trainer struct {
	config
	draw    drawer
	rng     *rand.Rand
	streams []*stream
	actor   *ddqn.Actor
}

// stream is one environment.
type stream struct {
	policy  *modelfree.Policy
	cluster *cluster.Cluster
	sim     *sim.Simulator
	left    int     // rounds
	best    float64 // samples per second so far
	follow  []int
	sizes   []int
	actions []int
	rows, q []float32
	kind    learn.Kind   // of the next step
	played  []learn.Step // of the last round, and the Last one if it ended the episode
}

// train returns the trained network. As in training.Trainer, one core plays while the other
// learns, and the same configuration gives the same bits.
func train(ctx context.Context, c config, draw drawer, report func(done, total int)) (*ddqn.Network, error) {
	net, err := ddqn.NewNetwork(modelfree.Spec(c.Hidden), rand.New(rand.NewPCG(c.Seed, 2)))
	if err != nil {
		return nil, err
	}
	replay, err := learn.NewReplay(learn.ReplayConfig{Streams: c.Envs, Capacity: kept, Group: group, Features: width, Objectives: 1})
	if err != nil {
		return nil, err
	}
	sets := c.Steps / c.Envs
	learner, err := learn.NewLearner(learn.Config{
		Batch: rows / group, Group: group, NStep: 1, Gamma: c.Gamma, LearningRate: 1e-3, DecayUpdates: sets * c.Updates, FinalRate: 0.02,
	}, net, rand.NewPCG(c.Seed, 3))
	if err != nil {
		return nil, err
	}
	t := &trainer{config: c, draw: draw, rng: rand.New(rand.NewPCG(c.Seed, 1)), actor: ddqn.NewActor(net)}
	for range c.Envs {
		t.streams = append(t.streams, &stream{})
		if err := t.begin(t.streams[len(t.streams)-1]); err != nil {
			return nil, err
		}
	}
	for set := range sets {
		if err := errors.Join(ctx.Err(), t.actor.Sync(net)); err != nil {
			return nil, err
		}
		random := max(0, 1-float64(set)/(0.1*float64(sets)))
		played := make(chan error, 1)
		go func() { played <- t.play(random) }()
		var learnErr error
		for k := 0; set >= min(20, max(2, sets/10)) && k < c.Updates && learnErr == nil; k++ {
			_, learnErr = learner.Update(replay)
		}
		if err := errors.Join(<-played, learnErr); err != nil {
			return nil, err
		}
		for k, s := range t.streams {
			for _, p := range s.played {
				if err := replay.Add(k, p); err != nil {
					return nil, err
				}
			}
			if len(s.played) > 1 {
				if err := t.begin(s); err != nil {
					return nil, err
				}
			}
		}
		report(set+1, sets)
	}
	return net, t.actor.Close()
}

// begin starts an episode with a round of the starting sizes.
func (t *trainer) begin(s *stream) error {
	for {
		rounds := int(shortest * math.Exp(t.rng.Float64()*math.Log(float64(longest)/shortest)))
		e, err := t.draw(t.rng, rounds)
		if err != nil {
			return err
		}
		n := len(e.Cluster.Nodes)
		*s = stream{
			policy: modelfree.New(e.Cluster, nil), cluster: e.Cluster, sim: sim.New(e.Cluster, e.Conditions, e.Seed),
			left: rounds, follow: t.rng.Perm(n)[:min(n, group)], sizes: make([]int, n), actions: make([]int, n), rows: s.rows, q: s.q,
		}
		for i := range s.actions {
			s.actions[i] = len(modelfree.Factors) / 2
		}
		if _, err := s.round(); !errors.Is(err, cluster.ErrCapacity) {
			return err
		}
	}
}

// round applies the actions, runs the round and observes it.
func (s *stream) round() (*cluster.Report, error) {
	if err := s.policy.Apply(s.actions, s.sim.Present(), s.sizes); err != nil {
		return nil, err
	}
	r, err := s.sim.Round(context.Background(), cluster.Plan{Sizes: s.sizes, Collect: s.cluster.Collect})
	if err != nil {
		return nil, err
	}
	s.policy.Observe(r)
	s.rows = s.policy.Rows(s.rows)
	s.best = max(s.best, float64(r.Accepted)/max(r.Wait.Seconds(), 1e-9))
	return r, nil
}

// play takes a step in every environment.
func (t *trainer) play(random float64) error {
	per := len(modelfree.Factors)
	for k, s := range t.streams {
		s.q = t.actor.Q(s.q, s.rows)
		for i := range s.actions {
			s.actions[i] = ddqn.Greedy(s.q[i*per:], per, 1, []float32{1})
		}
		epsilon := explore * math.Pow(0.1, float64(k)/float64(len(t.streams)))
		for f, i := range s.follow {
			if t.rng.Float64() < random || f < max(len(s.actions)/perExplorer, 1) && t.rng.Float64() < epsilon {
				s.actions[i] = t.rng.IntN(per)
			}
		}
		p := s.observe(s.kind)
		s.kind = learn.Mid
		p.Actions, p.Rewards, p.Weights = make([]int, group), make([]float32, group), []float32{1}
		for f, i := range s.follow {
			p.Actions[f] = s.actions[i]
		}
		r, err := s.round()
		switch {
		case err == nil:
			s.pay(r, p.Rewards)
		case !errors.Is(err, cluster.ErrCapacity):
			return err
		}
		s.left--
		s.played = append(s.played[:0], p)
		if err != nil || s.left == 0 {
			last := s.observe(learn.Last)
			last.Terminal = err != nil
			s.played = append(s.played, last)
		}
	}
	return nil
}

func (s *stream) observe(kind learn.Kind) learn.Step {
	p := learn.Step{Kind: kind, Rows: make([]float32, group*width), Live: make([]bool, group)}
	present := s.sim.Present()
	for f, i := range s.follow {
		copy(p.Rows[f*width:], s.rows[i*width:(i+1)*width])
		p.Live[f] = present[i]
	}
	return p
}

// pay writes the followed nodes' rewards: the team's samples per second relative to the best
// of the episode, and each node's own time relative to the fleet's, as far as measured.
func (s *stream) pay(r *cluster.Report, rewards []float32) {
	wait := max(r.Wait.Seconds(), 1e-9)
	team := float64(r.Accepted)/wait/s.best - 1
	mean, seen := 0.0, 0.0
	timed := func(n *cluster.NodeReport) bool { return n.Measured() || n.Status == cluster.Late && n.Seconds > 0 }
	for i := range r.Nodes {
		if n := &r.Nodes[i]; timed(n) {
			mean += n.Seconds
			seen++
		}
	}
	mean /= max(seen, 1)
	for f, i := range s.follow {
		own := 0.0
		if n := &r.Nodes[i]; timed(n) { // an early node wastes its own time, a late one everybody's
			over := n.Seconds/mean - 1
			own = -max(-math.Log1p(over), 1.5*over)
		}
		rewards[f] = float32(max(own, -2) + team)
	}
}
