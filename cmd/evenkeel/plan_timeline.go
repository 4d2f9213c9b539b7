package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/evenkeel/evenkeel/internal/figure"
	"github.com/evenkeel/evenkeel/planner"
)

// planTimelineCmd draws one iteration of a plan.
type planTimelineCmd struct {
	Plan string `arg:"" help:"Plan file." placeholder:"FILE"`
	Out  string `help:"File to write: a figure (.svg, .png), or a trace (.json) for chrome://tracing and ui.perfetto.dev." required:"" placeholder:"FILE"`
	jobFlags
}

// Help is shown under the flags.
func (*planTimelineCmd) Help() string {
	return `Every pass of every stage, what goes over the links, and the end of the iteration, as the event simulation of 1F1B has them.

Examples:

  evenkeel plan timeline plan.json --out timeline.svg
  evenkeel plan timeline plan.json --profile layers.csv --cluster cluster.yaml --out trace.json`
}

// Run is kong's.
func (c *planTimelineCmd) Run(a *app) error {
	inputs := []named{{"the plan", c.Plan}, {"--profile", c.Profile}, {"--cluster", c.Cluster}}
	if err := checkFiles(inputs, []named{{"--out", c.Out}}); err != nil {
		return err
	}
	p, err := planner.LoadPlan(c.Plan)
	if err != nil {
		return opened(err)
	}
	job, err := c.read(planner.Options{GlobalBatches: []int{p.GlobalBatch}})
	if err != nil {
		return err
	}
	for _, w := range job.Warnings() {
		a.log.Warn().Msg(w)
	}
	t, err := job.Timeline(p)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Plan, err)
	}
	if strings.ToLower(filepath.Ext(c.Out)) != ".json" {
		f, err := figure.Timeline(t)
		if err != nil {
			return err
		}
		return f.Save(c.Out)
	}
	file, err := renameio.NewPendingFile(c.Out, renameio.WithPermissions(0o644))
	if err != nil {
		return err
	}
	defer file.Cleanup()
	if err := t.WriteTrace(file); err != nil {
		return err
	}
	return file.CloseAtomicallyReplace()
}
