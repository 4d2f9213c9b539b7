package runlog

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/cluster/profile"
)

// liveLog is the log of a job of two starts with a round each.
func liveLog(t testing.TB, change func(second *Start, plan *cluster.Plan)) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := newWriter(&b, NewLiveHeader())
	if err != nil {
		t.Fatal(err)
	}
	_, c, err := clusterfile.Read(strings.NewReader(text), "test", profile.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	c.Collect = cluster.Collect{AutoDeadline: true}
	c.SetEqualSteps(3)
	for k, nodes := range []int{5, 2} {
		c.Nodes = c.Nodes[:nodes]
		s := NewStart(k+1, c)
		plan := cluster.Plan{Number: 1, Sizes: make([]int, nodes)}
		if k == 1 {
			change(s, &plan)
		}
		if err := w.Start(s); err != nil {
			t.Fatal(err)
		}
		report := &cluster.Report{Round: 3, Plan: plan.Number, Nodes: make([]cluster.NodeReport, nodes)}
		if err := w.Round(plan, c.Nominal()[:nodes], report, Note{Limits: []Limit{{1, 8}}}); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// A live log gives back its clusters, start by start, and its rounds.
func TestLiveLog(t *testing.T) {
	r, err := NewReader(bytes.NewReader(liveLog(t, func(*Start, *cluster.Plan) {})))
	if err != nil {
		t.Fatal(err)
	}
	_, c, err := clusterfile.Read(strings.NewReader(text), "test", profile.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	for k, nodes := range []int{5, 2} {
		e, err := r.Next()
		if err != nil || e.Start == nil || e.Start.Generation != k+1 || len(r.Cluster.Nodes) != nodes || !r.Cluster.Collect.AutoDeadline {
			t.Fatalf("start %d: %+v, %v", k, e, err)
		}
		for i := range r.Cluster.Nodes {
			got, want := r.Cluster.Nodes[i], c.Nodes[i]
			if (got.Profile != nil) != (want.Profile != nil) || want.Profile != nil && !cmp.Equal(got.Profile.Points, want.Profile.Points) ||
				got.Name != want.Name || got.Device != want.Device || got.Limit != want.Limit || got.Power != want.Power || got.Equal != 3 || got.TFLOPS != want.TFLOPS {
				t.Errorf("node %d: %+v, want %+v", i, got, want)
			}
		}
		if e, err = r.Next(); err != nil || e.Start != nil || e.Report.Round != 3 || !cmp.Equal(e.Limits, []Limit{{1, 8}}) {
			t.Fatalf("round of start %d: %+v, %v", k, e, err)
		}
	}
	if _, _, err := Replay(t.Context(), bytes.NewReader(liveLog(t, func(*Start, *cluster.Plan) {}))); err == nil {
		t.Error("the simulator replays a live job")
	}
}

// What cannot be is refused with its line.
func TestBadLiveLog(t *testing.T) {
	for name, x := range map[string]struct {
		change func(*Start, *cluster.Plan)
		want   string
	}{
		"a start twice":     {func(s *Start, _ *cluster.Plan) { s.Generation = 1 }, "line 4: start.generation: is 1, 2 was expected"},
		"no nodes":          {func(s *Start, _ *cluster.Plan) { s.Nodes = nil }, "line 4: start: 0 nodes"},
		"no limit":          {func(s *Start, _ *cluster.Plan) { s.Nodes[1].Limit = 0 }, "line 4: start: nodes[1]"},
		"sizes that fall":   {func(s *Start, _ *cluster.Plan) { s.Nodes[1].Sizes = []int{4, 2} }, "line 4: start: nodes[1]"},
		"sizes twice":       {func(s *Start, _ *cluster.Plan) { s.Nodes[1].Sizes = []int{4, 4} }, "line 4: start: nodes[1]"},
		"too large a batch": {func(s *Start, _ *cluster.Plan) { s.GlobalBatch = 1 << 31 }, "line 4: start: 2 nodes"},
		"equal steps":       {func(s *Start, _ *cluster.Plan) { s.EqualSteps = 16385 }, "line 4: start: equal_steps: is 16385"},
		"profiles":          {func(s *Start, _ *cluster.Plan) { s.Profiles = "x" }, "line 4: start: profiles"},
		"no plan":           {func(_ *Start, p *cluster.Plan) { p.Number = 0 }, "line 5: report.round: is 3 of plan 0"},
		"other nodes":       {func(s *Start, _ *cluster.Plan) { s.Nodes = s.Nodes[:1] }, "line 5: sizes: 2 entries for 1 nodes"},
	} {
		r, err := NewReader(bytes.NewReader(liveLog(t, x.change)))
		for err == nil {
			_, err = r.Next()
		}
		if !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
	sim := bytes.Replace(liveLog(t, func(*Start, *cluster.Plan) {}), []byte(`"source":"live"`), []byte(`"source":"dead"`), 1)
	if _, err := NewReader(bytes.NewReader(sim)); err == nil {
		t.Error("another source is read")
	}
}
