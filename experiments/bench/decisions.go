package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"evenkeel/agent"
	"evenkeel/agent/baseline"
	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/experiments/internal/fleet"
)

// How the rounds of a cluster end, for the agent's decisions beside water-filling's.
const (
	waitForAll = "all"
	byDeadline = "deadline" // shares of 3 to 11 micro-steps
	freeRule   = "free"     // quorum and grace
)

// decisionSubjects compare the agent's decision with water-filling's on the same reports.
func decisionSubjects() []subject {
	var all []subject
	for _, n := range []int{1000, 10_000} {
		for _, rule := range []string{waitForAll, byDeadline, freeRule} {
			all = append(all, subject{
				fmt.Sprintf("decide-%s-%d", rule, n), "water-filling's decision",
				func() (op, twin func() error, err error) { return againstWaterFill(n, rule) },
			})
		}
	}
	return all
}

// decided is a cluster of n nodes under interference, and reports of its rounds.
func decided(n int, rule string) (*cluster.Cluster, []*cluster.Report, []int, error) {
	c, err := fleet.Mixed("gpt-1.3b-512-fp32", n, 40, "a6000", "l40s", "a6000", "p40")
	if err != nil {
		return nil, nil, nil, err
	}
	switch rule {
	case byDeadline:
		for i := range c.Nodes {
			c.Nodes[i].Limit = 8
		}
		c.Collect.AutoDeadline = true
	case freeRule:
		c.Choices = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}
	}
	conditions, err := cluster.Preset("interference")
	if err != nil {
		return nil, nil, nil, err
	}
	ctl := agent.Control{Cluster: c, Runner: sim.New(c, conditions, 1), Policy: agent.NewModel(c)}
	var reports []*cluster.Report
	var sizes []int
	for k := range 10 {
		r, err := ctl.Round(context.Background())
		if err != nil {
			return nil, nil, nil, err
		}
		if sizes = r.Plan.Sizes; k >= 5 {
			report := *r.Report
			report.Nodes = slices.Clone(report.Nodes)
			reports = append(reports, &report)
		}
	}
	return c, reports, slices.Clone(sizes), nil
}

func againstWaterFill(n int, rule string) (op, twin func() error, err error) {
	c, reports, sizes, err := decided(n, rule)
	if err != nil {
		return nil, nil, err
	}
	trained, err := agent.Embedded()
	if err != nil {
		return nil, nil, err
	}
	deciding := func(p agent.Policy) func() error {
		plan, k := cluster.Plan{Sizes: slices.Clone(sizes)}, 0
		return func() error {
			k++
			plan.Collect = c.Collect
			return p.Decide(reports[k%len(reports)], nil, &plan)
		}
	}
	return deciding(trained.NewAgent(c, cluster.Objectives{Speed: 1}.Weights())),
		deciding(baseline.NewWaterFill(c, baseline.WaterFill{Gain: 0.35})), nil
}

// microSteps is a simulated round of 8 micro-steps a node in the mean, which end at a deadline.
func microSteps() (op, twin func() error, err error) {
	c, perf, err := mixed()
	if err != nil {
		return nil, nil, err
	}
	for i := range c.Nodes {
		c.Nodes[i].Limit = 3
	}
	conditions, err := cluster.Preset("drift")
	if err != nil {
		return nil, nil, err
	}
	p := cluster.Plan{Sizes: make([]int, nodes), Perf: perf}
	finish, err := cluster.Allocate(c, nil, perf, p.Sizes)
	if err != nil {
		return nil, nil, err
	}
	p.Collect.Deadline = time.Duration(finish * float64(time.Second))
	s := sim.New(c, conditions, 1)
	op = func() error {
		_, err := s.Round(context.Background(), p)
		return err
	}
	return op, sorting(20_000), nil
}
