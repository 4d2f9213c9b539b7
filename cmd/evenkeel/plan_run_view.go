package main

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/evenkeel/evenkeel/planner/execute"
)

// planRunSummary is the --json document.
type planRunSummary struct {
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

// print shows a result.
func (r *planRun) print(result *execute.Result) error {
	plan := r.job.Plan
	s := planRunSummary{Plan: r.command.Plan, Model: r.work.Task.Model, Data: r.work.Task.Data, GlobalBatch: plan.GlobalBatch, MicroBatch: plan.MicroBatch,
		Replicas: r.job.Replicas(), Cores: runtime.GOMAXPROCS(0), Result: result, Idle: []float64{}}
	for _, m := range result.Stages {
		s.Idle = append(s.Idle, m.Idle())
	}
	if r.command.JSON {
		return r.writeJSON(s)
	}
	done := len(result.Losses)
	fmt.Fprintf(r.out, "%s of %d samples, %d micro-batches each, on %s: %s, %s, %s.\n\n", count(done, "iteration"), plan.GlobalBatch, plan.MicroBatches(), s.Data, s.Model,
		count(len(plan.Stages), "stage"), count(s.Replicas, "replica"))
	fmt.Fprintf(r.out, "loss       %.4f at first, %.4f at last\n", result.Losses[0], result.Losses[done-1])
	fmt.Fprintf(r.out, "iteration  %s measured (median); %s predicted from what each stage took for a micro-batch before (%+.1f%%)\n",
		seconds(result.Median), seconds(result.Predicted), 100*(result.Predicted/result.Median-1))
	if result.Plan > 0 {
		fmt.Fprintf(r.out, "           %s predicted in the plan, for its own devices\n", seconds(result.Plan))
	}
	if r.command.Stage < 0 && s.Replicas > s.Cores {
		fmt.Fprintf(r.out, "           %d replicas share %d cores of this machine, so what one takes depends on who else computes\n", s.Replicas, s.Cores)
	}
	fmt.Fprintln(r.out)
	return printLines(r.out, r.stages(result))
}

// stages is the table, of an iteration's times and bytes.
func (r *planRun) stages(result *execute.Result) []string {
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
		rows = append(rows, []string{fmt.Sprint(k), side, layers, strings.Join(shares, "+"), seconds(m.Forward / n), seconds(m.Backward / n), seconds(m.Update / n),
			percent(m.Idle()), humanize.Bytes(uint64(m.Payload) / all), humanize.Bytes(uint64(m.Wire) / all)})
	}
	return table([]column{{"stage", true}, {"side", false}, {"layers", false}, {"samples", false}, {"forward", true}, {"backward", true}, {"update", true},
		{"idle", true}, {"sent", true}, {"encrypted", true}}, rows)
}
