package plan

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/planner/execute"
)

// runSummary is the JSON document of plan run.
type runSummary struct {
	Plan        string `json:"plan"`
	Model       string `json:"model"`
	Data        string `json:"data"`
	GlobalBatch int    `json:"global_batch"`
	MicroBatch  int    `json:"micro_batch"`
	Replicas    int    `json:"replicas"`
	Cores       int    `json:"cores"` // of the server's machine
	*execute.Result
	Idle []float64 `json:"idle"` // share of its time in which each stage did not compute
}

// print prints a result.
func (r *execution) print(result *execute.Result) error {
	plan := r.job.Plan
	s := runSummary{Plan: r.command.Plan, Model: r.work.Task.Model, Data: r.work.Task.Data, GlobalBatch: plan.GlobalBatch, MicroBatch: plan.MicroBatch,
		Replicas: r.job.Replicas(), Cores: runtime.GOMAXPROCS(0), Result: result, Idle: []float64{}}
	for _, m := range result.Stages {
		s.Idle = append(s.Idle, m.Idle())
	}
	if r.command.JSON {
		return r.WriteJSON(s)
	}
	done := len(result.Losses)
	fmt.Fprintf(r.Out, "%s of %d samples, %d micro-batches each, on %s: %s, %s, %s.\n\n", cli.Count(done, "iteration"), plan.GlobalBatch, plan.MicroBatches(), s.Data, s.Model,
		cli.Count(len(plan.Stages), "stage"), cli.Count(s.Replicas, "replica"))
	fmt.Fprintf(r.Out, "loss       %.4f at first, %.4f at last\n", result.Losses[0], result.Losses[done-1])
	fmt.Fprintf(r.Out, "iteration  %s measured (median); %s predicted from each stage's time for a micro-batch, measured before the run (%+.1f%%)\n",
		cli.Seconds(result.Median), cli.Seconds(result.Predicted), 100*(result.Predicted/result.Median-1))
	if result.Plan > 0 {
		fmt.Fprintf(r.Out, "           %s predicted in the plan, for its devices\n", cli.Seconds(result.Plan))
	}
	if r.command.Stage < 0 && s.Replicas > s.Cores {
		fmt.Fprintf(r.Out, "           %d replicas share %d cores of this machine, so the time of one depends on the others\n", s.Replicas, s.Cores)
	}
	fmt.Fprintln(r.Out)
	return cli.PrintLines(r.Out, r.stages(result))
}

// stages is the table of an iteration's times and bytes.
func (r *execution) stages(result *execute.Result) []string {
	var rows [][]string
	for k, m := range result.Stages {
		st := r.job.Plan.Stages[k]
		var shares []string
		for _, g := range st.Groups {
			for _, b := range g.MicroBatches {
				shares = append(shares, fmt.Sprint(b))
			}
		}
		layers := r.job.Units[st.From].Name
		if st.To > st.From+1 {
			layers += " to " + r.job.Units[st.To-1].Name
		}
		side := "client"
		if k == 0 {
			side = "server"
		}
		n, all := float64(max(m.Iterations, 1)), uint64(max(len(result.Losses), 1))
		rows = append(rows, []string{fmt.Sprint(k), side, layers, strings.Join(shares, "+"), cli.Seconds(m.Forward / n), cli.Seconds(m.Backward / n), cli.Seconds(m.Update / n),
			cli.Percent(m.Idle()), humanize.Bytes(uint64(m.Payload) / all), humanize.Bytes(uint64(m.Wire) / all)})
	}
	return cli.Table([]cli.Column{cli.Right("stage"), cli.Left("side"), cli.Left("layers"), cli.Left("samples"), cli.Right("forward"), cli.Right("backward"), cli.Right("update"),
		cli.Right("idle"), cli.Right("sent"), cli.Right("encrypted")}, rows)
}
