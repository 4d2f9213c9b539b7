package live

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/cluster"
	noise "evenkeel/cluster/gradient"
)

// plain is a cluster of ranks without profiles.
func plain(batch, ranks int) *cluster.Cluster {
	c := &cluster.Cluster{Workload: "w", GlobalBatch: batch}
	for i := range ranks {
		c.Nodes = append(c.Nodes, cluster.Node{Name: fmt.Sprint(i), Device: "cpu", Limit: batch})
	}
	return c
}

// round is a report in which every rank computes its share.
func round(number, plan int, shares []int) *Report {
	r := &Report{Round: number, Plan: plan, WaitSeconds: 1}
	for _, s := range shares {
		r.Ranks = append(r.Ranks, &RankReport{Seconds: 0.5, Samples: s, MicroSteps: min(s, 1)})
	}
	return r
}

// twin is what a generation should be: everything is kept, and looked up.
type twin struct {
	plans map[int][]int
	seen  []int // rounds that were accepted, as they came
}

func (t *twin) judge(r *Report) (Verdict, bool) {
	newest := 0
	for n := range t.plans {
		newest = max(newest, n)
	}
	shares, known := t.plans[r.Plan]
	last := -1
	for _, n := range t.seen {
		last = max(last, n)
	}
	switch {
	case !known:
		return 0, false
	case r.Plan <= newest-Behind-1:
		return Old, true
	case r.Round > last+maxGap:
		return 0, false
	case slices.Contains(t.seen, r.Round) && r.Round > last-64:
		return Duplicate, true
	case r.Round <= last:
		return Old, true
	}
	for i, x := range r.Ranks {
		if x != nil && x.Samples > shares[i] {
			return 0, false
		}
	}
	return Accepted, true
}

// Reports in any order are judged as by a twin that keeps everything; only an accepted report
// changes anything.
func TestVerdicts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const ranks = 3
		g, tw := NewGeneration(plain(64, ranks)), &twin{plans: map[int][]int{}}
		now := time.Duration(0)
		hand := func() {
			n := len(tw.plans) + 1
			shares := []int{rapid.IntRange(0, 20).Draw(t, "share"), 10, 0}
			tw.plans[n] = shares
			g.Hand(cluster.Plan{Number: n, Sizes: shares}, now)
		}
		hand()
		var sent []*Report
		for range rapid.IntRange(1, 80).Draw(t, "events") {
			now += time.Millisecond
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0, 1:
				hand()
				continue
			case 2:
				for range Behind {
					hand()
				}
				continue
			case 3, 4:
				if len(sent) > 0 { // again, or out of order
					sent = append(sent, sent[rapid.IntRange(max(len(sent)-5, 0), len(sent)-1).Draw(t, "which")])
					break
				}
				fallthrough
			default:
				plan := len(tw.plans) - rapid.IntRange(-1, 4).Draw(t, "lag")
				shares := tw.plans[plan]
				if shares == nil {
					shares = []int{0, 0, 0}
				}
				next := len(sent) + rapid.SampledFrom([]int{-70, -2, -1, 0, 0, 0, 0, 1, 5, 70, 2 * maxGap}).Draw(t, "jump")
				r := round(max(next, 0), plan, shares)
				if i := rapid.IntRange(0, 20).Draw(t, "rank"); i < ranks {
					r.Ranks[i].Samples++
					r.Ranks[i].MicroSteps = 1
				} else if i < 2*ranks {
					r.Ranks[i-ranks] = nil
				}
				sent = append(sent, r)
			}
			r := sent[len(sent)-1]
			want, sound := tw.judge(r)
			got, report, err := g.Take(r, now)
			if (err == nil) != sound || sound && got != want {
				t.Fatalf("round %d of plan %d after %v: %v, %v; want %v, %v", r.Round, r.Plan, tw.seen, got, err, want, sound)
			}
			if (report != nil) != (sound && want == Accepted) {
				t.Fatalf("%v: report %v", want, report)
			}
			if report == nil {
				continue
			}
			tw.seen = append(tw.seen, r.Round)
			accepted := 0
			for i, x := range r.Ranks {
				n := &report.Nodes[i]
				switch share := tw.plans[r.Plan][i]; {
				case x == nil && share > 0 && n.Status != cluster.Lost,
					(x == nil || x.Samples == 0) && share == 0 && n.Status != cluster.Absent,
					x != nil && x.Samples > 0 && (n.Status != cluster.In || n.Size != x.Samples || n.Idle != 0.5):
					t.Fatalf("rank %d of share %d: %+v from %+v", i, share, n, x)
				}
				if x != nil {
					accepted += x.Samples
				}
			}
			if report.Plan != r.Plan || report.Accepted != accepted || report.Wait != time.Second {
				t.Fatalf("%+v", report)
			}
		}
	})
}

// A report that cannot be true is refused with its field, and leaves no trace: the same round is
// accepted afterwards.
func TestMalformed(t *testing.T) {
	for name, x := range map[string]struct {
		path  string
		spoil func(*Report)
	}{
		"another world size":  {"ranks", func(r *Report) { r.Ranks = r.Ranks[:1] }},
		"no ranks":            {"ranks", func(r *Report) { r.Ranks = nil }},
		"a rank twice":        {"ranks", func(r *Report) { r.Ranks = append(r.Ranks, r.Ranks[0]) }},
		"plan 0":              {"plan", func(r *Report) { r.Plan = 0 }},
		"a future plan":       {"plan", func(r *Report) { r.Plan = 2 }},
		"a negative round":    {"round", func(r *Report) { r.Round = -1 }},
		"a future round":      {"round", func(r *Report) { r.Round = maxGap }},
		"no wait":             {"wait_seconds", func(r *Report) { r.WaitSeconds = 0 }},
		"NaN wait":            {"wait_seconds", func(r *Report) { r.WaitSeconds = math.NaN() }},
		"an absurd wait":      {"wait_seconds", func(r *Report) { r.WaitSeconds = 1e9 }},
		"infinite norm":       {"norm_squared", func(r *Report) { r.NormSquared = math.Inf(1) }},
		"negative norm":       {"ranks[0].norm_squared", func(r *Report) { r.Ranks[0].NormSquared = -1 }},
		"NaN":                 {"ranks[1].seconds", func(r *Report) { r.Ranks[1].Seconds = math.NaN() }},
		"negative":            {"ranks[1].seconds", func(r *Report) { r.Ranks[1].Seconds = -1 }},
		"absurd":              {"ranks[1].seconds", func(r *Report) { r.Ranks[1].Seconds = 1e9 }},
		"no time":             {"ranks[1].seconds", func(r *Report) { r.Ranks[1].Seconds = 0 }},
		"more than the share": {"ranks[0].samples", func(r *Report) { r.Ranks[0].Samples = 41 }},
		"negative samples":    {"ranks[0].samples", func(r *Report) { r.Ranks[0].Samples = -1 }},
		"no micro-step":       {"ranks[0].micro_steps", func(r *Report) { r.Ranks[0].MicroSteps = 0 }},
		"too many":            {"ranks[0].micro_steps", func(r *Report) { r.Ranks[0].MicroSteps = 41 }},
		"memory":              {"ranks[0].out_of_memory", func(r *Report) { r.Ranks[0].OutOfMemory = 65 }},
		"negative memory":     {"ranks[0].out_of_memory", func(r *Report) { r.Ranks[0].OutOfMemory = -1 }},
	} {
		g := NewGeneration(plain(64, 2))
		shares := []int{40, 24}
		g.Hand(cluster.Plan{Number: 1, Sizes: shares}, 0)
		r := round(0, 1, shares)
		x.spoil(r)
		_, report, err := g.Take(r, 0)
		var f Faults
		if !errors.As(err, &f) || f[0].Path != x.path || report != nil {
			t.Errorf("%s: %v, want a fault of %s", name, err, x.path)
		}
		if v, _, err := g.Take(round(0, 1, shares), 0); v != Accepted || err != nil {
			t.Errorf("after %s: %v, %v", name, v, err)
		}
	}
}

// The conversion of a rank's report for the controller, by hand.
func TestReading(t *testing.T) {
	g := NewGeneration(plain(64, 5))
	g.Hand(cluster.Plan{Number: 1, Sizes: []int{16, 16, 16, 16, 0}}, 0)
	_, got, err := g.Take(&Report{Round: 3, Plan: 1, WaitSeconds: 2, NormSquared: 4, Ranks: []*RankReport{
		{Seconds: 1.5, Samples: 16, MicroSteps: 2, NormSquared: 16}, {Seconds: 2.5, Samples: 8, MicroSteps: 1, NormSquared: 1, OutOfMemory: 16},
		{OutOfMemory: 16}, nil, nil,
	}}, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	want := []cluster.NodeReport{
		{Status: cluster.In, Size: 16, Steps: 2, Seconds: 1.5, Samples: 16, Age: 1.5, Idle: 0.5, Norm: 2, Agree: 0.5},
		{Status: cluster.In, Size: 8, Samples: 8, Age: 2.5, Norm: 0.5, Agree: 1, OOM: true, TooLarge: 16},
		{Status: cluster.Lost, OOM: true, TooLarge: 16},
		{Status: cluster.Lost},
		{},
	}
	if !slices.Equal(got.Nodes, want) {
		t.Errorf("\n%+v, want\n%+v", got.Nodes, want)
	}
	if got.Round != 3 || got.Plan != 1 || got.Start != 3*time.Second || got.Wait != 2*time.Second || got.Accepted != 24 || got.Counted != 24 {
		t.Errorf("%+v", got)
	}
}

// Rounds that bring no norms say nothing of the noise scale: with norms in one round of four it is that of these rounds.
func TestRoundsWithoutNorms(t *testing.T) {
	var all, some noise.NoiseScale
	g := NewGeneration(plain(40, 2))
	g.Hand(cluster.Plan{Number: 1, Sizes: []int{10, 30}}, 0)
	for n := range 16 {
		r := round(n, 1, []int{10, 30})
		if n%4 == 0 {
			r.NormSquared, r.Ranks[0].NormSquared, r.Ranks[1].NormSquared = 1, 2, 10.0/9
		}
		_, got, err := g.Take(r, 0)
		if err != nil {
			t.Fatal(err)
		}
		if some.Add(got); n%4 == 0 {
			all.Add(got)
		}
	}
	if some != all {
		t.Errorf("%+v, want %+v", some, all)
	}
	if scale, known := some.Samples(); !known || math.Abs(scale-20) > 1e-9 { // by hand: V = 40/3, |G|^2 = 2/3
		t.Error(scale, known)
	}
}

// Under a deadline a rank may go beyond its share, one without a share may not; and the deadline waits
// until every rank with a share has been measured.
func TestDeadline(t *testing.T) {
	c := plain(64, 3)
	c.Collect.AutoDeadline = true
	g := NewGeneration(c)
	if c.Collect.Timed() {
		t.Error("a deadline before anything was measured")
	}
	g.Hand(cluster.Plan{Number: 1, Sizes: []int{32, 32, 0}}, 0)
	for n, timed := range []bool{false, true} {
		r := round(n, 1, []int{32, 32, 0})
		if n == 0 {
			r.Ranks[1] = nil
		}
		v, report, err := g.Take(r, 0)
		if v != Accepted || err != nil {
			t.Fatal(v, err)
		}
		if g.Observe(report); c.Collect.AutoDeadline != timed {
			t.Errorf("round %d: %v, %v, deadline %v", n, v, err, c.Collect.AutoDeadline)
		}
	}
	g.Hand(cluster.Plan{Number: 2, Sizes: []int{32, 32, 0}, Collect: cluster.Collect{Deadline: time.Second}}, 0)
	big := round(2, 2, []int{32, 32, 0})
	big.Ranks[0].OutOfMemory = 64 // beyond the share, as the rank went
	if v, _, err := g.Take(big, 0); v != Accepted || err != nil {
		t.Errorf("memory ran out beyond the share: %v, %v", v, err)
	}
	for shares, sound := range map[[3]int]bool{{64, 1, 0}: true, {32, 32, 1}: false} {
		g.last = 2
		if _, _, err := g.Take(round(3, 2, shares[:]), 0); (err == nil) != sound {
			t.Errorf("%v: %v", shares, err)
		}
	}
}
