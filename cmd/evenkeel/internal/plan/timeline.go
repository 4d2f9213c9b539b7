package plan

import (
	"fmt"
	"path/filepath"
	"strings"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/chart"
	"evenkeel/internal/figure"
)

type timelineCmd struct {
	Plan string `arg:"" help:"Plan file." placeholder:"FILE"`
	Out  string `help:"File to write: a figure (.svg), or a trace (.json) for chrome://tracing and ui.perfetto.dev." required:"" placeholder:"FILE"`
	planFlags
}

// Help is what --help adds.
func (*timelineCmd) Help() string {
	return `Simulates the plan's schedule, and shows every pass of every stage, the transfers between stages, and what ends the iteration.

Examples:

  evenkeel plan timeline plan.json --out timeline.svg
  evenkeel plan timeline plan.json --profile layers.csv --cluster cluster.yaml --out trace.json`
}

// Run runs the command.
func (c *timelineCmd) Run(a *cli.App) error {
	inputs := []cli.File{cli.FileFlag("the plan", c.Plan), cli.FileFlag("--profile", c.Profile), cli.FileFlag("--cluster", c.Cluster)}
	if err := cli.CheckFiles(inputs, []cli.File{cli.FileFlag("--out", c.Out)}); err != nil {
		return err
	}
	p, job, err := c.load(c.Plan)
	if err != nil {
		return err
	}
	c.warn(a, job)
	t, err := job.Timeline(p)
	if err != nil {
		return c.unlike(c.Plan, err)
	}
	if strings.EqualFold(filepath.Ext(c.Out), ".json") {
		err = cli.WriteFile(c.Out, t.WriteTrace)
	} else {
		var f chart.Figure
		if f, err = figure.Timeline(t); err == nil {
			err = f.Save(c.Out)
		}
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "Written to %s.\n", c.Out)
	return nil
}
