package main

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/sim"
	"github.com/evenkeel/evenkeel/ddqn"
	"github.com/evenkeel/evenkeel/env/episode"
)

const (
	envs              = 64
	batch             = 128
	updates           = 4 // after each set of a round in every environment
	kept              = 1000
	shortest, longest = 30, 250
)

// drawer draws an episode, as training.Sampler does.
type drawer func(rng *rand.Rand, rounds int) (episode.Config, error)

// stream is one environment.
type stream struct {
	policy  *threshold
	sim     *sim.Simulator
	collect cluster.Collect
	sizes   []int
	left    int
	kind    ddqn.Kind
	first   float64 // samples a second of the round of everybody
}

// train returns the network after so many rounds, the same for the same seed.
func train(ctx context.Context, steps int, seed uint64, gamma float64, draw drawer) (*ddqn.Network, error) {
	net, err := ddqn.NewNetwork(ddqn.Spec{Features: features, Actions: len(limits), Objectives: 1, Hidden: []int{64, 64}}, rand.New(rand.NewPCG(seed, 2)))
	if err != nil {
		return nil, err
	}
	replay, err := ddqn.NewReplay(ddqn.ReplayConfig{Streams: envs, Capacity: kept, Group: 1, Features: features, Objectives: 1})
	if err != nil {
		return nil, err
	}
	sets := steps / envs
	learner, err := ddqn.NewLearner(ddqn.LearnerConfig{Batch: batch, Group: 1, NStep: 1, Gamma: gamma, LearningRate: 1e-3, DecayUpdates: sets * updates, FinalRate: 0.02}, net, rand.NewPCG(seed, 3))
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	streams := make([]*stream, envs)
	for k := range streams {
		if streams[k], err = begin(rng, draw); err != nil {
			return nil, err
		}
	}
	actor, q := ddqn.NewActor(net), []float32(nil)
	for set := range sets {
		if err := errors.Join(ctx.Err(), actor.Sync(net)); err != nil {
			return nil, err
		}
		explore := max(0.05, 1-float64(set)/(0.3*float64(sets)))
		for k, s := range streams {
			row := s.policy.look(s.sim.Present())
			if q = actor.Q(q, row); rng.Float64() < explore {
				s.policy.action = rng.IntN(len(limits))
			} else {
				s.policy.action = ddqn.Greedy(q, len(limits), 1, []float32{1})
			}
			step := ddqn.Step{Kind: s.kind, Rows: append([]float32(nil), row...), Actions: []int{s.policy.action}, Weights: []float32{1}}
			reward, err := s.round(ctx)
			over := errors.Is(err, cluster.ErrCapacity)
			if err != nil && !over {
				return nil, err
			}
			step.Rewards, s.kind = []float32{float32(reward)}, ddqn.Mid
			if err := replay.Add(k, step); err != nil {
				return nil, err
			}
			if s.left--; s.left > 0 && !over {
				continue
			}
			last := ddqn.Step{Kind: ddqn.Last, Terminal: over, Rows: append([]float32(nil), s.policy.look(s.sim.Present())...)}
			if err := replay.Add(k, last); err != nil {
				return nil, err
			}
			if streams[k], err = begin(rng, draw); err != nil {
				return nil, err
			}
		}
		for range updates {
			if set < min(20, max(2, sets/10)) {
				break
			}
			if _, err := learner.Update(replay); err != nil {
				return nil, err
			}
		}
	}
	return net, actor.Close()
}

// begin starts an episode with a round of everybody.
func begin(rng *rand.Rand, draw drawer) (*stream, error) {
	for {
		rounds := int(shortest * math.Exp(rng.Float64()*math.Log(float64(longest)/shortest)))
		e, err := draw(rng, rounds)
		if err != nil {
			return nil, err
		}
		e.Cluster.Choices = cluster.Choices{}
		s := &stream{policy: newThreshold(e.Cluster, nil), sim: sim.New(e.Cluster, e.Conditions, e.Seed), sizes: make([]int, len(e.Cluster.Nodes)), left: rounds}
		if _, err := s.round(context.Background()); !errors.Is(err, cluster.ErrCapacity) {
			return s, err
		}
	}
}

// round carries out the action and returns what it earned: the logarithm of its speed over that of the first round. All gradients are waited for.
func (s *stream) round(ctx context.Context) (float64, error) {
	if err := s.policy.apply(s.sim.Present(), s.sizes); err != nil {
		return 0, err
	}
	r, err := s.sim.Round(ctx, cluster.Plan{Sizes: s.sizes, Collect: s.collect})
	if err != nil {
		return 0, err
	}
	s.policy.observe(r)
	speed := max(float64(r.Accepted), 1) / max(r.Wait.Seconds(), 1e-9)
	if s.first == 0 {
		s.first = speed
	}
	return math.Log(speed / s.first), nil
}
