package run

import (
	"errors"
	"fmt"
	"io"
	"reflect"

	"evenkeel/agent"
	"evenkeel/cluster"
	"evenkeel/cluster/live"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
	"evenkeel/internal/runlog"
)

// liveReplay makes a job's decisions again from its reports.
type liveReplay struct {
	trained *agent.Trained
	weights cluster.Objectives
	gen     *live.Generation
	agent   *agent.Agent
	control *agent.Control
	plans   map[int]cluster.Plan
}

// replayLive checks that the plans of a real job's log follow from its reports.
func replayLive(a *cli.App, path string, log *runlog.Reader) error {
	policy := log.Header.Policy
	if policy == "embedded" {
		policy = ""
	}
	trained, err := cli.LoadPolicy(policy)
	if err != nil {
		return err
	}
	r := &liveReplay{trained: trained, weights: log.Header.Weights}
	rounds := 0
	for {
		e, err := log.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = a.Ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if e.Start != nil {
			err = r.start(log.Cluster)
		} else {
			rounds++
			err = r.round(e)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if rounds == 0 {
		return badinput.Errorf("%s: the log has no rounds", path)
	}
	if log.Cut {
		warnCut(a, path)
	}
	_, err = fmt.Fprintf(a.Out, "%s: the decisions of %s follow from the reports\n", path, cli.Count(rounds, "round"))
	return err
}

// start begins a generation, with what is known from the one before.
func (r *liveReplay) start(c *cluster.Cluster) error {
	r.gen = live.NewGeneration(c)
	r.agent = r.trained.NewAgent(c, r.weights.Weights())
	before := r.control
	r.control = &agent.Control{Cluster: c, Policy: r.agent, Behind: live.Behind}
	if before != nil {
		r.control.Adopt(before.Beliefs())
	}
	r.plans = map[int]cluster.Plan{}
	return r.decide(nil)
}

// decide plans by a report, nil for the first plan. A decision that failed has no plan.
func (r *liveReplay) decide(report *cluster.Report) error {
	plan, err := r.control.Next(report, r.gen.Present())
	if err != nil && report == nil {
		return err
	}
	if err == nil {
		r.plans[plan.Number] = plan.Own()
		delete(r.plans, plan.Number-live.Behind-1)
	}
	return nil
}

// round compares the plan that a round ran with the one that was decided, and decides by its report.
func (r *liveReplay) round(e *runlog.Entry) error {
	plan, ok := r.plans[e.Report.Plan]
	if !ok {
		return fmt.Errorf("round %d ran plan %d, which was not decided", e.Report.Round, e.Report.Plan)
	}
	ran := e.Plan()
	if !reflect.DeepEqual(plan.Sizes, ran.Sizes) || !reflect.DeepEqual(plan.Perf, ran.Perf) || plan.Collect != ran.Collect {
		return fmt.Errorf("round %d ran plan %d with the sizes %v; from the reports follow %v: was the log written by another version?", e.Report.Round, e.Report.Plan, ran.Sizes, plan.Sizes)
	}
	if e.Weights != nil {
		r.weights = *e.Weights
		r.agent.SetWeights(r.weights.Weights())
	}
	for _, l := range e.Limits {
		r.control.Bound(l.Node, l.MicroBatch)
	}
	r.gen.Observe(&e.Report)
	return r.decide(&e.Report)
}
