package training

import (
	"testing"

	"github.com/evenkeel/evenkeel/ddqn"
	"github.com/evenkeel/evenkeel/env"
	"github.com/evenkeel/evenkeel/env/episode"
)

// A followed node earns its share of its own reward and of the team's, in every objective.
func TestEarn(t *testing.T) {
	s := &stream{follow: []int{2, 0}, played: []ddqn.Step{{Rewards: make([]float32, trainGroup*env.Objectives)}}}
	step := episode.Step{Kind: episode.Mid, Reward: [env.Objectives]float64{-0.5, -0.25, -1, 0.125}, Nodes: []float32{-1, -2, -0.5, -1, 9, 9, 9, 9, -0.25, 0, -1, -0.125}}
	if sum := s.earn(step, 0.5, 2); sum != -1.25 {
		t.Errorf("the nodes' own speed rewards sum to %v, want -1.25", sum)
	}
	want := []float32{
		-0.125 - 1, 0 - 0.5, -0.5 - 2, -0.0625 + 0.25, // node 2
		-0.5 - 1, -1 - 0.5, -0.25 - 2, -0.5 + 0.25, // node 0
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
