// Command bench measures what checkpoints cost on a disk, with PyTorch's torch.save and torch.load by turns with ours
// where python3 has torch, and writes bench.json and bench.svg.
//
//	go run ./experiments/checkpoint/bench -out experiments/checkpoint
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/checkpoint"
	"github.com/evenkeel/evenkeel/checkpoint/bench"
	"github.com/evenkeel/evenkeel/internal/chart"
)

// report is bench.json.
type report struct {
	Command string       `json:"command"`
	Machine string       `json:"machine"`
	Disk    bench.Result `json:"bench"`
	Torch   *torchResult `json:"torch,omitempty"`
}

// torchResult holds seconds, trial by trial.
type torchResult struct {
	Version   string    `json:"version"`
	Save      []float64 `json:"save_fsync_seconds"`
	OurSave   []float64 `json:"checkpoint_save_seconds"`
	Load      []float64 `json:"load_cold_seconds"`
	OurLoad   []float64 `json:"checkpoint_restore_seconds"`
	SaveRatio float64   `json:"save_over_ours"` // medians of the trials' ratios
	LoadRatio float64   `json:"load_over_ours"`
}

func main() {
	var c bench.Config
	flag.StringVar(&c.Folder, "dir", os.TempDir(), "folder on the disk to measure")
	flag.Int64Var(&c.Bytes, "bytes", 256<<20, "bytes of a checkpoint")
	flag.IntVar(&c.Layers, "layers", 48, "layers")
	flag.IntVar(&c.Trials, "trials", 9, "trials")
	flag.IntVar(&c.Steps, "steps", 12, "steps of a trial")
	flag.IntVar(&c.Workers, "workers", 1, "goroutines that compute")
	out := flag.String("out", "experiments/checkpoint", "folder for bench.json and bench.svg")
	python := flag.String("python", "/usr/bin/python3", "python3 with torch")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, c, *out, *python); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, c bench.Config, out, python string) error {
	r := report{Command: "go run ./experiments/checkpoint/bench " + strings.Join(os.Args[1:], " "),
		Machine: fmt.Sprintf("%d cores, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)}
	var err error
	if r.Disk, err = bench.Run(ctx, c); err != nil {
		return err
	}
	if exec.CommandContext(ctx, python, "-c", "import torch").Run() == nil {
		if r.Torch, err = torch(ctx, c, python); err != nil {
			return fmt.Errorf("torch: %w", err)
		}
	} else {
		fmt.Fprintln(os.Stderr, "bench: no torch in", python)
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "bench.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	fmt.Println(string(text))
	return figure(r).Save(filepath.Join(out, "bench.svg"))
}

// torch saves and loads by turns with a checkpoint file of the same size.
func torch(ctx context.Context, c bench.Config, python string) (*torchResult, error) {
	folder, err := os.MkdirTemp(c.Folder, "bench")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }() // in the temporary folder
	p := exec.CommandContext(ctx, python, "experiments/checkpoint/bench/torch_save.py", strconv.FormatInt(c.Bytes, 10), strconv.Itoa(c.Layers))
	p.Stderr = os.Stderr
	in, err := p.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := p.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(stdout)
	ask := func(what, path string) (float64, error) {
		if _, err := fmt.Fprintln(in, what, path); err != nil {
			return 0, err
		}
		if !lines.Scan() {
			return 0, errors.Join(io.ErrUnexpectedEOF, lines.Err())
		}
		return strconv.ParseFloat(lines.Text(), 64)
	}
	if !lines.Scan() {
		return nil, errors.Join(io.ErrUnexpectedEOF, lines.Err())
	}
	r := &torchResult{Version: lines.Text()}
	arrays := bench.Model(c.Bytes, c.Layers)
	f, err := checkpoint.Create(filepath.Join(folder, "run.ckpt"), arrays, checkpoint.Options{})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for trial := range c.Trials + 1 {
		theirs := filepath.Join(folder, fmt.Sprintf("model.%d.pt", trial)) // a new file, as jobs write them
		save, err := ask("save", theirs)
		if err != nil {
			return nil, err
		}
		begun := time.Now()
		if err := bench.Save(ctx, f, arrays, uint64(trial)); err != nil {
			return nil, err
		}
		ourSave := time.Since(begun).Seconds()
		if err := errors.Join(bench.DropCache(theirs), bench.DropCache(f.Path())); err != nil {
			return nil, err
		}
		load, err := ask("load", theirs)
		if err != nil {
			return nil, err
		}
		begun = time.Now()
		if _, _, err := f.Restore(arrays); err != nil {
			return nil, err
		}
		ourLoad := time.Since(begun).Seconds()
		if err := os.Remove(theirs); err != nil {
			return nil, err
		}
		if trial == 0 {
			continue // warms up
		}
		r.Save, r.OurSave = append(r.Save, save), append(r.OurSave, ourSave)
		r.Load, r.OurLoad = append(r.Load, load), append(r.OurLoad, ourLoad)
	}
	r.SaveRatio, r.LoadRatio = medianRatio(r.Save, r.OurSave), medianRatio(r.Load, r.OurLoad)
	return r, errors.Join(in.Close(), p.Wait())
}

func medianRatio(a, b []float64) float64 {
	var q []float64
	for i := range a {
		q = append(q, a[i]/b[i])
	}
	slices.Sort(q)
	return q[len(q)/2]
}

// figure shows the seconds of every way to write, and the steps.
func figure(r report) chart.Figure {
	type bar struct {
		name          string
		mid, low, top float64
	}
	spread := func(name string, x []float64) bar {
		s := slices.Sorted(slices.Values(x))
		return bar{name, s[len(s)/2], s[0], s[len(s)-1]}
	}
	panel := func(title, label string, bars []bar) chart.Panel {
		p := chart.Panel{Title: title, YLabel: label, ZeroY: true}
		s := chart.Series{Kind: chart.Bars}
		for _, b := range bars {
			p.Categories = append(p.Categories, b.name)
			s.Y, s.Low, s.High = append(s.Y, b.mid), append(s.Low, b.low), append(s.High, b.top)
		}
		p.Series = []chart.Series{s}
		return p
	}
	var steps []bar
	for _, how := range []string{"sync", "staged", "zerocopy", "direct", "interval"} {
		var q []float64
		for i, t := range r.Disk.StepTrials[how] {
			q = append(q, t/r.Disk.StepTrials["none"][i])
		}
		steps = append(steps, spread(how, q))
	}
	f := chart.Figure{Title: "Checkpoints of 256 MiB", Panels: []chart.Panel{panel("A step, saved every time (interval: at the recommended one)", "over a step without saving", steps)}}
	if t := r.Torch; t != nil {
		f.Panels = append(f.Panels, panel("Durable save and cold load", "seconds", []bar{
			spread("torch.save + fsync", t.Save), spread("checkpoint", t.OurSave), spread("torch.load", t.Load), spread("restore, verified", t.OurLoad),
		}))
	}
	return f
}
