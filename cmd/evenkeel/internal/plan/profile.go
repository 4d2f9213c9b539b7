package plan

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/planner/measure"
	"github.com/evenkeel/evenkeel/train/task"
)

// profileCmd measures layers.
type profileCmd struct {
	Data         string        `help:"Training data: digits (embedded), synthetic, or a file: .csv (numbers, the class in the last column) or text." default:"digits" placeholder:"NAME|FILE"`
	Model        string        `help:"mlp, convnet (digits only) or transformer (text only). Default: transformer for text, mlp for all else." placeholder:"NAME"`
	Size         int           `help:"Width of a hidden layer (default 128) or token (64), channels of the first convolution (16)." placeholder:"N"`
	Depth        int           `help:"Hidden layers, blocks or convolutions. Default: 2." placeholder:"N"`
	Length       int           `help:"Characters of a sample of text. Default: 64." placeholder:"N"`
	MicroBatches []int         `help:"Micro-batch sizes to measure. Default: ${default}." default:"1,2,4,8,16,32" placeholder:"N"`
	Device       string        `help:"Name of this machine in the profile. Default: ${default}." default:"cpu" placeholder:"NAME"`
	Each         time.Duration `help:"Time for each layer and micro-batch; at least three repetitions. Default: ${default}." default:"100ms"`
	Out          string        `help:"Profile to write, .csv. Default: standard output." placeholder:"FILE"`
}

// Help is what --help adds.
func (*profileCmd) Help() string {
	return `Measures forward pass, backward pass and AdamW update of every layer on this machine; medians of several repetitions.
For other trainers write the profile from your own measurements, or convert one: see docs/reference/formats/layer-profile.md.

Examples:

  evenkeel plan profile --depth 6 --size 256 --out layers.csv
  evenkeel plan profile --data book.txt --depth 8 --micro-batches 1,2,4 --out layers.csv`
}

// Run runs the command.
func (c *profileCmd) Run(a *cli.App) error {
	if !slices.IsSorted(c.MicroBatches) || c.MicroBatches[0] < 1 || len(slices.Compact(slices.Clone(c.MicroBatches))) != len(c.MicroBatches) {
		return badinput.Errorf("--micro-batches: %v; must be increasing numbers from 1", c.MicroBatches)
	}
	if c.Each < 0 || c.Each > time.Minute {
		return badinput.Errorf("--each: %s; must be 0 to 1m", c.Each)
	}
	if c.Device == "" {
		return badinput.Errorf("--device is empty; name this machine")
	}
	if err := cli.CheckFiles(nil, []cli.File{cli.FileFlag("--out", c.Out)}); err != nil {
		return err
	}
	t := task.Task{Data: c.Data, Model: c.Model, Size: c.Size, Depth: c.Depth, Length: c.Length}.WithDefaults()
	work, err := t.Build()
	if err != nil {
		return cli.FileError(err)
	}
	report, clear := a.Progress("measuring")
	p, err := measure.Network(a.Ctx, work.Network, measure.Options{Model: t.Model, Device: c.Device, MicroBatches: c.MicroBatches, Each: c.Each}, report)
	clear()
	if err != nil {
		if a.Ctx.Err() != nil {
			return cli.Interrupted(a.Ctx.Err(), "interrupted; nothing is written")
		}
		return err
	}
	for _, w := range p.Warnings {
		a.Log.Warn().Msg(w)
	}
	if c.Out == "" {
		return p.WriteCSV(a.Out)
	}
	if err := cli.WriteFile(c.Out, p.WriteCSV); err != nil {
		return err
	}
	rows := make([][]string, 0, len(p.Layers))
	for i, l := range p.Layers {
		r := l.Runs[len(l.Runs)-1]
		rows = append(rows, []string{strconv.Itoa(i), l.Name, strconv.Itoa(int(l.Parameters)), cli.Seconds(r.Forward), cli.Seconds(r.Backward), cli.Seconds(r.Update)})
	}
	if err := cli.PrintLines(a.Out, cli.Table([]cli.Column{cli.Right("layer"), cli.Left("name"), cli.Right("parameters"), cli.Right("forward"), cli.Right("backward"), cli.Right("update")}, rows)); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "\nTimes of %d samples. Written to %s. Next: evenkeel plan search --profile %s --cluster FILE --batch N\n",
		c.MicroBatches[len(c.MicroBatches)-1], c.Out, c.Out)
	return nil
}
