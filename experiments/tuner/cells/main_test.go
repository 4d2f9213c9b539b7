package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/lab/evaluation"
)

// The same flags draw the same cells, and every cell is what was asked for.
func TestDraw(t *testing.T) {
	o := options{cells: 12, seeds: 1, rounds: 50}
	first, err := draw(o, "free")
	if err != nil {
		t.Fatal(err)
	}
	again, _ := draw(o, "free")
	if !reflect.DeepEqual(first, again) {
		t.Error("two draws of one seed differ")
	}
	for _, c := range first {
		if n := len(c.of.Cluster.Nodes); n > 128 || len(c.of.Cluster.Choices.Rules()) != len(cluster.Rules) || c.kinds[0] != "all" {
			t.Errorf("%d nodes, %d rules, kinds %q", n, len(c.of.Cluster.Choices.Rules()), c.kinds)
		}
	}
}

// Two nodes, of which one is hidden, whose smallest share takes nearly as long as their own.
func TestKinds(t *testing.T) {
	p, err := profile.New("d", "w", []profile.Point{{MicroBatch: 1, Seconds: 0.5}, {MicroBatch: 64, Seconds: 0.8}}, "test")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster.Cluster{Workload: "w", GlobalBatch: 20}
	for range 2 {
		c.Nodes = append(c.Nodes, cluster.Node{Device: "d", Profile: p, Limit: profile.NoLimit})
	}
	noisy := cluster.Conditions{Noise: cluster.Spread{Median: 0.2}}
	want := []string{"all", "2 to 4 nodes", "overhead above 40%", "noise of 15% and more", "rounds under 1 s"}
	if got := kinds(c, &noisy); !slices.Equal(got, want) {
		t.Errorf("kinds %q, want %q", got, want)
	}
	c.Nodes[1].Profile, c.Nodes[1].Hidden.Profile = nil, p
	c.GlobalBatch = 4000
	want = []string{"all", "2 to 4 nodes", "no profiles", "drift"}
	if got := kinds(c, &cluster.Conditions{Drift: cluster.Drift{SD: 0.1, Rounds: 20}}); !slices.Equal(got, want) {
		t.Errorf("kinds %q, want %q", got, want)
	}
}

// The table by hand: two cells, of which the second loses in every seed.
func TestTable(t *testing.T) {
	cells := []*cell{
		{kinds: []string{"all", "drift"}, progress: [][]float64{{1, 1}, {1.02, 1.04}}},
		{kinds: []string{"all"}, progress: [][]float64{{1, 1.02}, {0.99, 1.01}}},
	}
	var b strings.Builder
	table(&b, "free", []evaluation.Spec{{Name: "model"}, {Name: "ddqn"}}, cells)
	for _, want := range []string{"### rule: free", "| all | 2 | ddqn | 1.0150 | +0.0100 |", "| 1 | 1 |\n", "| drift | 1 | ddqn | 1.0300 | +0.0300 | +0.0300…+0.0300 | 0 | 0 |"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
