package plan

import (
	"fmt"
	"strings"

	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/planner"
)

// diffCmd compares two plans.
type diffCmd struct {
	A    string `arg:"" help:"Plan file." placeholder:"A"`
	B    string `arg:"" help:"Plan file." placeholder:"B"`
	JSON bool   `help:"Print JSON."`
}

// Help is what --help adds.
func (*diffCmd) Help() string {
	return `Shows different sizes and predictions of the whole plan, layers with a different stage, devices or strategy, and devices with different work.
Predictions are those in the files: plan search writes them, plan check --json recomputes them.

Examples:

  evenkeel plan diff plan.json other.json
  evenkeel plan diff plan.json other.json --json`
}

// Run runs the command.
func (c *diffCmd) Run(a *cli.App) error {
	x, err := planner.LoadPlan(c.A)
	if err != nil {
		return cli.FileError(err)
	}
	y, err := planner.LoadPlan(c.B)
	if err != nil {
		return cli.FileError(err)
	}
	d := planner.Compare(x, y)
	switch {
	case c.JSON:
		return a.WriteJSON(d)
	case d.None():
		_, err := fmt.Fprintln(a.Out, "The plans are the same.")
		return err
	}
	return c.print(a, d)
}

func (c *diffCmd) print(a *cli.App, d *planner.Difference) error {
	var rows [][]string
	for _, f := range d.Fields {
		name := strings.Replace(f.Field, "peak_bytes", "peak memory of", 1)
		rows = append(rows, []string{name, fieldText(f.Field, f.A), fieldText(f.Field, f.B)})
	}
	var tables [][]string
	if len(rows) > 0 {
		tables = append(tables, cli.Table([]cli.Column{cli.Left(""), cli.Right(c.A), cli.Right(c.B)}, rows))
	}
	rows = nil
	for _, l := range d.Layers {
		rows = append(rows, []string{numbers(l.From, l.To-l.From), layerText(l.A), layerText(l.B)})
	}
	if len(rows) > 0 {
		tables = append(tables, cli.Table([]cli.Column{cli.Left("layers"), cli.Left(c.A), cli.Left(c.B)}, rows))
	}
	rows = nil
	for _, v := range d.Devices {
		rows = append(rows, []string{v.Device + " " + numbers(v.First, v.Count), deviceText(v.A), deviceText(v.B)})
	}
	if len(rows) > 0 {
		tables = append(tables, cli.Table([]cli.Column{cli.Left("devices"), cli.Left(c.A), cli.Left(c.B)}, rows))
	}
	for i, t := range tables {
		if i > 0 {
			fmt.Fprintln(a.Out)
		}
		if err := cli.PrintLines(a.Out, t); err != nil {
			return err
		}
	}
	return nil
}

// fieldText formats a field's value with its unit.
func fieldText(field string, v any) string {
	x, number := v.(float64)
	switch {
	case v == nil:
		return "-"
	case !number:
		return fmt.Sprint(v)
	case field == "idle":
		return fmt.Sprintf("%.1f%%", 100*x)
	case strings.HasPrefix(field, "peak_bytes"):
		return fmt.Sprintf("%.2f GiB", x/(1<<30))
	}
	return cli.Seconds(x)
}

// numbers formats a range as 3-5, or 3.
func numbers(first, count int) string {
	if count == 1 {
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d-%d", first, first+count-1)
}

func layerText(u *planner.LayerUse) string {
	if u == nil {
		return "not in the plan"
	}
	text := fmt.Sprintf("stage %d: %s, tensor %s, sharding %s", u.Stage, u.Devices, u.Tensor, u.Sharding)
	if u.Checkpoint {
		text += ", checkpoint"
	}
	if u.Selective {
		text += ", selective"
	}
	return text
}

func deviceText(u *planner.DeviceUse) string {
	if u == nil {
		return "no work"
	}
	return fmt.Sprintf("stage %d: tensor %d, %s", u.Stage, u.Tensor, cli.Count(u.MicroBatch, "sample"))
}
