package baseline

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/agent/internal/agenttest"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/sim"
)

// withNoise gives a report the gradients that a noise scale, in samples, shows.
func withNoise(r *cluster.Report, scale float64) {
	for i := range r.Nodes {
		if n := &r.Nodes[i]; n.Size > 0 {
			n.Norm = math.Sqrt((1 + scale/float64(n.Size)) / (1 + scale/float64(r.Accepted)))
			n.Agree = 1 / n.Norm
		}
	}
}

func TestNoiseScale(t *testing.T) {
	var s noiseScale
	if _, known := s.samples(); known || s.worth(7) != 7 {
		t.Error("something is known of nothing")
	}
	s.add(agenttest.Measured([]int{10, 20}, 1, 1)) // norms of 1
	if scale, known := s.samples(); known {
		t.Errorf("gradients without noise: scale %v", scale)
	}
	for _, scale := range []float64{0.5, 40, 3000} {
		s = noiseScale{}
		for _, sizes := range [][]int{{10, 20, 1}, {5, 6, 40}, {200, 1, 1}} {
			report := agenttest.Measured(sizes, 1, 1, 1)
			withNoise(report, scale)
			s.add(report)
			if got, _ := s.samples(); math.Abs(got/scale-1) > 1e-9 {
				t.Errorf("scale %v, want %v", got, scale)
			}
		}
		if got := s.worth(scale); math.Abs(got-scale/2) > 1e-9*scale {
			t.Errorf("a batch of the scale is worth %v of %v samples, want half", got, scale)
		}
	}
	// It follows the simulator's, up to its smoothing.
	c := agenttest.Lines(t, 40, 0.1, 0.1, 0.1, 0.1)
	sm := sim.New(c, agenttest.Conditions(t, "bursts"), 1)
	p := NewGoodput(c, 1000, WaterFill{Gain: 0.5}).(*batchGoodput)
	ctl := agent.Control{Cluster: c, Runner: sm, Policy: p}
	for range 200 {
		if _, err := ctl.Round(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if got, _ := p.noise.samples(); math.Abs(got/sm.Scale()-1) > 0.05 {
		t.Errorf("scale %v, the simulator's is %v", got, sm.Scale())
	}
}

// Two nodes of 0.5 + b/10 seconds take (10+B)/20 for a batch B: at noise scale S goodput
// goes with B/((S+B)(10+B)), whose maximum is at the root of 10 S.
func TestGoodputByHand(t *testing.T) {
	c := agenttest.Lines(t, 20, 0.1, 0.1)
	next := func(p agent.Policy, present []bool, scale float64) []int {
		plan := cluster.Plan{Sizes: make([]int, 2)}
		report := agenttest.Measured([]int{10, 10}, 1.5, 1.5)
		withNoise(report, scale)
		if err := p.Decide(report, present, &plan); err != nil {
			t.Fatal(err)
		}
		return plan.Sizes
	}
	for _, x := range []struct {
		scale float64
		want  []int
	}{
		{0, []int{10, 10}},     // nothing is known
		{40, []int{10, 10}},    // B = 20 is the best
		{90, []int{10, 10}},    // 30 is 3% better: too little
		{360, []int{30, 30}},   // 60 is 16% better, and the 45th of the 50 sizes
		{1e5, []int{40, 40}},   // four times the batch
		{1e300, []int{40, 40}}, // nothing but noise
		{2.5, []int{3, 3}},     // a quarter would be 5, but a sixth sample costs no time
	} {
		p := NewGoodput(c, 1, WaterFill{Gain: 1})
		decide(t, p, make([]int, 2), []int{10, 10})
		if got := next(p, nil, x.scale); !slices.Equal(got, x.want) {
			t.Errorf("noise scale %v: sizes %v, want %v", x.scale, got, x.want)
		}
	}
	if c.GlobalBatch != 20 {
		t.Errorf("the cluster's own batch became %d", c.GlobalBatch)
	}
	// Only every so many rounds.
	p := NewGoodput(c, 3, WaterFill{Gain: 1})
	for round, want := range [][]int{{10, 10}, {10, 10}, {30, 30}, {30, 30}} {
		if got := next(p, nil, 360); !slices.Equal(got, want) {
			t.Errorf("round %d: %v, want %v", round, got, want)
		}
	}
	// Each micro-step costs half a second at all: of the 50 sizes, just below two full ones each
	// is best, and what four micro-steps hold remains so for one node.
	tight := *c
	tight.Nodes = slices.Clone(c.Nodes)
	tight.Nodes[0].Limit, tight.Nodes[1].Limit = 14, 14
	p = NewGoodput(&tight, 1, WaterFill{Gain: 1})
	for _, x := range []struct {
		present []bool
		want    []int
	}{{nil, []int{27, 27}}, {[]bool{true, false}, []int{54, 0}}, {nil, []int{27, 27}}} {
		if got := next(p, x.present, 1e5); !slices.Equal(got, x.want) {
			t.Errorf("present %v: %v, want %v", x.present, got, x.want)
		}
	}
	bounded := *c
	bounded.Choices = cluster.Choices{LeastBatch: 16, MostBatch: 24}
	if got := next(NewGoodput(&bounded, 1, WaterFill{Gain: 1}), nil, 1e5); !slices.Equal(got, []int{12, 12}) {
		t.Errorf("at most 24: %v", got)
	}
}
