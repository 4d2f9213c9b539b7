package env

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
)

func sieved(t *testing.T, change func(r *cluster.Report), beyond bool) (*Sieve, *cluster.Report, *cluster.Report) {
	t.Helper()
	c := &cluster.Cluster{GlobalBatch: 20, Nodes: []cluster.Node{{Limit: profile.NoLimit}, {Limit: profile.NoLimit, Least: 3}}}
	r := &cluster.Report{Wait: 2 * time.Second, Accepted: 20, Counted: 20, Nodes: []cluster.NodeReport{
		{Status: cluster.In, Size: 12, Samples: 12, Steps: 2, Seconds: 2, Age: 2, Norm: 1, Agree: 1},
		{Status: cluster.In, Size: 8, Samples: 8, Seconds: 1.5, Age: 1.5, Norm: 1, Agree: 1},
	}}
	change(r)
	var s Sieve
	return &s, r, s.Clean(c, r, []int{12, 8}, beyond)
}

// What is removed from a report, how it is counted, and how it is described.
func TestSieve(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for name, x := range map[string]struct {
		change func(r *cluster.Report)
		beyond bool
		want   Absurd
		why    string
	}{
		"nothing":              {func(*cluster.Report) {}, false, Absurd{}, ""},
		"a time of 0":          {func(r *cluster.Report) { r.Nodes[0].Seconds = 0 }, false, Absurd{Times: 1}, "an impossible time of 0 s"},
		"below 0":              {func(r *cluster.Report) { r.Nodes[0].Seconds = -1 }, false, Absurd{Times: 1}, "an impossible time of -1 s"},
		"no number":            {func(r *cluster.Report) { r.Nodes[0].Seconds = nan }, false, Absurd{Times: 1}, "an impossible time of NaN s"},
		"infinite":             {func(r *cluster.Report) { r.Nodes[0].Seconds = inf }, false, Absurd{Times: 1}, "an impossible time of +Inf s"},
		"a billion":            {func(r *cluster.Report) { r.Nodes[0].Seconds = 1e9 }, false, Absurd{Times: 1}, "an impossible time of 1e+09 s"},
		"far beyond the round": {func(r *cluster.Report) { r.Nodes[0].Seconds = 261 }, false, Absurd{Times: 1}, "an impossible time of 261 s"},
		"a month, in as long":  {func(r *cluster.Report) { r.Wait, r.Nodes[0].Seconds = 2.6e6*time.Second, 2.6e6 }, false, Absurd{Times: 1}, "an impossible time of 2.6e+06 s"},
		"not so far":           {func(r *cluster.Report) { r.Nodes[0].Seconds = 259 }, false, Absurd{}, ""},
		"of an older round":    {func(r *cluster.Report) { r.Nodes[0].Seconds, r.Nodes[0].Behind = 261, 1 }, false, Absurd{}, ""},
		"refused":              {func(r *cluster.Report) { r.Nodes[0].Status, r.Nodes[0].Seconds = cluster.Refused, 0 }, false, Absurd{Times: 1}, "an impossible time of 0 s"},
		"late, nothing known":  {func(r *cluster.Report) { r.Nodes[0].Status, r.Nodes[0].Seconds = cluster.Late, 0 }, false, Absurd{}, ""},
		"late, no number":      {func(r *cluster.Report) { r.Nodes[0].Status, r.Nodes[0].Seconds = cluster.Late, nan }, false, Absurd{Times: 1}, "an impossible time of NaN s"},
		"lost":                 {func(r *cluster.Report) { r.Nodes[0].Status, r.Nodes[0].Seconds = cluster.Lost, nan }, false, Absurd{}, ""},
		"more than handed out": {func(r *cluster.Report) { r.Nodes[0].Size = 13 }, false, Absurd{Sizes: 1}, "an impossible size of 13 samples"},
		"below no samples":     {func(r *cluster.Report) { r.Nodes[0].Size = -1 }, true, Absurd{Sizes: 1}, "an impossible size of -1 samples"},
		"more, by a deadline":  {func(r *cluster.Report) { r.Nodes[0].Size = 13 }, true, Absurd{}, ""},
		"more, of an older":    {func(r *cluster.Report) { r.Nodes[0].Size, r.Nodes[0].Behind = 13, 2 }, false, Absurd{}, ""},
		"a norm":               {func(r *cluster.Report) { r.Nodes[0].Norm = nan }, false, Absurd{Values: 1}, "a value that is not finite or possible"},
		"an age":               {func(r *cluster.Report) { r.Nodes[0].Age = -inf }, false, Absurd{Values: 1}, "a value that is not finite or possible"},
		"a pause":              {func(r *cluster.Report) { r.Nodes[0].Pause = nan }, false, Absurd{Values: 1}, "a value that is not finite or possible"},
		"a pause below 0":      {func(r *cluster.Report) { r.Nodes[0].Pause = -1 }, false, Absurd{Values: 1}, "a value that is not finite or possible"},
		"a pause of a month":   {func(r *cluster.Report) { r.Nodes[0].Pause = 2.6e6 }, false, Absurd{Values: 1}, "a value that is not finite or possible"},
		"a clock that jumps":   {func(r *cluster.Report) { r.Wait = -time.Hour }, false, Absurd{Waits: 1}, ""},
		"no samples counted":   {func(r *cluster.Report) { r.Counted = nan }, false, Absurd{Values: 1}, ""},
		"another number":       {func(r *cluster.Report) { r.Nodes = r.Nodes[:1] }, false, Absurd{Reports: 1}, ""},
	} {
		s, report, got := sieved(t, x.change, x.beyond)
		if s.Counts != x.want || s.Why(0) != x.why || s.Why(1) != "" {
			t.Errorf("%s: %+v, %q, %q; want %+v, %q", name, s.Counts, s.Why(0), s.Why(1), x.want, x.why)
		}
		if x.want.Any() != (x.want.String() != "") {
			t.Errorf("%s: %q", name, x.want)
		}
		if x.want.Reports > 0 {
			if got != nil {
				t.Errorf("%s: %+v", name, got)
			}
			continue
		}
		if x.want.Any() == (got == report) {
			t.Errorf("%s: a copy, or none", name)
		}
		if n := got.Nodes[0]; x.want.Times+x.want.Sizes > 0 && (n.Measured() || n.Seconds != 0 || n.Steps != 0 || n.Samples != 12) {
			t.Errorf("%s: %+v is left", name, n)
		}
		if p := got.Nodes[0].Pause; p != 0 {
			t.Errorf("%s: a pause of %v is left", name, p)
		}
		if n := got.Nodes[1]; n.Seconds != 1.5 || n.Size != 8 {
			t.Errorf("%s: the other became %+v", name, n)
		}
		for _, v := range []float64{got.Nodes[0].Norm, got.Nodes[0].Age, got.Counted} {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Errorf("%s: %v is left", name, v)
			}
		}
		if x.want.Waits > 0 && got.Wait != 2*time.Second || got.Counted != 20 {
			t.Errorf("%s: waited %v, counted %v", name, got.Wait, got.Counted)
		}
	}
}

// A node without a share can have handed in its least one, as one that was at older work does.
func TestSieveLeastShare(t *testing.T) {
	c := &cluster.Cluster{GlobalBatch: 20, Nodes: []cluster.Node{{Limit: profile.NoLimit, Least: 3}}}
	for size, want := range map[int]Absurd{3: {}, 4: {Sizes: 1}} {
		var s Sieve
		s.Clean(c, &cluster.Report{Wait: 1e9, Nodes: []cluster.NodeReport{{Status: cluster.In, Size: size, Seconds: 1}}}, []int{0}, false)
		if s.Counts != want {
			t.Errorf("%d samples: %+v", size, s.Counts)
		}
	}
}

// A node that always reports the same time is counted after three changes of its size, not at equal sizes, and is
// believed.
func TestSieveFrozen(t *testing.T) {
	c := &cluster.Cluster{GlobalBatch: 20, Nodes: []cluster.Node{{Limit: profile.NoLimit}}}
	var s Sieve
	var frozen []int
	for _, m := range []struct {
		size    int
		seconds float64
	}{{10, 2}, {10, 2}, {10, 2}, {11, 2}, {12, 2}, {13, 2}, {13, 2}, {14, 2.1}, {15, 2.1}} {
		r := &cluster.Report{Wait: 2e9, Nodes: []cluster.NodeReport{{Status: cluster.In, Size: m.size, Seconds: m.seconds}}}
		if got := s.Clean(c, r, []int{m.size}, false); got != r {
			t.Errorf("changed to %+v", got)
		}
		frozen = append(frozen, s.Counts.Frozen)
	}
	if diff := cmp.Diff([]int{0, 0, 0, 0, 0, 1, 2, 2, 2}, frozen); diff != "" {
		t.Error(diff)
	}
	if s.Why(0) != "" {
		t.Errorf("still %q", s.Why(0))
	}
}
