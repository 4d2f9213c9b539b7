package plan

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/planner"
	"evenkeel/planner/calibration"
)

type calibrateCmd struct {
	Measured string `arg:"" help:"Measured plans, .csv, with the columns plan and seconds, and optionally cluster and peak_bytes." placeholder:"FILE"`
	inputFlags
	Out  string `help:"Calibration to write, .json." required:"" placeholder:"FILE"`
	JSON bool   `help:"Print JSON."`
}

// Help is what --help adds.
func (*calibrateCmd) Help() string {
	return `Each line of the file names a plan that was trained, the seconds of an iteration, and the largest memory peak of a device in bytes
(it may be empty). One plan on a node of each type is enough to begin with; plans with links between machines tell more. Without a
column cluster all plans ran on --cluster. Paths are relative to the file.

The calibration has a factor on the times of each device, a factor on links, and the memory that a device takes beside the model.
evenkeel plan search, check and timeline read it with --calibration. If plans contradict each other, the outliers are named and nothing
is written.

Examples:

  evenkeel plan calibrate measured.csv --profile layers.csv --cluster cluster.yaml --out calibration.json
  evenkeel plan search --profile layers.csv --cluster cluster.yaml --batch 512 --calibration calibration.json`
}

// strange is the factor on times beyond which, up or down, the layer profile was probably measured under other conditions.
const strange = 2

// Run runs the command.
func (c *calibrateCmd) Run(a *cli.App) error {
	inputs := []cli.File{cli.FileFlag("the measured plans", c.Measured), cli.FileFlag("--profile", c.Profile), cli.FileFlag("--cluster", c.Cluster)}
	if err := cli.CheckFiles(inputs, []cli.File{cli.FileFlag("--out", c.Out)}); err != nil {
		return err
	}
	var o planner.Options
	p, t, err := c.read(&o)
	if err != nil {
		return err
	}
	rows, err := calibration.Load(c.Measured, p, t, o)
	if err != nil {
		return cli.FileError(err)
	}
	f, err := calibration.New(rows, c.precision(), c.Overlap)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Measured, err)
	}
	if err := f.Write(c.Out); err != nil {
		return err
	}
	if c.JSON {
		return a.WriteJSON(f)
	}
	return c.print(a, f)
}

func (c *calibrateCmd) print(a *cli.App, f *calibration.File) error {
	var rows [][]string
	seconds, peaks, measured := 0.0, 0.0, 0
	off := func(predicted, measured float64, sum *float64) string {
		*sum += math.Abs(predicted/measured - 1)
		return fmt.Sprintf("%+.1f", 100*(predicted/measured-1))
	}
	for _, p := range f.Plans {
		row := []string{p.Plan, cli.Seconds(p.Seconds), cli.Seconds(p.PredictedSeconds), off(p.PredictedSeconds, p.Seconds, &seconds), "", "", ""}
		if p.Peak > 0 {
			row = append(row[:4], fmt.Sprintf("%.2f", p.Peak/1e9), fmt.Sprintf("%.2f", p.PredictedPeak/1e9), off(p.PredictedPeak, p.Peak, &peaks))
			measured++
		}
		rows = append(rows, row)
	}
	if err := cli.PrintLines(a.Out, cli.Table([]cli.Column{cli.Left("plan"), cli.Right("measured"), cli.Right("predicted"), cli.Right("off %"),
		cli.Right("GB"), cli.Right("predicted"), cli.Right("off %")}, rows)); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "\nMean error on these plans, which the calibration was fitted to: %.1f%% in time", 100*seconds/float64(len(f.Plans)))
	if measured > 0 {
		fmt.Fprintf(a.Out, ", %.1f%% in memory", 100*peaks/float64(measured))
	}
	fmt.Fprintln(a.Out, ".")
	for _, d := range slices.Sorted(maps.Keys(f.Devices)) {
		if v := f.Devices[d]; v > strange || v < 1/strange {
			a.Log.Warn().Msgf("%s takes %.2f times as long as the layer profile says: was the profile measured on the same device, with the same precision and sizes?", d, v)
		}
		fmt.Fprintf(a.Out, "%s: %.3f times as long as in the layer profile.\n", d, f.Devices[d])
	}
	fmt.Fprintf(a.Out, "Links: %.3f times as long as in the cluster file.\n", f.Links)
	if measured > 0 {
		fmt.Fprintf(a.Out, "Memory: %.2f GB beside the model, activations %.2f times the profile's, buffers %.2f times; %.1f%% kept free.\n", f.Context/1e9, f.Activations, f.Working, 100*f.Margin)
	} else {
		fmt.Fprintln(a.Out, "Memory: as without a calibration, since no plan has peak_bytes.")
	}
	fmt.Fprintf(a.Out, "Written to %s.\n", c.Out)
	return nil
}
