// Command forward measures forward-only training against its targets and against serial MeZO and back-propagation, and
// writes experiments/forward/RESULTS.md and the figure beside it.
//
//	go run ./experiments/forward -part accuracy     # of a long run by default
//	go run ./experiments/forward -part learning     # directions, curves beside MeZO's and back-propagation's, drift
//	go run ./experiments/forward -part peers        # MeZO, FZOO and an evolution strategy at equal forward passes
//	go run ./experiments/forward -part scale        # eight processors and one
//	go run ./experiments/forward -part defaults     # networks of three kinds by the default rate: 40 minutes, with -runs and -minutes in pieces
//	go run ./experiments/forward -part warmup       # ways to find the rate on the way
//	go run ./experiments/forward -part absent       # pairs that are away or slow
//	go run ./experiments/forward -part agreement    # weights between processors, modes and builds; bytes
//	go run ./experiments/forward -part costs        # a step and its memory, on an idle machine
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/experiments/internal/program"
	"github.com/evenkeel/evenkeel/experiments/internal/results"
	"github.com/evenkeel/evenkeel/forward"
	"github.com/evenkeel/evenkeel/internal/chart"
	"github.com/evenkeel/evenkeel/internal/stats"
	"github.com/evenkeel/evenkeel/train"
	"github.com/evenkeel/evenkeel/train/data"
)

// parts are what can be measured by itself, each a section of the results.
var parts = map[string][]func(w *world, b *strings.Builder) error{
	"accuracy":  {(*world).accuracy},
	"learning":  {(*world).directions, (*world).curves, (*world).drift},
	"peers":     {(*world).peers},
	"scale":     {(*world).scale},
	"agreement": {(*world).agreement},
	"costs":     {costs},
	"defaults":  {(*world).defaults},
	"absent":    {(*world).absent},
	"warmup":    {(*world).warmup},
}

func main() {
	out := flag.String("out", "experiments/forward/RESULTS.md", "file whose sections are replaced")
	steps := flag.Int("steps", 10_000, "steps of the long runs")
	rate := flag.Float64("rate", 1, "of -part accuracy: times the default rate")
	part := flag.String("part", "", "accuracy, learning, peers, scale, defaults, warmup, absent, agreement or costs; empty: all")
	runs := flag.String("runs", "", "of -part defaults and warmup: file of their runs, which are not done again")
	minutes := flag.Float64("minutes", 0, "of -part defaults and warmup: end after so many, to be called again")
	only := flag.String("worker", "", "used by the experiment itself: one or both processors of a pair")
	flag.Parse()
	if *only != "" {
		if err := worker(*only == "both"); err != nil {
			fmt.Fprintln(os.Stderr, "forward:", err)
			os.Exit(1)
		}
		return
	}
	program.Main(func(ctx context.Context) error {
		return run(&world{ctx: ctx, steps: *steps, rate: *rate, runs: *runs, minutes: *minutes}, *out, *part)
	})
}

// world is what all runs share: the digits, and MLP 64-64-10.
type world struct {
	ctx            context.Context
	net            *train.Network
	training, held data.Set
	steps          int
	rate           float64 // of -part accuracy, times the default
	runs           string  // file of -part defaults and warmup
	minutes        float64 // the same
}

func run(w *world, out, only string) error {
	begun := time.Now()
	digits, err := data.Digits()
	if err != nil {
		return err
	}
	w.training, w.held = data.Split(digits, 5)
	if w.net, err = train.MLP(64, 64, 10); err != nil {
		return err
	}
	if only != "" && parts[only] == nil {
		return fmt.Errorf("-part %s: accuracy, learning, peers, scale, defaults, warmup, absent, agreement or costs", only)
	}
	for _, name := range []string{"accuracy", "learning", "peers", "scale", "defaults", "warmup", "absent", "agreement", "costs"} {
		if only != "" && only != name {
			continue
		}
		var b strings.Builder
		fmt.Fprintf(&b, "\nMade by\n\n    go run ./experiments/forward -part %s\n\non %d cores (%s/%s).\n", name, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
		for _, f := range parts[name] {
			if err := f(w, &b); err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, time.Since(begun).Round(time.Second))
		}
		fmt.Print(b.String())
		if err := results.Replace(out, name, b.String()+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// config is a run's: with as many directions as processors by the estimator each, which is what the command does by default.
func config(processors, directions, steps int, key uint64) *forward.Config {
	c := &forward.Config{Processors: processors, Directions: directions, Kind: forward.Rademacher, Key: key, Steps: steps,
		Epsilon: 1e-3, Schedule: "cosine", Normalize: true, Clip: 3, Guard: true}
	if directions == processors {
		c.Estimator, c.Shared = forward.Each, true
	}
	c.LearningRate = c.DefaultRate(4810, forward.FromKey)
	for range processors / 2 {
		c.Examples = append(c.Examples, 32)
	}
	return c
}

// outcome is the result of a run.
type outcome struct {
	weights  *forward.Weights
	hashes   []string
	stats    []forward.Stats
	losses   []float64 // of every step, over the training examples drawn
	logBytes int64
}

// replica is a processor's at the start of a run.
func replica(c *forward.Config, net *train.Network, examples int) (*forward.Replica, []byte, error) {
	weights := forward.NewWeights(net, c.Key)
	h := forward.NewHeader(*c, forward.Examples{Count: examples}, forward.FromKey, weights)
	encoded, err := h.Encode()
	if err != nil {
		return nil, nil, err
	}
	r, err := forward.NewReplica(encoded, weights)
	return r, encoded, err
}

// train runs all processors as goroutines.
func (w *world) train(c *forward.Config) (*outcome, error) {
	memory, o := forward.NewMemory(), &outcome{hashes: make([]string, c.Processors), stats: make([]forward.Stats, c.Processors)}
	errs := make([]error, c.Processors)
	var wg sync.WaitGroup
	for rank := range c.Processors {
		r, encoded, err := replica(c, w.net, w.training.Len())
		if err != nil {
			return nil, err
		}
		p := &forward.Processor{Replica: r, Rank: rank, Model: forward.NewModel(w.net), Data: w.training, Bus: memory.Reader(rank), Patience: time.Hour}
		if rank == 0 {
			o.weights, o.logBytes = p.Weights, int64(len(encoded))
			p.Each = func(_ int, commit forward.Commit) error {
				o.losses = append(o.losses, commit.Loss)
				return nil
			}
			p.End = func(_ *forward.Block, b []byte) error {
				o.logBytes += int64(len(b))
				return nil
			}
		}
		wg.Go(func() {
			errs[rank] = p.Run(w.ctx)
			o.hashes[rank], o.stats[rank] = p.Weights.Hash(), p.Stats()
		})
	}
	wg.Wait()
	return o, errors.Join(errs...)
}

// accuracy is what N = 8 reaches.
func (w *world) accuracy(b *strings.Builder) error {
	var values []float64
	for seed := range 5 {
		c := config(8, 8, w.steps, uint64(seed+1))
		c.LearningRate *= w.rate
		o, err := w.train(c)
		if err != nil {
			return err
		}
		a, _, err := forward.Evaluate(w.net, o.weights, w.held)
		if err != nil {
			return err
		}
		values = append(values, a)
	}
	e := stats.Bootstrap([][]float64{values})
	fmt.Fprintf(b, "\n## Accuracy\n\nThe UCI digits, 1,797 images, every fifth held out; MLP 64-64-10, 4,810 weights. N = 8, by default, %d steps, 32 examples an input, 5 seeds: test accuracy %.3f (95%% interval %.3f to %.3f); target 0.95. Each: %.3f\n", w.steps, e.Mean, e.Low, e.High, values)
	return nil
}

// stepsTo is the first step at which the mean of the last 20 losses is at most a value, or 0.
func stepsTo(losses []float64, value float64) int {
	mean := 0.0
	for i, l := range losses {
		mean += l / 20
		if i >= 20 {
			mean -= losses[i-20] / 20
		}
		if i >= 19 && mean <= value {
			return i + 1
		}
	}
	return 0
}

// directions compares one direction for each pair with one for all, each at its best rate of a grid.
func (w *world) directions(b *strings.Builder) error {
	best := func(directions int) (steps int, rate float64, err error) {
		for _, rate0 := range []float64{0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1} {
			c := config(32, directions, 3000, 1)
			c.LearningRate, c.Schedule = rate0, "constant"
			for p := range c.Examples {
				c.Examples[p] = 16
			}
			o, err := w.train(c)
			if errors.Is(err, forward.ErrOverflow) {
				continue
			}
			if err != nil {
				return 0, 0, err
			}
			if s := stepsTo(o.losses, 0.5); s > 0 && (steps == 0 || s < steps) {
				steps, rate = s, rate0
			}
		}
		return steps, rate, nil
	}
	shared, sharedRate, err := best(1)
	if err != nil {
		return err
	}
	own, ownRate, err := best(16)
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "\n## Directions\n\nN = 32, 16 examples an input, steps to a training loss of 0.5 (mean of 20 steps), each at the best of seven learning rates: one direction for all %d steps (rate %g), one for each pair %d (rate %g): ", shared, sharedRate, own, ownRate)
	if shared == 0 {
		b.WriteString("the shared direction did not get there in 3,000 steps.\n")
		return nil
	}
	fmt.Fprintf(b, "%.2f of it; target a third.\n", float64(own)/float64(shared))
	return nil
}

// figure is the curves' file, without its extension.
const figure = "experiments/forward/loss"

func (w *world) curves(b *strings.Builder) error {
	o, err := w.train(config(8, 8, w.steps, 1))
	if err != nil {
		return err
	}
	accuracy, _, err := forward.Evaluate(w.net, o.weights, w.held)
	if err != nil {
		return err
	}
	ours := &learnt{o.losses, accuracy}
	mezo, mezoRate, err := w.bestMezo(w.steps, 64)
	if err != nil {
		return err
	}
	back, backRate, err := w.bestBackPropagation(1000, 64)
	if err != nil {
		return err
	}
	series := func(name string, losses []float64, forwards float64) chart.Series {
		s := chart.Series{Name: name, Kind: chart.Line}
		every := max(len(losses)/300, 1)
		for i := every; i <= len(losses); i += every {
			mean := 0.0
			for _, l := range losses[i-every : i] {
				mean += l / float64(every)
			}
			s.X, s.Y = append(s.X, float64(i)*forwards), append(s.Y, mean)
		}
		return s
	}
	f := chart.Figure{Title: "Digits: training loss over forward passes", Panels: []chart.Panel{{
		XLabel: "forward passes of 64 examples", YLabel: "training loss", LogX: true, LogY: true,
		Series: []chart.Series{
			series("forward-only, 8 processors", o.losses, 8),
			series("serial MeZO, float32", mezo.losses, 2),
			series("back-propagation, SGD (a step counts as 3)", back.losses, 3),
		},
	}}}
	b.WriteString("\n## Learning curves\n\n![training loss over forward passes](loss.svg)\n\nForward passes of 64 examples; a step of back-propagation counts as three. Each at the best of a grid of learning rates (MeZO: constant and cosine); one seed.\n\n| method | steps | forward passes, of one processor | in all | training loss, last 100 steps | test accuracy |\n|---|---|---|---|---|---|\n")
	for _, row := range []struct {
		name     string
		l        *learnt
		each, by int // forward passes of a step, processors
	}{
		{"forward-only, N = 8", ours, 8, 8}, {"serial MeZO, float32 (" + mezoRate + ")", mezo, 2, 1}, {"back-propagation, SGD (" + backRate + ")", back, 3, 1},
	} {
		n := len(row.l.losses)
		fmt.Fprintf(b, "| %s | %d | %d | %d | %.3f | %.3f |\n", row.name, n, n*row.each/row.by, n*row.each, row.l.last(), row.l.accuracy)
	}
	return errors.Join(f.Save(figure+".svg"), f.Save(figure+".png"))
}
