package plan

import (
	"fmt"
	"strconv"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/planner"
)

type checkCmd struct {
	Plan string `arg:"" help:"Plan file." placeholder:"FILE"`
	planFlags
	JSON bool `help:"Print JSON."`
}

// Help is what --help adds.
func (*checkCmd) Help() string {
	return `Checks that the plan has every layer once, uses no device twice and fits the memory of every device; computes its cost and
simulates an iteration. The plan may be written by hand. Exit status 1: it does not fit into memory.

Examples:

  evenkeel plan check plan.json
  evenkeel plan check mine.json --profile layers.csv --cluster cluster.yaml --json`
}

// Run runs the command.
func (c *checkCmd) Run(a *cli.App) error {
	p, job, err := c.load(c.Plan)
	if err != nil {
		return err
	}
	var full error
	if p.Predicted, full = job.Predict(p); p.Predicted == nil {
		return c.unlike(c.Plan, full)
	}
	if c.JSON {
		if err := a.WriteJSON(p); err != nil {
			return err
		}
	} else if err := c.print(a, job, p); err != nil {
		return err
	}
	if full != nil {
		return fmt.Errorf("%s: %w", c.Plan, full)
	}
	return nil
}

func (c *checkCmd) print(a *cli.App, job *planner.Job, p *planner.Plan) error {
	c.warn(a, job)
	if err := printPlan(a, job, p); err != nil {
		return err
	}
	var rows [][]string
	for i, s := range p.Predicted.Stages {
		rows = append(rows, []string{strconv.Itoa(i), cli.Seconds(s.Forward), cli.Seconds(s.Backward), cli.Seconds(s.Recompute), cli.Seconds(s.Gather), cli.Seconds(s.Convert),
			cli.Seconds(s.Send), cli.Seconds(s.Sync), cli.Seconds(s.Update)})
	}
	fmt.Fprintln(a.Out, "\nSeconds of a micro-batch, and (sync, update) of an iteration:")
	if err := cli.PrintLines(a.Out, cli.Table([]cli.Column{cli.Right("stage"), cli.Right("forward"), cli.Right("backward"), cli.Right("recompute"), cli.Right("gather"),
		cli.Right("convert"), cli.Right("send"), cli.Right("sync"), cli.Right("update")}, rows)); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "By formula %s, simulated %s.\n", cli.Seconds(p.Predicted.Seconds), cli.Seconds(p.Predicted.Simulated))
	return nil
}
