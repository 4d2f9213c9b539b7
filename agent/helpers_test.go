package agent

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/ddqn"
	"github.com/evenkeel/evenkeel/env"
)

// speed is the preference for speed alone.
var speed = [env.Objectives]float64{1}

// lines is a cluster of nodes whose seconds are 0.5 + per*b, without memory limits.
func lines(t testing.TB, globalBatch int, per ...float64) *cluster.Cluster {
	t.Helper()
	c := &cluster.Cluster{Workload: "w", GlobalBatch: globalBatch}
	for i, s := range per {
		p, err := profile.New("d", "w", []profile.Point{{MicroBatch: 1, Seconds: 0.5 + s}, {MicroBatch: 64, Seconds: 0.5 + 64*s}}, "test")
		if err != nil {
			t.Fatal(err)
		}
		c.Nodes = append(c.Nodes, cluster.Node{Name: fmt.Sprint(i), Profile: p, Limit: profile.NoLimit})
	}
	return c
}

// measured is a round in which every node took its seconds for its size; 0 seconds:
// the node was absent.
func measured(sizes []int, seconds ...float64) *cluster.Report {
	r := &cluster.Report{Nodes: make([]cluster.NodeReport, len(sizes))}
	for i, s := range seconds {
		if s > 0 {
			r.Nodes[i] = cluster.NodeReport{Status: cluster.In, Size: sizes[i], Seconds: s, Samples: sizes[i], Age: s, Norm: 1, Agree: 1}
			r.Accepted += sizes[i]
			r.Wait = max(r.Wait, time.Duration(s*1e9))
		}
	}
	return r
}

// fromYAML builds a cluster of the embedded catalogue.
func fromYAML(t testing.TB, text string) *cluster.Cluster {
	t.Helper()
	_, c, err := cluster.Read(strings.NewReader(text), "test.yaml", profile.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func conditionsOf(t testing.TB, name string) cluster.Conditions {
	t.Helper()
	c, err := cluster.Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// untrained is a policy of random weights that takes every input for known.
func untrained(t testing.TB, hidden ...int) *Trained {
	t.Helper()
	network := func(features, actions int) *ddqn.Network {
		net, err := ddqn.NewNetwork(ddqn.Spec{Features: features, Actions: actions, Objectives: env.Objectives, Hidden: hidden}, rand.New(rand.NewPCG(3, 3)))
		if err != nil {
			t.Fatal(err)
		}
		return net
	}
	wide := func(features int, v float32) []float32 { return slices.Repeat([]float32{v}, features) }
	return &Trained{
		Network: network(env.Features, len(env.Actions)), Round: network(env.RoundFeatures, len(cluster.Rules)),
		Record: Record{
			Version: recordVersion, Low: wide(env.Features, -100), High: wide(env.Features, 100),
			RoundLow: wide(env.RoundFeatures, -100), RoundHigh: wide(env.RoundFeatures, 100),
		},
	}
}

// embeddedPolicy is the policy that comes with the program.
func embeddedPolicy(t testing.TB) *Trained {
	t.Helper()
	trained, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	return trained
}

// checkSizes holds sizes to the limits of c and to the global batch.
func checkSizes(t testing.TB, c *cluster.Cluster, present []bool, sizes []int) {
	t.Helper()
	sum := 0
	for i, b := range sizes {
		sum += b
		if here := present == nil || present[i]; here != (b > 0) || b < 0 || b > c.Nodes[i].Limit {
			t.Fatalf("node %d, present %v, limit %d: %d samples", i, here, c.Nodes[i].Limit, b)
		}
	}
	if sum != c.GlobalBatch {
		t.Fatalf("sizes sum to %d, not %d", sum, c.GlobalBatch)
	}
}
