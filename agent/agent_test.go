package agent

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/env"
	"evenkeel/internal/agenttest"
)

// compareRuns runs two policies side by side under one seed and counts the rounds in
// which their sizes differ.
func compareRuns(t *testing.T, c *cluster.Cluster, a, b Policy, rounds int) (differ int) {
	t.Helper()
	conditions := agenttest.Conditions(t, "interference")
	first := Control{Cluster: c, Runner: sim.New(c, conditions, 9), Policy: a}
	second := Control{Cluster: c, Runner: sim.New(c, conditions, 9), Policy: b}
	for range rounds {
		x, err := first.Round(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		y, err := second.Round(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(x.Plan.Sizes, y.Plan.Sizes) {
			differ++
		}
	}
	return differ
}

func TestFallsBackOutOfRange(t *testing.T) {
	c, trained := agenttest.HeldOut16(t), untrained(t, 8)
	for i := range trained.Record.Low {
		trained.Record.Low[i], trained.Record.High[i] = 50, 51
	}
	a := trained.NewAgent(c, agenttest.Speed)
	if n := compareRuns(t, c, a, NewModel(c), 60); n != 0 {
		t.Errorf("%d rounds differ from the model's", n)
	}
	if want := 59 * 16; a.Fallbacks != want || a.Decisions != want {
		t.Errorf("%d fallbacks of %d decisions, want %d of each", a.Fallbacks, a.Decisions, want)
	}
	// One feature out of range is enough; up to a fifth beyond the range and 0.001 is in range; NaN is not.
	in := untrained(t, 8)
	row := make([]float32, env.Features)
	for _, x := range []struct {
		v    float32
		want bool
	}{{0, true}, {100, true}, {139, true}, {141, false}, {-139, true}, {-141, false}, {float32(math.NaN()), false}} {
		row[7] = x.v
		wide := newBounds(in.Record.Low, in.Record.High)
		if got := wide.contains(row); got != x.want {
			t.Errorf("%v in range %v, want %v", x.v, got, x.want)
		}
	}
}

func TestFallsBackWithoutAdvantage(t *testing.T) {
	c, trained := agenttest.HeldOut16(t), untrained(t, 8)
	a := trained.NewAgent(c, agenttest.Speed)
	a.guard = nil
	if n := compareRuns(t, c, a, NewModel(c), 10); n == 0 {
		t.Error("a random network decides like the model")
	}
	if a.Fallbacks != 0 {
		t.Errorf("%d fallbacks inside the ranges", a.Fallbacks)
	}
	trained.Record.Advantage = 1e6
	a = trained.NewAgent(c, agenttest.Speed)
	if n := compareRuns(t, c, a, NewModel(c), 60); n != 0 || a.Fallbacks != 0 {
		t.Errorf("%d rounds differ from the model's, %d fallbacks", n, a.Fallbacks)
	}
}

// The weights decide what is best: with a network whose objectives disagree, each
// preference leads to another action.
func TestWeightsRule(t *testing.T) {
	q := make([]float32, len(env.Actions)*env.Objectives)
	for o := range env.Objectives {
		q[(3+o)*env.Objectives+o] = 1
	}
	for o := range env.Objectives {
		var w [env.Objectives]float64
		w[o] = 1
		if got := greedy(q, w); got != 3+o {
			t.Errorf("objective %d: action %d", o, got)
		}
		if got := value(q, 3+o, w); got != 1 {
			t.Errorf("objective %d: value %v", o, got)
		}
	}
}

func TestDecisionsFollowThePermutationOfNodes(t *testing.T) {
	trained := embeddedPolicy(t)
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(2, 10).Draw(rt, "nodes")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		per := make([]float64, n)
		for i := range per {
			per[i] = 0.02 + 0.1*rng.Float64()
		}
		a := agenttest.Lines(t, 30*n, per...)
		to := rng.Perm(n)
		b := *a
		b.Nodes = make([]cluster.Node, n)
		for i, k := range to {
			b.Nodes[k] = a.Nodes[i]
		}
		pa, pb := trained.NewAgent(a, agenttest.Speed), trained.NewAgent(&b, agenttest.Speed)
		sa, sb := make([]int, n), make([]int, n)
		var ra, rb *cluster.Report
		for round := range 15 {
			if err := pa.Decide(ra, nil, &cluster.Plan{Sizes: sa}); err != nil {
				rt.Fatal(err)
			}
			if err := pb.Decide(rb, nil, &cluster.Plan{Sizes: sb}); err != nil {
				rt.Fatal(err)
			}
			secondsA, secondsB := make([]float64, n), make([]float64, n)
			for i, k := range to {
				if pa.actions[i] != pb.actions[k] || sa[i] != sb[k] || pa.Performance()[i] != pb.Performance()[k] {
					rt.Fatalf("round %d, node %d: action %d, size %d; at place %d %d and %d", round, i, pa.actions[i], sa[i], k, pb.actions[k], sb[k])
				}
				secondsA[i] = (0.5 + per[i]*float64(sa[i])) * math.Exp(0.05*rng.NormFloat64())
				secondsB[k] = secondsA[i]
			}
			ra, rb = agenttest.Measured(sa, secondsA...), agenttest.Measured(sb, secondsB...)
		}
	})
}

// The dead band keeps sizes exactly where they still sum to the batch, give work to the
// nodes that are there, and are predicted to take at most 0.05% longer than the best.
func TestDeadBand(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(2, 5).Draw(rt, "nodes")
		per := make([]float64, n)
		for i := range per {
			per[i] = rapid.Float64Range(0.05, 0.2).Draw(rt, "per sample")
		}
		c := agenttest.Lines(t, 400*n, per...)
		perf, before, fresh, present := c.Nominal(), make([]int, n), make([]int, n), make([]bool, n)
		for i := range present {
			present[i] = true
		}
		var d deadBand
		finish, err := cluster.Allocate(c, present, perf, fresh)
		if err != nil {
			rt.Fatal(err)
		}
		if got := d.apply(c, perf, finish, fresh, before); got != finish || !slices.Equal(before, fresh) {
			rt.Fatalf("first decision: %v, want %v", before, fresh)
		}
		for i := range perf {
			perf[i].PerSample *= 1 + rapid.Float64Range(-0.002, 0.002).Draw(rt, "change")
		}
		if n > 2 && rapid.Bool().Draw(rt, "leaves") {
			present[0] = false
		}
		if finish, err = cluster.Allocate(c, present, perf, fresh); err != nil {
			rt.Fatal(err)
		}
		kept := 0.0
		for i, b := range before {
			kept = max(kept, c.Nodes[i].Finish(perf[i], b))
		}
		sizes := slices.Clone(before)
		got := d.apply(c, perf, finish, fresh, sizes)
		want, wantFinish := fresh, finish
		if present[0] && kept <= finish*(1+changePays) {
			want, wantFinish = before, kept
		}
		if !slices.Equal(sizes, want) || got != wantFinish {
			rt.Fatalf("present %v: sizes %v in %v s, want %v in %v s", present, sizes, got, want, wantFinish)
		}
	})
}

// Even the slowest joiner gets work, although the round is shorter without it.
func TestSizesFollowPresenceAtOnce(t *testing.T) {
	c := agenttest.Lines(t, 600, 0.1, 0.1, 50)
	a, sizes := NewModel(c), make([]int, 3)
	for _, present := range [][]bool{{true, true, false}, {true, true, true}, {true, false, true}, {true, true, true}, {false, true, true}} {
		if err := a.Decide(nil, present, &cluster.Plan{Sizes: sizes}); err != nil {
			t.Fatal(err)
		}
		agenttest.CheckSizes(t, c, present, sizes)
	}
}

// In a cluster that keeps to its profiles the sizes never change.
func TestSteadySizesStay(t *testing.T) {
	c := agenttest.HeldOut16(t)
	ctl := Control{Cluster: c, Runner: sim.New(c, cluster.Conditions{}, 1), Policy: NewModel(c)}
	var first []int
	for k := range 50 {
		r, err := ctl.Round(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if k == 0 {
			first = slices.Clone(r.Plan.Sizes)
		} else if !slices.Equal(first, r.Plan.Sizes) {
			t.Fatalf("round %d: sizes went from %v to %v", k, first, r.Plan.Sizes)
		}
	}
}
