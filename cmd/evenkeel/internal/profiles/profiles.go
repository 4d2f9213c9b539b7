// Package profiles holds the commands about measured device profiles.
package profiles

import (
	"fmt"
	"os"
	"strings"

	"github.com/dustin/go-humanize"

	"evenkeel/cluster/profile"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/figure"
)

// Cmd holds the commands about measured device profiles.
type Cmd struct {
	List    listCmd    `cmd:"" help:"List the known devices and workloads with the quality of their measurements."`
	Devices devicesCmd `cmd:"" help:"List the known devices with the figures of their data sheets."`
	Show    showCmd    `cmd:"" help:"Show one profile: its points, its fit, its source."`
	Check   checkCmd   `cmd:"" help:"Check a profile file of your own."`
}

// Help is what --help adds.
func (*Cmd) Help() string {
	return `A profile says how long micro-batches of a workload take on a device, and how much memory they need.
python3 -m evenkeel.profile measures your own, docs/reference/formats/profile.md describes the CSV file that it writes.

Examples:

  evenkeel profiles list
  evenkeel profiles devices
  evenkeel profiles show a10g llama-3b-512-fp16 --plot a10g.svg
  evenkeel profiles check my-profiles.csv`
}

type listCmd struct {
	cli.ProfileFlags
	JSON bool `name:"json" help:"Print JSON."`
}

// Help is what --help adds.
func (*listCmd) Help() string {
	return `Examples:

  evenkeel profiles list
  evenkeel profiles list --json
  evenkeel profiles list --profiles my-profiles.csv`
}

// listed is a profile with what the catalogue says about its device and workload.
type listed struct {
	profile.SeriesReport
	MemoryLimit int           `json:"memory_limit"` // largest micro-batch in the device's memory; 0: not known
	Split       profile.Split `json:"split"`        // heldout if its device or its workload is
	IdleWatts   float64       `json:"idle_watts"`   // of the device; 0: not known
	BusyWatts   float64       `json:"busy_watts"`   // the same
}

// Run runs the command.
func (l *listCmd) Run(a *cli.App) error {
	c, err := l.Catalogue()
	if err != nil {
		return err
	}
	out := []listed{}
	for _, p := range c.Profiles() {
		out = append(out, list(c, p))
	}
	if l.JSON {
		return a.WriteJSON(map[string]any{"profiles": out})
	}
	var rows [][]string
	for _, r := range out {
		fits := "?"
		if r.MemoryLimit > 0 {
			fits = fmt.Sprint(r.MemoryLimit)
		}
		rows = append(rows, []string{
			r.Device, r.Workload, fmt.Sprint(r.Points), fmt.Sprintf("%d-%d", r.First, r.Last), cli.Seconds(r.PerSample), fits, fmt.Sprintf("%.4f", r.Fit.R2), r.Source,
		})
	}
	return cli.PrintLines(a.Out, cli.Table([]cli.Column{
		cli.Left("device"), cli.Left("workload"), cli.Right("points"), cli.Right("sizes"), cli.Right("per sample"), cli.Right("memory fits"), cli.Right("R2"), cli.Left("source"),
	}, rows))
}

func list(c *profile.Catalogue, p *profile.Profile) listed {
	d, _ := c.Device(p.Device)
	w, _ := c.Workload(p.Workload)
	l := listed{SeriesReport: c.Report(p), Split: w.Split, IdleWatts: d.IdleWatts, BusyWatts: d.BusyWatts}
	if d.Split == profile.HeldOut {
		l.Split = d.Split
	}
	if n := p.MemoryLimit(d.MemoryBytes); d.MemoryBytes > 0 && n != profile.NoLimit {
		l.MemoryLimit = n
	}
	return l
}

type devicesCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// Help is what --help adds.
func (*devicesCmd) Help() string {
	return `The speeds are the dense ones that the data sheets promise. Sizes and simulations need measured profiles: evenkeel profiles list shows those.

Examples:

  evenkeel profiles devices
  evenkeel profiles devices --json`
}

// Run runs the command.
func (l *devicesCmd) Run(a *cli.App) error {
	all := profile.Embedded().Devices()
	if l.JSON {
		return a.WriteJSON(map[string]any{"devices": all})
	}
	var rows [][]string
	for _, d := range all {
		rows = append(rows, []string{d.Name, humanize.IBytes(uint64(d.MemoryBytes)), fmt.Sprint(d.TFLOPS32), fmt.Sprint(d.TFLOPS16), fmt.Sprint(d.Bandwidth), d.DataSheet})
	}
	return cli.PrintLines(a.Out, cli.Table([]cli.Column{
		cli.Left("device"), cli.Right("memory"), cli.Right("TFLOP/s fp32"), cli.Right("fp16, bf16"), cli.Right("memory GB/s"), cli.Left("data sheet"),
	}, rows))
}

type showCmd struct {
	cli.ProfileFlags
	Device   string `arg:"" help:"Device; evenkeel profiles list shows which are known."`
	Workload string `arg:"" help:"Workload that was measured on the device."`
	Plot     string `help:"Draw the profile, as SVG." placeholder:"FILE"`
	JSON     bool   `name:"json" help:"Print JSON."`
}

// Help is what --help adds.
func (*showCmd) Help() string {
	return `Examples:

  evenkeel profiles show a10g llama-3b-512-fp16
  evenkeel profiles show my-gpu my-model --profiles my-profiles.csv --plot my-gpu.svg`
}

// Run runs the command.
func (s *showCmd) Run(a *cli.App) error {
	if err := cli.CheckPlot(s.Plot); err != nil {
		return err
	}
	if err := cli.CheckFiles(s.Inputs(), []cli.File{cli.FileFlag("--plot", s.Plot)}); err != nil {
		return err
	}
	c, err := s.Catalogue()
	if err != nil {
		return err
	}
	p, err := c.Lookup(s.Device, s.Workload)
	if err != nil {
		return err
	}
	if s.Plot != "" {
		if err := figure.Profile(p, s.Plot); err != nil {
			return err
		}
		a.Log.Info().Str("file", s.Plot).Msg("figure written")
	}
	l := list(c, p)
	source, known := c.Source(p.Source)
	if s.JSON {
		document := map[string]any{"report": l, "points": p.Points, "note": p.Note}
		if known {
			document["source"] = source
		}
		return a.WriteJSON(document)
	}
	return cli.PrintLines(a.Out, show(c, p, l, source))
}

func show(c *profile.Catalogue, p *profile.Profile, l listed, source profile.Source) []string {
	d, _ := c.Device(p.Device)
	lines := []string{fmt.Sprintf("%s on %s", p.Workload, p.Device), ""}
	var rows [][]string
	for _, q := range p.Points {
		peak := ""
		if q.PeakBytes > 0 {
			peak = humanize.IBytes(uint64(q.PeakBytes))
		}
		rows = append(rows, []string{fmt.Sprint(q.MicroBatch), cli.Seconds(q.Seconds), cli.Rate(float64(q.MicroBatch) / q.Seconds), cli.Seconds(p.Fit().Seconds(float64(q.MicroBatch))), peak})
	}
	lines = append(lines, cli.Table([]cli.Column{cli.Right("micro-batch"), cli.Right("measured"), cli.Right("samples/s"), cli.Right("fitted"), cli.Right("peak memory")}, rows)...)
	lines = append(lines, "", fmt.Sprintf("per sample   %s, R2 %.4f, at most %s off the fitted line", cli.Seconds(l.PerSample), l.Fit.R2, cli.Percent(l.Fit.MaxRelError)))
	switch {
	case l.MemoryLimit > 0:
		lines = append(lines, fmt.Sprintf("memory       %s hold a micro-batch of %d, without model state", humanize.IBytes(uint64(d.MemoryBytes)), l.MemoryLimit))
	case d.MemoryBytes > 0:
		lines = append(lines, fmt.Sprintf("memory       %s; no limit follows from the points", humanize.IBytes(uint64(d.MemoryBytes))))
	}
	if d.BusyWatts > 0 {
		lines = append(lines, fmt.Sprintf("power        %.0f W while it trains, at most %.0f W without work", d.BusyWatts, d.IdleWatts))
	}
	from := p.Source
	if source.Key != "" {
		from = fmt.Sprintf("%s, commit %s, licence %s", source.Repository, source.Commit, source.Licence)
	}
	lines = append(lines, "source       "+from)
	if p.Note != "" {
		lines = append(lines, "             "+p.Note)
	}
	for _, w := range l.Warnings {
		lines = append(lines, "note         "+w)
	}
	return lines
}

type checkCmd struct {
	File string `arg:"" help:"Profile file (.csv), or a folder of them."`
	JSON bool   `name:"json" help:"Print JSON."`
}

// Help is what --help adds.
func (*checkCmd) Help() string {
	return `Every fault is reported with its line and field, and the exit status is 2. For a file without faults a table shows the quality of its measurements.

Examples:

  evenkeel profiles check my-profiles.csv
  evenkeel profiles check profiles/ --json`
}

// Run runs the command.
func (k *checkCmd) Run(a *cli.App) error {
	if _, err := os.Stat(k.File); err != nil {
		return cli.FileError(err)
	}
	reports, err := profile.Check(k.File)
	if err != nil {
		return err
	}
	if k.JSON {
		return a.WriteJSON(map[string]any{"profiles": reports})
	}
	var rows [][]string
	for _, r := range reports {
		said := "good"
		if len(r.Warnings) > 0 {
			said = strings.Join(r.Warnings, "; ")
		}
		rows = append(rows, []string{
			r.Device, r.Workload, fmt.Sprint(r.Points), fmt.Sprintf("%d-%d", r.First, r.Last), cli.Seconds(r.PerSample), fmt.Sprintf("%.4f", r.Fit.R2), said,
		})
	}
	return cli.PrintLines(a.Out, cli.Table([]cli.Column{
		cli.Left("device"), cli.Left("workload"), cli.Right("points"), cli.Right("sizes"), cli.Right("per sample"), cli.Right("R2"), cli.Left("notes"),
	}, rows))
}
