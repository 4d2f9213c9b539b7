package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/agent/training"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/ddqn"
	"github.com/evenkeel/evenkeel/env"
	"github.com/evenkeel/evenkeel/env/episode"
)

// presets are the conditions, in turns.
var presets = []string{"steady", "drift", "interference", "bursts"}

// Nodes explore each at a rate of their own, between these (log-uniform): a node's neighbours are mostly as the embedded network leaves them.
const leastExplored, mostExplored = 0.02, 0.8

// played is one recorded episode: of every round its rows, the actions that followed and each node's own reward for speed.
type played struct {
	rows    []float32 // rounds x fleet x wide
	actions []int     // rounds x fleet
	rewards []float32
}

func (p *played) rounds() int { return len(p.actions) / fleet }

// drawCluster draws a cluster of the training split with the fleet's size, in which every round waits for all.
func drawCluster(sampler *training.Sampler, rng *rand.Rand) (*cluster.Cluster, error) {
	for range 100_000 {
		e, err := sampler.Episode(rng, 2)
		if err != nil {
			return nil, err
		}
		if c := e.Cluster; len(c.Nodes) == fleet {
			c.Collect, c.Choices = cluster.Collect{}, cluster.Choices{}
			return c, nil
		}
	}
	return nil, fmt.Errorf("recurrent: no cluster of %d nodes was drawn", fleet)
}

// gather plays so many episodes, in which the embedded network acts, with exploration: an episode shows neither reports nor what the model would do.
// Their clusters and seeds follow from the seed.
func gather(ctx context.Context, seed uint64, episodes, rounds int) ([]*played, error) {
	sampler, err := training.NewSampler(profile.Embedded())
	if err != nil {
		return nil, err
	}
	trained, err := agent.Embedded()
	if err != nil {
		return nil, err
	}
	actor := ddqn.NewActor(trained.Network, 0)
	rng := rand.New(rand.NewPCG(seed, 1))
	var all []*played
	for len(all) < episodes && ctx.Err() == nil {
		c, err := drawCluster(sampler, rng)
		if err != nil {
			return nil, err
		}
		conditions, err := cluster.Preset(presets[len(all)%len(presets)])
		if err != nil {
			return nil, err
		}
		p, err := record(actor, c, conditions, rng, rounds)
		if err != nil {
			return nil, err
		}
		if p.rounds() > window { // not where memory was too small after all
			all = append(all, p)
		}
	}
	return all, ctx.Err()
}

// record plays an episode.
func record(actor *ddqn.Actor, c *cluster.Cluster, conditions cluster.Conditions, rng *rand.Rand, rounds int) (*played, error) {
	e, err := episode.New(episode.Config{Cluster: c, Conditions: conditions, Seed: rng.Uint64(), Rounds: rounds + 1, Weights: [env.Objectives]float64{1}})
	if err != nil {
		return nil, err
	}
	var explore [fleet]float64
	for i := range explore {
		explore[i] = leastExplored * math.Exp(rng.Float64()*math.Log(mostExplored/leastExplored))
	}
	p := &played{}
	actions := make([]int, fleet)
	var rows, q []float32
	step, err := e.Reset()
	for err == nil && step.Kind != episode.Last {
		rows = e.Rows(rows)
		q = actor.Q(q, rows)
		for i := range actions {
			actions[i] = ddqn.Greedy(q[i*len(env.Actions):], len(env.Actions), 1, []float32{1})
			if rng.Float64() < explore[i] {
				actions[i] = rng.IntN(len(env.Actions))
			}
			p.rows = append(append(p.rows, rows[i*env.Features:(i+1)*env.Features]...), 1)
		}
		p.actions = append(p.actions, actions...)
		step, err = e.Step(actions)
		for i := range actions {
			p.rewards = append(p.rewards, step.Nodes[i*env.Objectives])
		}
	}
	return p, err
}
