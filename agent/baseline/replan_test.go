package baseline

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/internal/agenttest"
)

// Three nodes take 0.5 s and 0.1 s a sample, in micro-steps of 2: at equal speed 8, 8 and 8
// of 24. A micro-step adds 0.2 s at slowdown 1.
func TestReplanByHand(t *testing.T) {
	c := agenttest.Lines(t, 24, 0.1, 0.1, 0.1)
	for i := range c.Nodes {
		c.Nodes[i].Limit = 2
	}
	p := NewReplan(c, 2, 0.2)
	holds := func(what string, sizes []int, want ...int) {
		t.Helper()
		if !slices.Equal(sizes, want) {
			t.Fatalf("%s: %v, want %v", what, sizes, want)
		}
	}
	own := func(i, b int) float64 { return c.Nodes[i].Finish(c.Nominal()[i], b) }
	first := ended(t, p, make([]int, 3))
	holds("equal", first.Sizes, 8, 8, 8)
	if math.Abs(first.Finish-own(0, 8)) > 1e-12 {
		t.Errorf("finish %v, want %v", first.Finish, own(0, 8))
	}
	// 15% slower is no shift.
	next := ended(t, p, first.Sizes, 1.15*own(0, 8), own(1, 8), own(2, 8))
	holds("below the threshold", next.Sizes, 8, 8, 8)
	// 1.29 next: the mean of two is 1.22, which is one. A micro-step of node 0 takes 1.22 times
	// as long, so 6 of its samples and 10 of another are as late as 8 of its own.
	next = ended(t, p, next.Sizes, 1.29*own(0, 8), own(1, 8), own(2, 8))
	best, sizes := wholeSteps(c, []float64{1.22, 1, 1})
	if math.Abs(next.Finish-best) > 1e-9 {
		t.Errorf("finish %v with %v, by trying all %v with %v", next.Finish, next.Sizes, best, sizes)
	}
	// Back at 1.25 twice: within 20% of 1.22, so the plan stays.
	for range 2 {
		again := ended(t, p, next.Sizes, 1.25*own(0, next.Sizes[0]), own(1, next.Sizes[1]), own(2, next.Sizes[2]))
		holds("near the plan", again.Sizes, next.Sizes...)
	}
	// Four times slower, once: the mean is 2.625.
	slow := ended(t, p, next.Sizes, 4*own(0, next.Sizes[0]), own(1, next.Sizes[1]), own(2, next.Sizes[2]))
	if best, sizes := wholeSteps(c, []float64{2.625, 1, 1}); math.Abs(slow.Finish-best) > 1e-9 || slow.Sizes[0] >= next.Sizes[0] {
		t.Errorf("finish %v with %v, by trying all %v with %v", slow.Finish, slow.Sizes, best, sizes)
	}
	// A node that goes is a reason by itself.
	plan := cluster.Plan{Sizes: make([]int, 3)}
	if err := p.Decide(nil, []bool{false, true, true}, &plan); err != nil {
		t.Fatal(err)
	}
	holds("without the first", plan.Sizes, 0, 12, 12)
}

// wholeSteps tries every number of micro-steps of three nodes at these slowdowns.
func wholeSteps(c *cluster.Cluster, slow []float64) (finish float64, sizes []int) {
	finish = math.Inf(1)
	full := []int{c.Nodes[0].Full(), c.Nodes[1].Full(), c.Nodes[2].Full()}
	for a := 0; a*full[0] <= c.GlobalBatch; a++ {
		for b := 0; a*full[0]+b*full[1] <= c.GlobalBatch; b++ {
			rest := c.GlobalBatch - a*full[0] - b*full[1]
			if rest%full[2] != 0 {
				continue
			}
			last := 0.0
			for i, n := range []int{a * full[0], b * full[1], rest} {
				if n > 0 {
					p := c.Nominal()[i]
					last = max(last, slow[i]*(p.Overhead+p.PerSample*c.Nodes[i].Cost(n)))
				}
			}
			if last < finish {
				finish, sizes = last, []int{a * full[0], b * full[1], rest}
			}
		}
	}
	return finish, sizes
}

// The whole micro-steps are the best ones, by trying all; without any that make up the batch
// a last one is smaller.
func TestReplanIsBest(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	odd := 0
	for range 300 {
		c := agenttest.Lines(t, 10+rng.IntN(60), 0.05+rng.Float64(), 0.05+rng.Float64(), 0.05+rng.Float64())
		for i := range c.Nodes {
			c.Nodes[i].Limit = 2 + rng.IntN(6)
		}
		plan := cluster.Plan{Sizes: make([]int, 3)}
		if err := NewReplan(c, 1, 0.1).Decide(nil, nil, &plan); err != nil {
			t.Fatal(err)
		}
		want, sizes := wholeSteps(c, []float64{1, 1, 1})
		if sizes == nil {
			odd++
			agenttest.CheckSizes(t, c, nil, plan.Sizes)
			continue
		}
		for i, b := range plan.Sizes {
			if b%c.Nodes[i].Full() != 0 {
				t.Fatalf("%v is not made of whole micro-steps of %d", plan.Sizes, c.Nodes[i].Full())
			}
		}
		if math.Abs(plan.Finish-want) > 1e-9*want {
			t.Fatalf("%v ends at %v, %v at %v", plan.Sizes, plan.Finish, sizes, want)
		}
	}
	if odd == 0 {
		t.Error("no batch that whole micro-steps do not make up")
	}
}

// Four nodes, K half of them, tau 1.5, gamma 0.5. Arrivals at 1, 2, 3 and 9 s: the quorum is in
// at 2 s, a typical node at 3, so the slack is 4.5 - 2 = 2.5 s, and half of it is waited.
func TestGraceWindowByHand(t *testing.T) {
	c := agenttest.Lines(t, 40, 0.1, 0.1, 0.1, 0.1)
	p := NewGraceWindow(c, GraceWindow{Quorum: 0.5, Steps: 1.5, Use: 0.5}, WaterFill{Gain: 0.5})
	grace := func(plan cluster.Plan, quorum, seconds float64) {
		t.Helper()
		got := plan.Collect
		if got.Quorum.Share != quorum || math.Abs(got.Grace.Seconds()-seconds) > 1e-8 || got.GraceShare != 0 {
			t.Fatalf("%+v, want a quorum of %v and %v s", got, quorum, seconds)
		}
	}
	sizes := []int{10, 10, 10, 10}
	after := func(p agent.Policy, seconds ...float64) cluster.Plan {
		t.Helper()
		report := agenttest.Measured(sizes, seconds...)
		report.Wait = time.Duration(slices.Max(seconds) * 1e9)
		for i := range report.Nodes {
			report.Nodes[i].Idle = slices.Max(seconds) - seconds[i]
		}
		plan := cluster.Plan{Sizes: slices.Clone(sizes), Collect: cluster.Collect{GraceShare: 0.3}}
		if err := p.Decide(report, nil, &plan); err != nil {
			t.Fatal(err)
		}
		return plan
	}
	grace(ended(t, p, make([]int, 4)), 1, 0) // nothing is known: all are waited for
	grace(after(p, 1, 2, 3, 9), 0.5, 1.25)
	// Then 5, 6, 7 and 8 s: the averages move by a tenth, to 3.4 and 2.4 s.
	grace(after(p, 5, 6, 7, 8), 0.5, 0.5*(1.5*3.4-2.4))
	late := NewGraceWindow(c, GraceWindow{Quorum: 1, Steps: 1.5, Use: 1}, WaterFill{Gain: 0.5})
	grace(after(late, 1, 1, 1, 9), 1, 0) // the quorum was later than that: no wait
}
