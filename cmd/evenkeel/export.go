package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/evenkeel/evenkeel/agent/export"
	"github.com/evenkeel/evenkeel/internal/runlog"
)

// exportCmd writes sizes for a trainer.
type exportCmd struct {
	runFlags `set:"rounds=100"`
	Format   string `help:"One of ${formats} (${default})." default:"json" placeholder:"NAME"`
	Out      string `help:"File to write; default: standard output." placeholder:"FILE"`
	Nominal  bool   `help:"Sizes from the profiles alone, without a simulated run." xor:"from"`
	Log      string `help:"Sizes as a run log ends, without a run." placeholder:"FILE" xor:"from"`
}

// Help is shown under the flags.
func (*exportCmd) Help() string {
	text := `Sizes come from a simulated run in which the agent settles, from the profiles alone (--nominal), or from the end of a run log (--log).
docs/guides/trainers.md shows what each trainer does with them.

Formats:

`
	for _, f := range export.Formats() {
		text += fmt.Sprintf("  %-11s %s\n", f.Name, f.Description)
	}
	return text + `
Examples:

  evenkeel export --cluster my.yaml --format torchrun --out sizes.sh
  evenkeel export --nominal
  evenkeel export --log run.jsonl --format deepspeed --out deepspeed.json
  evenkeel export --format kubernetes | kubectl apply -f -`
}

// Run is kong's.
func (e *exportCmd) Run(a *app) error {
	if err := e.check(a); err != nil {
		return err
	}
	sizes, err := e.sizes(a)
	if err != nil {
		return err
	}
	if e.Out == "" {
		return export.Write(a.out, e.Format, sizes)
	}
	return export.Save(e.Out, e.Format, sizes)
}

// check refuses flags without an effect, and files that cannot be.
func (e *exportCmd) check(a *app) error {
	inputs := e.inputs()
	switch {
	case e.Log != "":
		inputs = []named{{"--log of the run", e.Log}}
		if err := a.only("--log", "log", "format", "out"); err != nil {
			return err
		}
	case e.Nominal:
		if err := a.only("--nominal", "nominal", "cluster", "profiles", "format", "out"); err != nil {
			return err
		}
	}
	if err := checkFormat("--format", e.Format); err != nil {
		return err
	}
	return checkFiles(inputs, []named{{"--out", e.Out}})
}

func (e *exportCmd) sizes(a *app) (export.Sizes, error) {
	switch {
	case e.Log != "":
		return a.logged(e.Log)
	case e.Nominal:
		catalogue, err := e.catalogue()
		if err != nil {
			return export.Sizes{}, err
		}
		_, _, c, err := loadCluster(e.Cluster, catalogue)
		if err != nil {
			return export.Sizes{}, err
		}
		a.warnMemory(c)
		return settled(c, nil, c.Nominal())
	}
	s, err := e.load()
	if err != nil {
		return export.Sizes{}, err
	}
	a.warnMemory(s.cluster)
	policy, _, control := s.start()
	var t tally
	tell, clear := a.progress("settling")
	defer clear()
	var sizes []int
	for n := range s.rounds {
		s.prefer(policy, n+1)
		round, err := control.Round(a.ctx)
		if err != nil {
			return export.Sizes{}, err
		}
		sizes = round.Plan.Sizes
		t.add(round.Report)
		tell(n+1, s.rounds)
	}
	if err := t.nothing(s.cluster); err != nil {
		return export.Sizes{}, err
	}
	return settled(s.cluster, sizes, policy.Performance())
}

// logged are the sizes at the end of a run log.
func (a *app) logged(path string) (export.Sizes, error) {
	f, err := os.Open(path)
	if err != nil {
		return export.Sizes{}, opened(err)
	}
	defer f.Close()
	r, err := runlog.NewReader(f)
	var last, e *runlog.Entry
	var t tally
	for err == nil {
		if e, err = r.Next(); err == nil {
			last = e
			t.add(&e.Report)
		}
	}
	if !errors.Is(err, io.EOF) {
		return export.Sizes{}, fmt.Errorf("%s: %w", path, err)
	}
	if last == nil {
		return export.Sizes{}, badInputf("%s: the log holds no round", path)
	}
	if r.Cut {
		a.warnCut(path)
	}
	if err := t.nothing(r.Cluster); err != nil {
		return export.Sizes{}, fmt.Errorf("%s: %w", path, err)
	}
	a.warnMemory(r.Cluster)
	return settled(r.Cluster, last.Sizes, last.Performance())
}
