package main

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/agent/baseline"
	"github.com/evenkeel/evenkeel/agent/evaluation"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/cluster/sim"
	"github.com/evenkeel/evenkeel/ddqn"
	"github.com/evenkeel/evenkeel/env/episode"
)

func mixed(t *testing.T) *cluster.Cluster {
	t.Helper()
	_, c, err := cluster.Read(strings.NewReader("workload: llama-3b-512-fp16\nglobal_batch: 96\nnodes: [{device: a100-40g, count: 3}, {device: t4, count: 1}]"), "four", profile.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Nodes {
		c.Nodes[i].Limit = profile.NoLimit
	}
	return c
}

// Whoever is within the threshold has an even share; the others have none, but for those that the batch needs.
func TestSelects(t *testing.T) {
	c := mixed(t)
	p, sizes := newThreshold(c, nil), make([]int, 4)
	if err := p.apply(nil, sizes); err != nil || !slices.Equal(sizes, []int{24, 24, 24, 24}) {
		t.Fatalf("nothing is known: %v, %v", sizes, err)
	}
	report := &cluster.Report{Wait: 4e9, Accepted: 96, Nodes: make([]cluster.NodeReport, 4)}
	for i, seconds := range []float64{1, 1.2, 1.4, 4} {
		report.Nodes[i] = cluster.NodeReport{Status: cluster.In, Size: 24, Samples: 24, Seconds: seconds, Idle: 4 - seconds}
	}
	p.observe(report)
	// The median (of four the third) takes 1.4 s for 24 samples.
	if row := p.look(nil); math.Abs(float64(row[5])-math.Log(4/1.4)) > 1e-6 || math.Abs(float64(row[3])-math.Log(4/1.4)) > 1e-6 || row[4] != 1 {
		t.Errorf("observation %v", row)
	}
	for action, want := range map[int][]int{0: {96, 0, 0, 0}, 3: {48, 48, 0, 0}, 5: {32, 32, 32, 0}, 9: {24, 24, 24, 24}} {
		if p.action = action; p.apply(nil, sizes) != nil || !slices.Equal(sizes, want) {
			t.Errorf("threshold %v: %v, want %v", limits[action], sizes, want)
		}
	}
	p.action, c.Nodes[0].Limit, c.Single = 0, 60, true
	if err := p.apply(nil, sizes); err != nil || !slices.Equal(sizes, []int{48, 48, 0, 0}) {
		t.Errorf("the quickest cannot hold the batch alone: %v, %v", sizes, err)
	}
	// A small share says nothing of an even one.
	report.Nodes[3].Size, report.Nodes[3].Seconds = 2, 0.01
	report.Nodes[0].Seconds = 2
	if p.observe(report); p.times[3] != 4.0/24 {
		t.Errorf("%v s a sample", p.times[3])
	}
	if math.Abs(p.change-math.Log(2)/3) > 1e-12 { // one of the three that count took twice as long
		t.Errorf("change %v", p.change)
	}
}

// Three quick nodes and a slow one: a short run must learn to leave that one out, and give the same bits twice. It reached 5.4 of uniform's goodput.
func TestLearnsToLeaveOut(t *testing.T) {
	c := mixed(t)
	conditions, err := cluster.Preset("steady")
	if err != nil {
		t.Fatal(err)
	}
	learn := func() *ddqn.Network {
		net, err := train(context.Background(), 6400, 1, 0.9, func(rng *rand.Rand, rounds int) (episode.Config, error) {
			return episode.Config{Cluster: c, Conditions: conditions, Seed: rng.Uint64(), Rounds: rounds}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return net
	}
	net := learn()
	rows := make([]float32, 3*features)
	for i := range rows {
		rows[i] = float32(i%7)/7 - 0.5
	}
	if !slices.Equal(ddqn.NewActor(net).Q(nil, rows), ddqn.NewActor(learn()).Q(nil, rows)) {
		t.Error("two runs of one seed gave different networks")
	}
	s := sim.New(c, conditions, 99)
	score, err := evaluation.Play(context.Background(), c, s, newThreshold(c, net), 200, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	even, err := evaluation.Play(context.Background(), c, sim.New(c, conditions, 99), baseline.NewUniform(c), 200, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := score.Goodput / even.Goodput; got < 3 {
		t.Errorf("%.2f of uniform's goodput", got)
	}
}
