// Package agenttest holds clusters, reports and checks that the tests of agent and lab share.
package agenttest

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"evenkeel/agent/clusters"
	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/cluster/profile"
	"evenkeel/env"
)

// Speed is the preference for speed alone.
var Speed = [env.Objectives]float64{1}

// Lines is a cluster of nodes whose seconds are 0.5 + per*b, without memory limits.
func Lines(t testing.TB, globalBatch int, per ...float64) *cluster.Cluster {
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

// Measured is a round in which every node took its seconds for its size; 0 seconds:
// the node was absent.
func Measured(sizes []int, seconds ...float64) *cluster.Report {
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

// FromYAML builds a cluster of the embedded catalogue.
func FromYAML(t testing.TB, text string) *cluster.Cluster {
	t.Helper()
	_, c, err := clusterfile.Read(strings.NewReader(text), "test.yaml", profile.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Conditions are a preset's.
func Conditions(t testing.TB, name string) cluster.Conditions {
	t.Helper()
	c, err := cluster.Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// CheckSizes holds sizes to the limits of c and to the global batch.
func CheckSizes(t testing.TB, c *cluster.Cluster, present []bool, sizes []int) {
	t.Helper()
	sum := 0
	for i, b := range sizes {
		sum += b
		if here := present == nil || present[i]; b > 0 && !here || !c.Nodes[i].Takes(b) {
			t.Fatalf("node %d, present %v, limit %d: %d samples", i, here, c.Nodes[i].Limit, b)
		}
	}
	if sum != c.GlobalBatch {
		t.Fatalf("sizes sum to %d, not %d", sum, c.GlobalBatch)
	}
}

// HeldOut16 is a held-out cluster of 16 nodes.
func HeldOut16(t testing.TB) *cluster.Cluster {
	t.Helper()
	_, c, err := clusters.Load("heldout-16", profile.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Floor is what must at least be reached. Every figure stands beside the number of trials
// and the spread from which it was set; a seed gives the same bits, so a test fails only
// when something has changed.
type Floor struct {
	Floor    float64 `json:"floor"`
	Measured float64 `json:"measured"` // mean over the trials
	Spread   float64 `json:"spread"`   // sd over the trials
}

// ReadFloors reads lab/testdata/floors.json into sections.
func ReadFloors(t *testing.T, sections any) {
	t.Helper()
	text, err := os.ReadFile("../testdata/floors.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, sections); err != nil {
		t.Fatal(err)
	}
}

// Check holds the mean of values to the floor.
func (f Floor) Check(t *testing.T, what string, values []float64) {
	t.Helper()
	mean, square := 0.0, 0.0
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		square += (v - mean) * (v - mean)
	}
	spread := math.Sqrt(square / max(float64(len(values)-1), 1))
	t.Logf("%s: mean %.4f over %d trials, spread %.4f, floor %v", what, mean, len(values), spread, f.Floor)
	if mean < f.Floor {
		t.Errorf("%s: %.4f (spread %.4f over %d trials) is below the floor %v; measured when it was set: %v, spread %v", what, mean, spread, len(values), f.Floor, f.Measured, f.Spread)
	}
}

// PolicyBytes is the file that save writes at a path, as agent.Trained.Save does.
func PolicyBytes(t testing.TB, save func(path string) error) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.safetensors")
	if err := save(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
