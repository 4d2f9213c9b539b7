package env

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/cluster"
	"evenkeel/env/internal/envtest"
)

// widest is what no entry of a row exceeds in absolute value, see env/episode.
const widest = 8

// ownFeatures is the number of entries that speak of the node itself; the fleet's and
// the weights follow.
const ownFeatures = 26

// randomReport draws a round of c, with nodes in every state.
func randomReport(rng *rand.Rand, c *cluster.Cluster) *cluster.Report {
	report := &cluster.Report{Nodes: make([]cluster.NodeReport, len(c.Nodes))}
	wait := 0.0
	for i := range report.Nodes {
		r := &report.Nodes[i]
		r.Status = cluster.In
		if rng.IntN(4) == 0 {
			r.Status = cluster.Status(rng.IntN(5))
		}
		if r.Status == cluster.Absent || r.Status == cluster.Lost {
			continue
		}
		r.Size = 1 + rng.IntN(60)
		p := c.Nodes[i].Profile
		if p == nil {
			p = c.Nodes[i].Hidden.Profile
		}
		r.Seconds = p.Seconds(float64(r.Size)) * math.Exp(0.3*rng.NormFloat64())
		r.Age, r.Norm, r.Agree = r.Seconds*(1+rng.Float64()), math.Exp(rng.NormFloat64()), rng.Float64()
		wait = max(wait, r.Seconds)
	}
	report.Wait = time.Duration(wait * 1e9)
	return report
}

// permuted is report with node i at place to[i].
func permuted(report *cluster.Report, to []int) *cluster.Report {
	p := *report
	p.Nodes = make([]cluster.NodeReport, len(to))
	for i, k := range to {
		p.Nodes[k] = report.Nodes[i]
	}
	return &p
}

func TestRowsFollowThePermutationOfNodes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		a := envtest.Mixed(t, rapid.IntRange(2, 12).Draw(rt, "nodes"))
		n := len(a.Nodes)
		if k := n / 2; n > 4 {
			a.Nodes[k].Profile, a.Nodes[k].Hidden.Profile = nil, a.Nodes[k].Profile
		}
		to := rng.Perm(n)
		b := *a
		b.Nodes = make([]cluster.Node, n)
		for i, k := range to {
			b.Nodes[k] = a.Nodes[i]
		}
		ta, tb := NewTracker(a), NewTracker(&b)
		// An unknown profile needs a first measurement before it can be late.
		first := randomReport(rng, a)
		for i := range first.Nodes {
			if a.Nodes[i].Profile == nil {
				first.Nodes[i] = cluster.NodeReport{Status: cluster.In, Size: 9, Seconds: 1, Samples: 9}
			}
		}
		pa, pb := a.Nominal(), b.Nominal()
		actionsA, actionsB := make([]int, n), make([]int, n)
		for round := range 12 {
			report := first
			if round > 0 {
				report = randomReport(rng, a)
			}
			ta.Observe(report)
			tb.Observe(permuted(report, to))
			rowsA, rowsB := ta.Rows(nil, [Objectives]float64{1}), tb.Rows(nil, [Objectives]float64{1})
			for i, k := range to {
				for f := range Features {
					x, y := float64(rowsA[i*Features+f]), float64(rowsB[k*Features+f])
					if f < ownFeatures && x != y || math.Abs(x-y) > 1e-5 {
						rt.Fatalf("round %d, node %d, feature %d: %v, and %v at place %d", round, i, f, x, y, k)
					}
				}
				actionsA[i] = rng.IntN(len(Actions))
				actionsB[k] = actionsA[i]
			}
			ta.Apply(actionsA, pa)
			tb.Apply(actionsB, pb)
			for i, k := range to {
				if pa[i] != pb[k] {
					rt.Fatalf("round %d, node %d: %+v, and %+v at place %d", round, i, pa[i], pb[k], k)
				}
			}
		}
	})
}

// The same cluster on devices a thousand times slower looks the same.
func TestRowsAreFreeOfScale(t *testing.T) {
	const scale = 1000
	fast := envtest.Mixed(t, 9)
	slow := *fast
	slow.Nodes = append([]cluster.Node(nil), fast.Nodes...)
	for i := range slow.Nodes {
		n := &slow.Nodes[i]
		at0, per := n.Profile.Seconds(0), n.Profile.PerSample()
		n.Profile, n.Network = envtest.Line(t, at0*scale, per*scale), n.Network*scale
	}
	rng := rand.New(rand.NewPCG(6, 6))
	a, b := NewTracker(fast), NewTracker(&slow)
	pa, pb := fast.Nominal(), slow.Nominal()
	actions := make([]int, 9)
	for round := range 60 {
		report := randomReport(rng, fast)
		report.Wait = report.Wait.Round(time.Microsecond)
		scaled := permuted(report, []int{0, 1, 2, 3, 4, 5, 6, 7, 8})
		scaled.Wait *= scale
		for i := range scaled.Nodes {
			scaled.Nodes[i].Seconds *= scale
			scaled.Nodes[i].Age *= scale
		}
		a.Observe(report)
		b.Observe(scaled)
		x, y := a.Rows(nil, [Objectives]float64{1}), b.Rows(nil, [Objectives]float64{1})
		for i := range x {
			if math.Abs(float64(x[i]-y[i])) > 1e-4 {
				t.Fatalf("round %d, node %d, feature %d: %v and %v", round, i/Features, i%Features, x[i], y[i])
			}
		}
		for i := range actions {
			actions[i] = rng.IntN(len(Actions))
		}
		a.Apply(actions, pa)
		b.Apply(actions, pb)
		a.Predict(1)
		b.Predict(scale)
		for i := range pa {
			if math.Abs(pb[i].PerSample/(scale*pa[i].PerSample)-1) > 1e-9 {
				t.Fatalf("round %d, node %d: %v and %v seconds per sample", round, i, pa[i].PerSample, pb[i].PerSample)
			}
		}
	}
}

// A run that lasts far longer than training episodes still looks like one of them.
func TestRowsOfALongRun(t *testing.T) {
	r, rng := newRig(t, 3), rand.New(rand.NewPCG(8, 10))
	var at [2][]float32
	for round := range 5000 {
		r.round(-1, 1+0.02*rng.NormFloat64(), 1+0.02*rng.NormFloat64(), 1+0.02*rng.NormFloat64())
		switch round {
		case 999:
			at[0] = r.tracker.Rows(nil, [Objectives]float64{1})
		case 4999:
			at[1] = r.tracker.Rows(nil, [Objectives]float64{1})
		}
	}
	// Counters stop at the horizon; what is left to differ is noise.
	for _, f := range []int{7, 9, 13} {
		if at[0][f] != at[1][f] {
			t.Errorf("feature %d: %v after 1,000 rounds, %v after 5,000", f, at[0][f], at[1][f])
		}
	}
	for i, v := range at[1] {
		if !(math.Abs(float64(v)) <= widest) {
			t.Errorf("feature %d is %v", i%Features, v)
		}
	}
}

func TestRowsReuseTheirBuffer(t *testing.T) {
	r := newRig(t, 100)
	buffer := r.tracker.Rows(nil, [Objectives]float64{1})
	if n := testing.AllocsPerRun(20, func() { buffer = r.tracker.Rows(buffer, [Objectives]float64{1}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
