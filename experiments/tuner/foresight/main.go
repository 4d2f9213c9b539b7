// Command foresight draws what it means to be ready for a spell of slowness: a node with a periodic co-tenant, its share and the
// round's time, with foresight and without.
//
//	go run ./experiments/tuner/foresight     # docs/images/foresight.svg
package main

import (
	"context"

	"evenkeel/agent"
	"evenkeel/agent/clusters"
	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/cluster/sim"
	"evenkeel/experiments/internal/program"
	"evenkeel/internal/chart"
)

const (
	node        = 13
	seed        = 5
	rounds      = 400
	from, until = 100.0, 160.0 // minutes that are drawn
)

func main() {
	program.Main(func(ctx context.Context) error {
		f, err := draw(ctx)
		if err != nil {
			return err
		}
		return f.Save("docs/images/foresight.svg")
	})
}

func draw(ctx context.Context) (*chart.Figure, error) {
	ready, err := play(ctx, agent.NewModel)
	if err != nil {
		return nil, err
	}
	blind, err := play(ctx, agent.NewReactive)
	if err != nil {
		return nil, err
	}
	with := func(s chart.Series, name string, muted bool) chart.Series {
		s.Name, s.Muted = name, muted
		return s
	}
	return &chart.Figure{Panels: []chart.Panel{
		{Title: "A node with a periodic co-tenant", YLabel: "times as slow", Series: []chart.Series{with(ready.slowdown, "true slowdown", true)}},
		{Title: "Its share", YLabel: "samples", Series: []chart.Series{with(ready.share, "with foresight", false), with(blind.share, "without", false)}},
		{Title: "Time of a round", XLabel: "minutes", YLabel: "seconds", ZeroY: true, Series: []chart.Series{with(ready.round, "with foresight", false), with(blind.round, "without", false)}},
	}}, nil
}

// run is one run, over simulated minutes.
type run struct{ slowdown, share, round chart.Series }

func play(ctx context.Context, create func(*cluster.Cluster) *agent.Agent) (r run, err error) {
	_, c, err := clusters.Load("heldout-16", profile.Embedded())
	if err != nil {
		return r, err
	}
	conditions, err := cluster.Preset("periodic")
	if err != nil {
		return r, err
	}
	s := sim.New(c, conditions, seed)
	ctl := agent.Control{Cluster: c, Runner: s, Policy: create(c)}
	now := 0.0
	for range rounds {
		slow := s.Truth().Slowdown[node]
		got, err := ctl.Round(ctx)
		if err != nil {
			return r, err
		}
		if m := now / 60; m >= from && m < until {
			add(&r.slowdown, m, slow)
			add(&r.share, m, float64(got.Plan.Sizes[node]))
			add(&r.round, m, got.Report.Wait.Seconds())
		}
		now += got.Report.Wait.Seconds()
	}
	return r, nil
}

func add(s *chart.Series, x, y float64) {
	s.Kind = chart.Step
	s.X, s.Y = append(s.X, x), append(s.Y, y)
}
