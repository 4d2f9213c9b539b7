package serve

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"time"

	"evenkeel/agent/export"
	"evenkeel/cluster"
	"evenkeel/cluster/live"
	"evenkeel/cluster/profile"
	"evenkeel/cluster/sim"
	"evenkeel/internal/badinput"
)

// ranks are the simulated ranks of a job.
type ranks struct {
	played
	to      *client
	id      string           // of the process group
	own     bool             // ranks report for themselves; else rank 0 reports for all
	cluster *cluster.Cluster // its limits follow the sizes
	given   []int            // the limits before
	sim     *sim.Simulator
}

func newRanks(to *client, job string, c *cluster.Cluster, conditions cluster.Conditions, seed uint64) *ranks {
	c = c.Own()
	r := &ranks{played: played{Job: job, Verdicts: counts{}}, to: to, id: rand.Text(), cluster: c, sim: sim.New(c, conditions, seed)}
	for i := range c.Nodes {
		r.given = append(r.given, c.Nodes[i].Limit)
	}
	return r
}

// register starts the job's process group, or finds it: the id says which.
func (r *ranks) register(ctx context.Context, patience time.Duration) (export.Sizes, error) {
	list := make([]live.Rank, len(r.cluster.Nodes))
	for i := range list {
		n := &r.cluster.Nodes[i]
		x := &list[i]
		if *x = (live.Rank{Name: n.Name}); n.Profile != nil {
			x.Device = n.Device
		}
		x.MicroBatch.Least, x.MicroBatch.Sizes = n.Least, n.Shapes
		if n.Limit != profile.NoLimit && len(n.Shapes) == 0 {
			x.MicroBatch.Most = n.Limit
		}
	}
	var out struct {
		Sizes export.Sizes `json:"sizes"`
	}
	err := r.again(ctx, patience, func() error {
		return r.to.do(ctx, http.MethodPost, r.Job, "/generations", map[string]any{
			"id": r.id, "global_batch": r.cluster.GlobalBatch, "workload": r.cluster.Workload, "equal_steps": r.cluster.EqualSteps(), "ranks": list,
		}, &out)
	})
	if err == nil && len(out.Sizes.Nodes) != len(r.given) {
		err = fmt.Errorf("%s: the service sent sizes for %d ranks; the job has %d", r.Job, len(out.Sizes.Nodes), len(r.given))
	}
	return out.Sizes, err
}

// Between two tries.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

// run plays rounds. Each has the sizes that came a round before, as in a job that loads a batch ahead; ranks that report for themselves run new sizes at once.
func (r *ranks) run(ctx context.Context, rounds int, speed float64, patience time.Duration) error {
	newest, err := r.register(ctx, patience)
	if err != nil {
		return err
	}
	var own *owns
	late := 1
	if r.own {
		own, late = &owns{ranks: r, reported: make([]int, len(r.given))}, 0
	}
	coming, heard := []export.Sizes{newest}, time.Now()
	for k := range rounds {
		sizes := coming[0]
		if len(coming) > late {
			coming = coming[1:]
		}
		plan := r.plan(&sizes)
		report, err := r.sim.Round(ctx, plan)
		if err != nil {
			return err
		}
		if speed > 0 {
			if err := wait(ctx, time.Duration(float64(report.Wait)/speed)); err != nil {
				return err
			}
		}
		verdict := "" // of a report for all
		if own != nil {
			newest, err = own.report(ctx, &sizes, report, patience)
		} else if verdict, err = r.tell(ctx, k, &sizes, report, &newest); err == nil {
			heard = time.Now()
		} else if !badinput.Is(err) && time.Since(heard) <= patience { // as in a training job, rounds go on with the last sizes
			verdict, err = "unanswered", wait(ctx, firstPause)
		}
		if refusedWith(err, http.StatusConflict) { // the service was lost, and with it what it knew
			verdict, coming, heard = "conflict", nil, time.Now()
			newest, err = r.register(ctx, patience)
		}
		if err != nil {
			return err
		}
		if verdict != "" {
			r.Verdicts[verdict]++
		}
		r.Rounds, r.Samples, r.Seconds, r.Sizes = k+1, r.Samples+report.Accepted, r.Seconds+report.Wait.Seconds(), plan.Sizes
		coming = append(coming, newest)
	}
	return nil
}

// tell reports a round for all ranks. The answer's sizes are the newest.
func (r *ranks) tell(ctx context.Context, round int, sizes *export.Sizes, report *cluster.Report, newest *export.Sizes) (verdict string, err error) {
	var answer struct {
		Verdict string       `json:"verdict"`
		Sizes   export.Sizes `json:"sizes"`
	}
	begun := time.Now()
	err = r.to.do(ctx, http.MethodPost, r.Job, "/reports", r.report(round, sizes, report), &answer)
	if r.to.heard(err); err == nil {
		*newest = answer.Sizes
		r.answers = append(r.answers, time.Since(begun).Seconds())
	}
	return answer.Verdict, err
}

// plan is the plan that sizes stand for.
func (r *ranks) plan(s *export.Sizes) cluster.Plan {
	p := cluster.Plan{Sizes: make([]int, len(s.Nodes)), Perf: r.cluster.Nominal()}
	if d := s.Deadline; d != nil {
		p.Collect = cluster.Collect{Deadline: time.Duration(d.Seconds * float64(time.Second)), Reserve: d.Reserve, Overtime: d.Overtime, Whole: d.MicroSteps == "whole"}
	}
	for i, x := range s.Nodes {
		n := &r.cluster.Nodes[i]
		p.Sizes[i] = x.Share
		if n.Limit = r.given[i]; x.MicroSteps > 1 {
			n.Limit = min(n.Limit, x.MicroBatch)
		}
		if x.Deadline != nil {
			p.Perf[i] = cluster.Performance{PerSample: x.Deadline.MicroStepSeconds / n.Cost(x.MicroBatch)}
		}
	}
	return p
}

// report is what rank 0 says of a round. A node that failed, or was away, handed in nothing.
func (r *ranks) report(round int, s *export.Sizes, report *cluster.Report) map[string]any {
	list := make([]*live.RankReport, len(report.Nodes))
	for i := range report.Nodes {
		n := &report.Nodes[i]
		switch {
		case n.OOM:
			list[i] = &live.RankReport{OutOfMemory: max(s.Nodes[i].MicroBatch, 1)}
		case n.Status == cluster.In:
			list[i] = &live.RankReport{Seconds: n.Seconds, Samples: n.Samples, MicroSteps: max(n.Steps, 1), NormSquared: n.Norm * n.Norm}
		}
	}
	return map[string]any{
		"generation": s.Generation, "round": round, "plan": s.Plan, "wait_seconds": max(report.Wait.Seconds(), 1e-9), "norm_squared": 1, "ranks": list,
	}
}
