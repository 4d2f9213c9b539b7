package baseline

import (
	"math"
	"slices"
	"testing"

	"evenkeel/agent"
	"evenkeel/cluster"
	"evenkeel/cluster/gradient"
	"evenkeel/internal/agenttest"
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

func TestWorth(t *testing.T) {
	var s gradient.NoiseScale
	if got := worth(&s, 7); got != 7 {
		t.Errorf("7 samples at an unknown noise scale are worth %v", got)
	}
	report := agenttest.Measured([]int{10, 20, 1}, 1, 1, 1)
	withNoise(report, 40)
	s.Add(report)
	if got := worth(&s, 40); math.Abs(got-20) > 1e-9 {
		t.Errorf("a batch of the noise scale is worth %v of 40 samples, want half", got)
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
