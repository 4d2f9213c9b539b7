package run

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/evenkeel/evenkeel/agent/export"
	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/env"
	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/internal/runlog"
)

// ExportCmd writes sizes for a trainer.
type ExportCmd struct {
	flags   `set:"rounds=100"`
	Format  string `help:"One of ${formats} (${default})." default:"json" placeholder:"NAME"`
	Out     string `help:"File to write; default: standard output." placeholder:"FILE"`
	Nominal bool   `help:"Sizes from the profiles alone, without a simulated run." xor:"from"`
	Log     string `help:"Sizes from the end of a run log, without a run." placeholder:"FILE" xor:"from"`
	scalingFlags
}

// Help is what --help adds.
func (*ExportCmd) Help() string {
	text := `The sizes are those at the end of a simulated run, those that follow from the profiles alone (--nominal), or those at the end of a run log (--log).
If the agent chose the global batch, a factor for the learning rate is written too. docs/guides/trainers.md shows how each trainer uses both.

Formats:

`
	for _, f := range export.Formats() {
		text += fmt.Sprintf("  %-11s %s\n", f.Name, f.Description)
	}
	return text + `
Examples:

  evenkeel export --cluster my.yaml --nominal --format torchrun --out sizes.sh  # for a real job
  evenkeel export --cluster my.yaml                                             # at the end of a simulated run
  evenkeel export --log run.jsonl --format deepspeed --out deepspeed.json
  evenkeel export --nominal --format kubernetes | kubectl apply -f -`
}

// Run runs the command.
func (e *ExportCmd) Run(a *cli.App) error {
	if err := e.check(a); err != nil {
		return err
	}
	end, err := e.end(a)
	if err != nil {
		return err
	}
	sizes, err := export.FromRun(end, e.LRScaling)
	if err != nil {
		return err
	}
	final := make([]int, len(sizes.Nodes))
	for i, n := range sizes.Nodes {
		final[i] = n.MicroBatch
	}
	a.WarnExtrapolated(end.Cluster, final)
	if e.Out == "" {
		return export.Write(a.Out, e.Format, sizes)
	}
	return export.Save(e.Out, e.Format, sizes)
}

// check refuses flags without an effect, and files that cannot be read or written.
func (e *ExportCmd) check(a *cli.App) error {
	inputs := e.inputs()
	switch {
	case e.Log != "":
		inputs = []cli.File{cli.FileFlag("--log of the run", e.Log)}
		if err := a.Only("--log", "log", "format", "out", "lr-scaling"); err != nil {
			return err
		}
	case e.Nominal:
		if err := a.Only("--nominal", "nominal", "cluster", "profiles", "format", "out", "lr-scaling"); err != nil {
			return err
		}
	}
	if err := errors.Join(checkFormat("--format", e.Format), e.scalingFlags.check()); err != nil {
		return err
	}
	return cli.CheckFiles(inputs, []cli.File{cli.FileFlag("--out", e.Out)})
}

func (e *ExportCmd) end(a *cli.App) (export.Run, error) {
	switch {
	case e.Log != "":
		return readEnd(a, e.Log)
	case e.Nominal:
		catalogue, err := e.Catalogue()
		if err != nil {
			return export.Run{}, err
		}
		_, _, c, err := cli.LoadCluster(e.Cluster, catalogue)
		if err != nil {
			return export.Run{}, err
		}
		a.WarnMemory(c)
		return export.Run{Cluster: c, GlobalBatch: c.GlobalBatch, Performance: c.Nominal()}, nil
	}
	s, err := e.load()
	if err != nil {
		return export.Run{}, err
	}
	a.WarnMemory(s.cluster)
	return settle(a, s)
}

// settle runs the agent and shows a progress bar.
func settle(a *cli.App, s *setup) (export.Run, error) {
	policy, _, control := s.start()
	var t tally
	report, clear := a.Progress("settling")
	defer clear()
	var sizes []int
	for n := range s.rounds {
		s.prefer(policy, n+1)
		round, err := control.Round(a.Ctx)
		if err != nil {
			return export.Run{}, err
		}
		sizes = round.Plan.Sizes
		t.add(round.Report)
		report(n+1, s.rounds)
	}
	if err := t.failure(s.cluster); err != nil {
		return export.Run{}, err
	}
	return s.end(policy, sizes), nil
}

// readEnd reads the end of a run log.
func readEnd(a *cli.App, path string) (export.Run, error) {
	f, err := os.Open(path)
	if err != nil {
		return export.Run{}, cli.FileError(err)
	}
	defer f.Close()
	r, err := runlog.NewReader(f)
	var last, e *runlog.Entry
	var t tally
	var norms *env.Tracker // estimates the noise scale, which is not in the log
	if err == nil && free(r.Cluster) {
		norms = env.NewTracker(r.Cluster)
	}
	for err == nil {
		if e, err = r.Next(); err == nil {
			if norms != nil && last != nil {
				norms.Observe(&last.Report) // no decision used the last report
			}
			last = e
			t.add(&e.Report)
		}
	}
	if !errors.Is(err, io.EOF) {
		return export.Run{}, fmt.Errorf("%s: %w", path, err)
	}
	if last == nil {
		return export.Run{}, badinput.Errorf("%s: the log has no rounds", path)
	}
	if r.Cut {
		warnCut(a, path)
	}
	if err := t.failure(r.Cluster); err != nil {
		return export.Run{}, fmt.Errorf("%s: %w", path, err)
	}
	a.WarnMemory(r.Cluster)
	end := export.Run{Cluster: r.Cluster, GlobalBatch: r.Cluster.GlobalBatch, Sizes: last.Sizes, Performance: last.Performance()}
	if norms != nil {
		end.GlobalBatch, end.NoiseScale = export.ChosenBatch(r.Cluster, last.Sizes), norms.NoiseScale()
	}
	return end, nil
}

// FormatNames lists the formats of export for help texts.
func FormatNames() string {
	var names []string
	for _, f := range export.Formats() {
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ")
}
