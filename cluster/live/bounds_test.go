package live

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
)

// Values on a bound are accepted, values beyond it are not.
func TestBoundsOfARegistration(t *testing.T) {
	most := cluster.MaxGlobalBatch
	job := func(batch int, m MicroBatch) *Registration {
		return &Registration{GlobalBatch: batch, Ranks: []Rank{{Name: "a", MicroBatch: m}}}
	}
	named := func(n int) *Registration {
		return &Registration{GlobalBatch: 1, Ranks: []Rank{{Name: strings.Repeat("x", n)}}}
	}
	many := &Registration{GlobalBatch: most, Ranks: make([]Rank, MaxRanks)}
	for i := range many.Ranks {
		many.Ranks[i].Name = strings.Repeat("x", i%200) + strings.Repeat("y", i/200) + "z"
	}
	for name, x := range map[string]struct {
		r    *Registration
		good bool
	}{
		"one sample": {job(1, MicroBatch{}), true}, "no sample": {job(0, MicroBatch{}), false},
		"largest batch": {job(most, MicroBatch{}), true}, "larger": {job(most+1, MicroBatch{}), false},
		"most ranks": {many, true}, "no rank": {&Registration{GlobalBatch: 1}, false},
		"longest name": {named(maxName), true}, "longer": {named(maxName + 1), false},
		"largest least": {job(8, MicroBatch{Least: most}), true}, "larger least": {job(8, MicroBatch{Least: most + 1}), false},
		"largest most": {job(8, MicroBatch{Most: most}), true}, "larger most": {job(8, MicroBatch{Most: most + 1}), false},
		"most is least": {job(8, MicroBatch{Least: 4, Most: 4}), true}, "most below least": {job(8, MicroBatch{Least: 4, Most: 3}), false},
		"no most": {job(8, MicroBatch{Least: 4}), true},
		"sizes":   {job(8, MicroBatch{Sizes: []int{1, most}}), true}, "a size of 0": {job(8, MicroBatch{Sizes: []int{0, 1}}), false},
		"a size beyond": {job(8, MicroBatch{Sizes: []int{1, most + 1}}), false}, "one size": {job(8, MicroBatch{Sizes: []int{4}}), true},
		"least and most of sizes": {job(8, MicroBatch{Least: 2, Most: 4, Sizes: []int{2, 4}}), true},
		"least above sizes":       {job(8, MicroBatch{Least: 3, Sizes: []int{2, 4}}), false}, "most below sizes": {job(8, MicroBatch{Most: 3, Sizes: []int{2, 4}}), false},
	} {
		if err := x.r.Validate(); (err == nil) != x.good {
			t.Errorf("%s: %v", name, err)
		}
	}
	var f Faults
	many.Ranks = nil
	for i := range maxFault + 1 {
		many.Ranks = append(many.Ranks, Rank{Name: strings.Repeat("x", i+1), MemoryBytes: -1})
	}
	if err := many.Validate(); !errors.As(err, &f) || len(f) != maxFault {
		t.Errorf("%d faults are listed, want %d", len(f), maxFault)
	}
	for given, want := range map[string]string{"": "unnamed", "mine": "mine"} {
		if c, err := named(1).Cluster(given, profile.Embedded()); err != nil || c.Workload != want {
			t.Errorf("workload %q: %v, %v", given, c, err)
		}
	}
}

// The same of reports.
func TestBoundsOfAReport(t *testing.T) {
	for seconds, good := range map[float64]bool{1e-9: true, maxSeconds: true, maxSeconds * 1.0001: false} {
		g := NewGeneration(plain(8, 1))
		g.Hand(cluster.Plan{Number: 1, Sizes: []int{8}}, 0)
		r := &Report{Plan: 1, WaitSeconds: seconds, Ranks: []*RankReport{{Seconds: seconds, Samples: 8, MicroSteps: 8}}}
		if v, _, err := g.Take(r, 0); (err == nil) != good || good && v != Accepted {
			t.Errorf("%v s: %v, %v", seconds, v, err)
		}
	}
	for number, good := range map[int]bool{-1: false, maxGap - 1: true, maxGap: false} {
		g := NewGeneration(plain(8, 1))
		g.Hand(cluster.Plan{Number: 1, Sizes: []int{8}}, 0)
		if v, _, err := g.Take(round(number, 1, []int{8}), 0); (err == nil) != good || good && v != Accepted {
			t.Errorf("round %d: %v, %v", number, v, err)
		}
	}
	for _, x := range []struct{ own, all, norm, agree float64 }{{4, 1, 2, 0.5}, {1, 4, 0.5, 1}, {0, 1, 0, 0}, {1, 0, 0, 0}, {0, 0, 0, 0}} {
		if norm, agree := gradient(x.own, x.all); norm != x.norm || agree != x.agree {
			t.Errorf("%v: norm %v, agreement %v", x, norm, agree)
		}
	}
}

// And of reports of single ranks: numbers, a rank without a share, the timeout to the nanosecond, a rank that gave up.
func TestBoundsOfOwnReports(t *testing.T) {
	begin := func(sizes ...int) *Generation {
		c := plain(20, len(sizes))
		c.Collect = cluster.Collect{Timeout: 10 * time.Second}
		g := NewGeneration(c)
		g.Hand(cluster.Plan{Number: 1, Sizes: sizes, Collect: c.Collect}, 0)
		return g
	}
	g := begin(10, 10)
	for _, rank := range []int{-1, 2} {
		if _, err := g.TakeOwn(rank, own(0, 1, 10, 1), 0); err == nil || !strings.Contains(err.Error(), "has ranks 0 to 1") {
			t.Errorf("rank %d of 2: %v", rank, err)
		}
	}
	for number, good := range map[int]bool{-1: false, maxGap: false, maxGap - 1: true} {
		if v, err := begin(10, 10).TakeOwn(0, own(number, 1, 10, 1), 0); (err == nil) != good || good && v != Accepted {
			t.Errorf("number %d: %v, %v", number, v, err)
		}
	}
	for seconds, good := range map[float64]bool{-1: false, math.NaN(): false, maxSeconds: true, 1.0001 * maxSeconds: false} {
		x := own(0, 1, 10, 1)
		x.Pause = seconds
		if v, err := begin(10, 10).TakeOwn(0, x, 0); (err == nil) != good || good && v != Accepted {
			t.Errorf("a pause of %v s: %v, %v", seconds, v, err)
		}
	}
	if v, err := g.TakeOwn(0, own(0, 1, 10, 1), time.Second); v != Accepted || err != nil {
		t.Fatal(v, err)
	}
	if at := 10 * time.Second; g.Due(at) || g.Next(at) != nil {
		t.Error("a round is over at its timeout, not after it")
	}
	if r := g.Next(10*time.Second + 1); r == nil || r.Nodes[1].Status != cluster.Lost {
		t.Errorf("after the timeout: %+v", r)
	}

	g = begin(10, 0)
	if v, err := g.TakeOwn(0, own(0, 1, 10, 1), time.Second); v != Accepted || err != nil {
		t.Fatal(v, err)
	}
	if r := g.Next(time.Second); r == nil || r.Nodes[1].Status != cluster.Absent {
		t.Errorf("a rank without a share: %+v", r)
	}

	g = begin(10, 10) // handed in nothing, though there was memory
	if v, err := g.TakeOwn(0, own(0, 1, 0, 0), time.Second); v != Accepted || err != nil {
		t.Fatal(v, err)
	}
	if v, err := g.TakeOwn(1, own(0, 1, 10, 1), time.Second); v != Accepted || err != nil {
		t.Fatal(v, err)
	}
	if r := g.Next(time.Second); r == nil || r.Nodes[0].Status != cluster.Lost || r.Nodes[0].OOM {
		t.Errorf("a rank that gave up: %+v", r)
	}

	g = begin(10, 10)
	if v, _, err := g.Take(round(0, 1, []int{10, 10}), time.Second); v != Accepted || err != nil {
		t.Fatal(v, err)
	}
	if _, err := g.TakeOwn(0, own(0, 1, 10, 1), time.Second); !errors.Is(err, ErrMixed) {
		t.Errorf("a report of one rank after one of all: %v", err)
	}
}
