package agent

import (
	"context"
	"math"
	"testing"
	"time"

	"evenkeel/cluster"
	"evenkeel/env"
	"evenkeel/internal/agenttest"
)

// lying is a runner whose reports are changed before they are handed on.
type lying struct {
	scripted
	change func(round int, r *cluster.Report)
}

func (l *lying) Round(ctx context.Context, plan cluster.Plan) (*cluster.Report, error) {
	r, err := l.scripted.Round(ctx, plan)
	r.Round = len(l.plans) - 1
	l.change(r.Round, r)
	return r, err
}

// Whatever a report says, the next round is planned, impossible values are counted, and the sizes stay near those
// of a run without them.
func TestAbsurdReports(t *testing.T) {
	const from, rounds = 20, 60
	every := func(change func(r *cluster.Report)) func(int, *cluster.Report) {
		return func(round int, r *cluster.Report) {
			if round >= from && round%2 == 0 {
				change(r)
			}
		}
	}
	for name, x := range map[string]struct {
		change func(int, *cluster.Report)
		want   env.Absurd
	}{
		"truth":           {func(int, *cluster.Report) {}, env.Absurd{}},
		"0 s":             {every(func(r *cluster.Report) { r.Nodes[1].Seconds = 0 }), env.Absurd{Times: 20}},
		"NaN s":           {every(func(r *cluster.Report) { r.Nodes[1].Seconds = math.NaN() }), env.Absurd{Times: 20}},
		"a billion s":     {every(func(r *cluster.Report) { r.Nodes[1].Seconds = 1e9 }), env.Absurd{Times: 20}},
		"another plan's":  {every(func(r *cluster.Report) { r.Nodes[1].Size *= 7 }), env.Absurd{Sizes: 20}},
		"a clock back":    {every(func(r *cluster.Report) { r.Wait = -1e6 * time.Second }), env.Absurd{Waits: 20}},
		"a node too few":  {every(func(r *cluster.Report) { r.Nodes = r.Nodes[1:] }), env.Absurd{Reports: 20}},
		"a node too many": {every(func(r *cluster.Report) { r.Nodes = append(r.Nodes, cluster.NodeReport{}) }), env.Absurd{Reports: 20}},
		"norms":           {every(func(r *cluster.Report) { r.Nodes[0].Norm, r.Nodes[0].Agree = math.NaN(), math.Inf(1) }), env.Absurd{Values: 20}},
	} {
		c := agenttest.Lines(t, 60, 0.1, 0.1, 0.1)
		for _, policy := range []Policy{NewModel(c), mustEmbedded(t).NewAgent(c, agenttest.Speed)} {
			l := &lying{scripted: scripted{slow: []float64{1, 2, 1}}, change: x.change}
			ctl := &Control{Cluster: c, Runner: l, Policy: policy}
			for k := range rounds + 1 {
				r, err := ctl.Round(t.Context())
				if err != nil {
					t.Fatalf("%s, round %d: %v", name, k, err)
				}
				if k >= from {
					if b := r.Plan.Sizes[1]; b < 9 || b > 16 {
						t.Fatalf("%s, round %d: %v", name, k, r.Plan.Sizes)
					}
				}
			}
			if got := ctl.Absurd(); got != x.want {
				t.Errorf("%s: %+v, want %+v", name, got, x.want)
			}
		}
	}
}

func mustEmbedded(t *testing.T) *Trained {
	t.Helper()
	p, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A node that always reports the same is counted as frozen, and nothing else is counted.
func TestFrozenReports(t *testing.T) {
	c := agenttest.Lines(t, 60, 0.1, 0.1, 0.1)
	l := &lying{scripted: scripted{slow: []float64{1, 1, 1}}}
	l.change = func(round int, r *cluster.Report) {
		if r.Nodes[2].Status == cluster.In {
			r.Nodes[2].Seconds = 3
		}
		r.Nodes[0].Seconds *= 1 + 0.2*math.Sin(float64(round)) // so that sizes move
	}
	ctl := &Control{Cluster: c, Runner: l, Policy: NewModel(c)}
	for range 200 {
		if _, err := ctl.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := ctl.Absurd(); got.Frozen == 0 || got != (env.Absurd{Frozen: got.Frozen}) {
		t.Errorf("%+v", got)
	}
}

// Where nothing is known of any node, all begin alike, and the speeds are found.
func TestAllNodesUnknown(t *testing.T) {
	c := agenttest.Lines(t, 60, 0.1, 0.1, 0.1)
	for i := range c.Nodes {
		c.Nodes[i].Profile, c.Nodes[i].TFLOPS = nil, 0
	}
	s := &scripted{slow: []float64{1, 3, 1}}
	ctl := play(t, s, c, NewModel(c), 40)
	if first := s.plans[0]; first[0] != 20 || first[1] != 20 {
		t.Errorf("first sizes %v", first)
	}
	last := s.plans[len(s.plans)-1]
	if last[1] > 9 || last[0] < 24 || ctl.Absurd().Any() {
		t.Errorf("last sizes %v, %+v", last, ctl.Absurd())
	}
}
