package training

import (
	"context"
	"math/rand/v2"
	"testing"

	"evenkeel/agent"
	"evenkeel/cluster/profile"
	"evenkeel/ddqn"
	"evenkeel/env"
	"evenkeel/env/episode"
	"evenkeel/internal/agenttest"
	"evenkeel/internal/race"
	"evenkeel/internal/slow"
)

// ownReturn is the mean own reward per round and node of trained, or of random actions
// where it is nil, in episodes of their own.
func ownReturn(t *testing.T, trained *agent.Trained, seed uint64) float64 {
	t.Helper()
	sampler, err := NewSampler(profile.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	draw, rng := rand.New(rand.NewPCG(seed, 77)), rand.New(rand.NewPCG(seed, 78))
	var actor *ddqn.Actor
	if trained != nil {
		actor = ddqn.NewActor(trained.Network)
	}
	speed := weights32(agenttest.Speed)
	per, sum, count := len(env.Actions)*env.Objectives, 0.0, 0
	var rows, q []float32
	for range 24 {
		config, err := sampler.Episode(draw, 60)
		if err != nil {
			t.Fatal(err)
		}
		config.Weights = agenttest.Speed
		e, err := episode.New(config)
		if err != nil {
			t.Fatal(err)
		}
		step, err := e.Reset()
		if err != nil {
			t.Fatal(err)
		}
		actions := make([]int, e.Size())
		for step.Kind != episode.Last {
			if actor != nil {
				rows = e.Rows(rows)
				q = actor.Q(q, rows)
			}
			for i := range actions {
				if actions[i] = rng.IntN(len(env.Actions)); actor != nil {
					actions[i] = ddqn.Greedy(q[i*per:(i+1)*per], len(env.Actions), env.Objectives, speed)
				}
			}
			if step, err = e.Step(actions); err != nil {
				t.Fatal(err)
			}
			for i := range actions {
				sum += float64(step.Nodes[i*env.Objectives])
				count++
			}
		}
	}
	return sum / float64(count)
}

// A few seconds of training must help: in episodes that training did not draw, the policy loses far less than its
// untrained network and than random actions.
func TestLearningFloor(t *testing.T) {
	slow.Skip(t)
	if race.Enabled {
		t.Skip("TestSameSeedSamePolicy trains under the race detector")
	}
	var sections struct {
		Scratch struct {
			Note   string          `json:"note"`
			Config Config          `json:"config"`
			Trials int             `json:"trials"`
			Before agenttest.Floor `json:"saved_over_untrained"`
			Random agenttest.Floor `json:"saved_over_random"`
		} `json:"from_scratch"`
	}
	agenttest.ReadFloors(t, &sections)
	f := sections.Scratch
	var saved, better []float64
	for trial := range uint64(f.Trials) {
		config := f.Config
		config.Seed = trial
		trainer, err := NewTrainer(profile.Embedded(), config)
		if err != nil {
			t.Fatal(err)
		}
		before := ownReturn(t, trainer.Trained(), trial)
		if err := trainer.Run(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		after := ownReturn(t, trainer.Trained(), trial)
		saved = append(saved, 1-after/before)
		better = append(better, 1-after/ownReturn(t, nil, trial))
	}
	f.Before.Check(t, "share of the untrained network's loss that is gone", saved)
	f.Random.Check(t, "share of random actions' loss that is gone", better)
}
