package planner

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/planner/layerprofile"
)

// All global batches together have one limit of work: 24 alone takes nearly all of it.
func TestExhaustOneLimit(t *testing.T) {
	nodes, l := "nodes:\n", layerprofile.Layer{Parameters: 1, Output: 1}
	for i, device := range []string{"a", "b", "c", "d"} {
		nodes += fmt.Sprintf("- {device: %s, count: 2, per_machine: 1, memory: 1GiB}\n", device)
		for _, n := range []int{1, 4096} {
			s := float64((1 + i) * (8 + n))
			l.Runs = append(l.Runs, layerprofile.Run{Device: device, Tensor: 1, MicroBatch: n, Forward: s, Backward: 2 * s})
		}
	}
	top, err := cluster.ReadTopology(strings.NewReader(nodes), "hand", nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &layerprofile.Profile{Layers: []layerprofile.Layer{l, l}}
	if err := p.Finish("hand"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		batches []int
		all     bool
	}{{[]int{24}, true}, {[]int{13, 24}, false}} {
		j, err := NewJob(p, top, Options{GlobalBatches: c.batches})
		if err != nil {
			t.Fatal(err)
		}
		var r Result
		if _, err := j.exhaust(context.Background(), nil, &r); err != nil || r.Exhausted != c.all {
			t.Errorf("%v: every plan tried: %v, %v", c.batches, r.Exhausted, err)
		}
	}
}
