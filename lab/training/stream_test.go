package training

import (
	"math"
	"testing"

	"evenkeel/cluster/profile"
	"evenkeel/ddqn/learn"
	"evenkeel/env"
	"evenkeel/env/episode"
)

// A followed node earns its share of its own reward and of the team's, in every objective.
func TestEarn(t *testing.T) {
	s := &stream{follow: []int{2, 0}, played: []learn.Step{{Rewards: make([]float32, trainGroup*env.Objectives)}}}
	step := episode.Step{Kind: episode.Mid, Reward: [env.Objectives]float64{-0.5, -0.25, -1, 0.125}, Nodes: []float32{-1, -2, -0.5, -1, 9, 9, 9, 9, -0.25, 0, -1, -0.125}}
	if sum := s.earn(step); sum != -1.25 {
		t.Errorf("the nodes' own speed rewards sum to %v, want -1.25", sum)
	}
	want := []float32{
		-0.25 - 0.05, 0 - 0.025, -1 - 0.1, -0.125 + 0.0125, // node 2
		-1 - 0.05, -2 - 0.025, -0.5 - 0.1, -1 + 0.0125, // node 0
	}
	for k, w := range want {
		if got := s.played[0].Rewards[k]; got != w {
			t.Errorf("follower %d, objective %d: %v, want %v", k/env.Objectives, k%env.Objectives, got, w)
		}
	}
	if len(s.played) != 1 {
		t.Errorf("%d steps, want the one that was played", len(s.played))
	}
}

// What a followed node earned goes into the replay with a tenth of the team's reward.
func TestReplayHoldsBothRewards(t *testing.T) {
	config := small
	config.Envs, config.Steps = 1, 10
	trainer, err := NewTrainer(profile.Embedded(), config)
	if err != nil {
		t.Fatal(err)
	}
	if err := trainer.play(1); err != nil {
		t.Fatal(err)
	}
	s := trainer.streams[0]
	stored := 0.0
	for k := range s.follow {
		stored += float64(s.played[0].Rewards[k*env.Objectives]) / float64(len(s.follow))
	}
	// After one step of one environment the moving averages are that step's rewards for speed.
	if want := trainer.returned + 0.1*trainer.team; math.Abs(stored-want) > 1e-6 || trainer.team == 0 || trainer.returned == 0 {
		t.Errorf("the replay got %v a node, want %v: %v of its own, %v of the team's", stored, want, trainer.returned, trainer.team)
	}
}
