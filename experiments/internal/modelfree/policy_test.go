package modelfree

import (
	"math"
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/internal/agenttest"
)

func TestApplyByHand(t *testing.T) {
	const less, hold, more = 0, 3, 6 // 0.8, 1, 1.25
	c, sizes := agenttest.Lines(t, 40, 0.1, 0.1, 0.1, 0.1), make([]int, 4)
	p := New(c, nil)
	for k, x := range []struct{ actions, want []int }{
		{[]int{hold, hold, hold, hold}, []int{10, 10, 10, 10}},
		{[]int{less, hold, hold, more}, []int{8, 10, 10, 12}}, // 7.9, 9.9, 9.9, 12.3
		{[]int{less, less, less, less}, []int{8, 10, 10, 12}}, // the fleet as one changes nothing
		{[]int{less, more, hold, hold}, []int{6, 12, 10, 12}}, // 6.1, 11.9, 9.6, 11.9 (weights 6.3, 12.3, 9.9, 12.3)
	} {
		if err := p.Apply(x.actions, nil, sizes); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(sizes, x.want) {
			t.Fatalf("step %d: sizes %v, want %v", k, sizes, x.want)
		}
	}
}

// Rows are free of scale, finite when nothing was measured, and see who is slow.
func TestRows(t *testing.T) {
	rows := func(unit float64) []float32 {
		c, sizes := agenttest.Lines(t, 30, 0.1, 0.1, 0.1), make([]int, 3)
		p := New(c, nil)
		if err := p.Apply(p.actions, nil, sizes); err != nil {
			t.Fatal(err)
		}
		p.Observe(agenttest.Measured(sizes, unit, unit, 4*unit))
		return p.Rows(nil)
	}
	a, b := rows(1), rows(1000)
	for i := range a {
		if math.Abs(float64(a[i]-b[i])) > 1e-6 {
			t.Errorf("feature %d hangs on the unit of time: %v, %v", i%Features, a[i], b[i])
		}
	}
	if want := float32(4 * math.Log(0.5)); a[0] != want || a[2*Features] != float32(4*math.Log(2)) {
		t.Errorf("times over the mean %v and %v, want %v and its opposite", a[0], a[2*Features], want)
	}
	p := New(agenttest.Lines(t, 30, 0.1, 0.1, 0.1), nil)
	p.Observe(&cluster.Report{Nodes: make([]cluster.NodeReport, 3)})
	for i, v := range p.Rows(nil) {
		if v-v != 0 {
			t.Errorf("nothing measured: feature %d is %v", i%Features, v)
		}
	}
}
