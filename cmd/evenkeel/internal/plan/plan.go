// Package plan holds the commands that make, check, export and run plans of hybrid parallelism.
package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/planner"
)

// Cmd holds the subcommands of evenkeel plan.
type Cmd struct {
	Search    searchCmd    `cmd:"" help:"Find the quickest plan for a model on a mixed cluster."`
	Check     checkCmd     `cmd:"" help:"Check a plan and compute its cost, term by term."`
	Calibrate calibrateCmd `cmd:"" help:"Fit the cost model to measured plans."`
	Estimate  estimateCmd  `cmd:"" help:"Write the layer profile of a model as data sheets have it."`
	Merge     mergeCmd     `cmd:"" help:"Join layer profiles of one model, measured on different devices."`
	Run       runCmd       `cmd:"" help:"Train a small network by a plan: a process per stage, connected by mutual TLS."`
	Keys      keysCmd      `cmd:"" help:"Create the certificates by which the stages of a run authenticate each other."`
	Timeline  timelineCmd  `cmd:"" help:"Draw one iteration of a plan, or write it as a trace."`
	Export    exportCmd    `cmd:"" help:"Write a plan for a trainer."`
}

func microBatches(n int) string {
	if n == 1 {
		return "1 micro-batch"
	}
	return fmt.Sprintf("%d micro-batches", n)
}

// printPlan prints a plan as a table: the layers, devices, strategies and cost of every stage.
func printPlan(a *cli.App, job *planner.Job, p *planner.Plan) error {
	var rows [][]string
	for i, s := range p.Stages {
		cost := p.Predicted.Stages[i]
		for g, group := range s.Groups {
			row := []string{"", "", "", "", "", "", ""}
			if g == 0 {
				row = []string{strconv.Itoa(i), layersText(job, s), "", strategiesText(s), cli.Seconds(cost.Step() + cost.Send), cli.Seconds(cost.Sync + cost.Update), ""}
			}
			u := cost.Memory[g]
			row[2] = groupText(p, group)
			row[6] = fmt.Sprintf("%.1f of %.1f", u.Peak()/(1<<30), u.Limit/(1<<30))
			rows = append(rows, row)
		}
	}
	if err := cli.PrintLines(a.Out, cli.Table([]cli.Column{cli.Right("stage"), cli.Left("layers"), cli.Left("devices"), cli.Left("strategies"),
		cli.Right("step"), cli.Right("once"), cli.Right("GiB")}, rows)); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "\nAn iteration of %s in %s of %d: %s, %.1f samples/s; devices idle %.1f%%.\n", cli.Count(p.GlobalBatch, "sample"), microBatches(p.MicroBatches()),
		p.MicroBatch, cli.Seconds(p.Predicted.Simulated), float64(p.GlobalBatch)/p.Predicted.Simulated, 100*p.Predicted.Idle)
	if p.Experts > 1 {
		fmt.Fprintf(a.Out, "Every %d consecutive replicas divide the experts of a layer among them.\n", p.Experts)
	}
	if p.Predicted.Sequence {
		fmt.Fprintln(a.Out, "Layers with a tensor degree are sequence-parallel.")
	}
	if text := scheduleText(p); text != "" {
		fmt.Fprintln(a.Out, text)
	}
	for _, u := range p.Unused {
		fmt.Fprintf(a.Out, "Unused: %d %s (%d-%d).\n", u.Count, u.Device, u.First, u.First+u.Count-1)
	}
	return nil
}

// scheduleText says by which schedule a plan runs, unless it is 1F1B.
func scheduleText(p *planner.Plan) string {
	switch p.Schedule {
	case planner.ScheduleInterleaved:
		return fmt.Sprintf("Schedule: interleaved; stages %d apart lie on the same devices, whose memory in GiB is that of all their stages%s.", p.Pipeline(), sending(p))
	case planner.ScheduleZeroBubble:
		return fmt.Sprintf("Schedule: zb-h1; the gradients of weights are passes of their own%s.", sending(p))
	case planner.ScheduleAhead:
		text := strings.Trim(strings.ReplaceAll(fmt.Sprint(p.Warmup), " ", ", "), "[]")
		return fmt.Sprintf("Schedule: h-1f1b; the stages begin with %s forward passes, and compute while they send.", text)
	}
	return ""
}

// sending says it if stages compute while they send.
func sending(p *planner.Plan) string {
	if p.Transfers == planner.TransfersOverlap {
		return "; stages compute while they send"
	}
	return ""
}

func layersText(job *planner.Job, s planner.Stage) string {
	l := job.Profile.Layers
	if s.To == s.From+1 {
		return fmt.Sprintf("%d %s", s.From, l[s.From].Name)
	}
	return fmt.Sprintf("%d-%d %s-%s", s.From, s.To-1, l[s.From].Name, l[s.To-1].Name)
}

func groupText(p *planner.Plan, g planner.Group) string {
	shares := strconv.Itoa(slices.Max(g.MicroBatches))
	if low := slices.Min(g.MicroBatches); low != slices.Max(g.MicroBatches) {
		shares = fmt.Sprintf("%d-%s", low, shares)
	}
	context := ""
	if p.Context > 1 {
		context = fmt.Sprintf(" x context %d", p.Context)
	}
	return fmt.Sprintf("%d %s: %d x tensor %d%s, %s samples", g.Count, g.Device, g.Count/p.Replica(g), g.Tensor, context, shares)
}

func strategiesText(s planner.Stage) string {
	var all []string
	for _, y := range s.Strategies {
		t := string(y.Sharding)
		if y.Tensor > 0 {
			t += fmt.Sprintf(" tensor %d", y.Tensor)
		}
		if y.Checkpoint {
			t += " checkpoint"
		}
		if y.Selective {
			t += " selective"
		}
		switch {
		case len(s.Strategies) == 1:
		case y.To == y.From+1:
			t = fmt.Sprintf("layer %d: %s", y.From, t)
		default:
			t = fmt.Sprintf("layers %d-%d: %s", y.From, y.To-1, t)
		}
		all = append(all, t)
	}
	return strings.Join(all, ", ")
}
