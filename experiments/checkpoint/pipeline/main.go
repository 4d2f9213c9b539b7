// Command pipeline measures what the layer-by-layer schedule hides: the same trainer, data and bits, with every
// exchange and save overlapped and with none. Variants take turns within each trial. It prints tables
// and writes docs/images/pipeline.svg, the timeline of two steps.
//
//	go run ./experiments/checkpoint/pipeline
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/stat"

	"evenkeel/checkpoint"
	"evenkeel/experiments/internal/program"
	"evenkeel/internal/stats"
	"evenkeel/train"
	"evenkeel/train/data"
)

// config is what is measured.
type config struct {
	Layers, Width, Batch int
	LinkBytesPerSecond   float64
	Trials, Steps        int
}

func main() {
	c := config{Layers: 12, Width: 512}
	flag.IntVar(&c.Batch, "batch", 96, "samples of each of the two nodes")
	flag.Float64Var(&c.LinkBytesPerSecond, "link", 125e6, "bytes per second between the nodes (125e6: gigabit Ethernet)")
	flag.IntVar(&c.Trials, "trials", 15, "trials")
	flag.IntVar(&c.Steps, "steps", 4, "steps of each variant in a trial, after one that is not measured")
	flag.Parse()
	program.Main(func(ctx context.Context) error {
		r, err := run(ctx, c, func(done int) { fmt.Fprintf(os.Stderr, "trial %d of %d\n", done, c.Trials) })
		if err != nil {
			return err
		}
		fmt.Println(r.tables())
		return figure(r.all[3].spans, r.all[4].spans).Save("docs/images/pipeline.svg")
	})
}

// variant is one way of doing the same steps.
type variant struct {
	name       string
	sequential bool
	link, save bool
	trainer    *train.Trainer
	file       *checkpoint.File
	seconds    []float64 // of a step, a mean per trial
	spans      []train.Span
}

func variants() []*variant {
	return []*variant{
		{name: "compute only"},
		{name: "exchange, sequential", sequential: true, link: true},
		{name: "exchange, pipelined", link: true},
		{name: "exchange and save, sequential", sequential: true, link: true, save: true},
		{name: "exchange and save, pipelined", link: true, save: true},
	}
}

func (v *variant) open(c config, dir string) error {
	sizes := append(slices.Repeat([]int{c.Width}, c.Layers), 10)
	net, err := train.MLP(sizes...)
	if err != nil {
		return err
	}
	d, err := data.NewSynthetic(100_000, c.Width, 10, 1)
	if err != nil {
		return err
	}
	config := train.Config{MicroBatches: []int{c.Batch, c.Batch}, Optimizer: train.Optimizer{Method: train.AdamW, Rate: 1e-4}, Sequential: v.sequential, Timeline: true}
	if v.link {
		config.LinkBytesPerSecond = c.LinkBytesPerSecond
	}
	if v.trainer, err = train.New(net, d, config); err != nil || !v.save {
		return err
	}
	path := filepath.Join(dir, strings.ReplaceAll(v.name, " ", "-"))
	if v.file, err = checkpoint.Create(path, v.trainer.Arrays(), checkpoint.Options{WhenFull: checkpoint.Block}); err != nil {
		return err
	}
	return v.trainer.SaveTo(v.file, train.SaveConfig{Every: 1})
}

// measure takes one step to get going, then measures some. The save of the step before is under way at the beginning
// as at the end; it is waited for outside.
func (v *variant) measure(ctx context.Context, steps int) error {
	if _, err := v.trainer.Step(ctx); err != nil {
		return err
	}
	begun := time.Now()
	for range steps {
		if _, err := v.trainer.Step(ctx); err != nil {
			return err
		}
	}
	v.seconds = append(v.seconds, time.Since(begun).Seconds()/float64(steps))
	if err := v.trainer.Save(ctx); err != nil {
		return err
	}
	v.spans = append(v.spans, v.trainer.Timeline()...)
	return nil
}

func (v *variant) close() error {
	if v.file == nil {
		return nil
	}
	return errors.Join(v.trainer.Close(), v.file.Close())
}

func run(ctx context.Context, c config, progress func(done int)) (r *report, err error) {
	dir, err := os.MkdirTemp("", "pipeline")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	all := variants()
	for _, v := range all {
		if err := v.open(c, dir); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, v.close()) }()
	}
	for trial := range c.Trials {
		for k := range all {
			if err := all[(k+trial)%len(all)].measure(ctx, c.Steps); err != nil {
				return nil, err
			}
		}
		progress(trial + 1)
	}
	return &report{c.Trials, all, layers(all[4].spans)}, nil
}

// report is what the tables show.
type report struct {
	trials int
	all    []*variant
	layers []layerReport
}

// tables are those of the variants, of what is hidden, and of the layers.
func (r *report) tables() string {
	// Others use the machine. What they take from a whole trial is divided out: a trial's times are taken relative to
	// the mean of its variants. What they take from a single variant is an outlier: all statistics are of medians.
	relative := make(map[*variant][]float64)
	for i := range r.trials {
		mean := 0.0
		for _, v := range r.all {
			mean += v.seconds[i] / float64(len(r.all))
		}
		for _, v := range r.all {
			relative[v] = append(relative[v], v.seconds[i]/mean)
		}
	}
	interval := func(digits int, value func(median func(of *variant) float64) float64) string {
		return text(digits, stats.Seeds(r.trials, func(pick []int) float64 {
			return value(func(of *variant) float64 { return median(relative[of], pick) })
		}))
	}
	compute, exchange, exchangeLine, save, saveLine := r.all[0], r.all[1], r.all[2], r.all[3], r.all[4]
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%d cores, %s/%s; %.0f MB a checkpoint\n\n| variant | step, ms | over compute only |\n|---|---|---|\n",
		strings.TrimSpace("go run ./experiments/checkpoint/pipeline "+strings.Join(os.Args[1:], " ")), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, float64(save.file.Info().Bytes)/1e6)
	for _, v := range r.all {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", v.name, text(1, stats.Seeds(r.trials, func(pick []int) float64 { return 1000 * median(v.seconds, pick) })),
			interval(3, func(m func(*variant) float64) float64 { return m(v) / m(compute) }))
	}
	// Shares of the time that exchange and save add to a sequential step, and do not add to a pipelined one.
	fmt.Fprintf(&b, "\n| of the time that a sequential step adds | hidden |\n|---|---|\n| exchange | %s |\n| save | %s |\n| both | %s |\n\npipelined over sequential step: %s\n",
		interval(2, func(m func(*variant) float64) float64 {
			return (m(exchange) - m(exchangeLine)) / (m(exchange) - m(compute))
		}),
		interval(2, func(m func(*variant) float64) float64 {
			return ((m(save) - m(exchange)) - (m(saveLine) - m(exchangeLine))) / (m(save) - m(exchange))
		}),
		interval(2, func(m func(*variant) float64) float64 { return (m(save) - m(saveLine)) / (m(save) - m(compute)) }),
		interval(3, func(m func(*variant) float64) float64 { return m(saveLine) / m(save) }))
	b.WriteString("\n| layer | backward, ms | exchange, ms | under compute | save, ms | under compute |\n|---|---|---|---|---|---|\n")
	for _, l := range r.layers {
		fmt.Fprintf(&b, "| %s | %.1f | %.1f | %.0f %% | %.1f | %.0f %% |\n", l.Layer, 1000*l.BackwardSeconds, 1000*l.ExchangeSeconds, 100*l.ExchangeHidden, 1000*l.SaveSeconds, 100*l.SaveHidden)
	}
	return b.String()
}

func text(digits int, i stats.Interval) string {
	return fmt.Sprintf("%.*f [%.*f, %.*f]", digits, i.Mean, digits, i.Low, digits, i.High)
}

func median(of []float64, pick []int) float64 {
	var x []float64
	for _, i := range pick {
		x = append(x, of[i])
	}
	slices.Sort(x)
	return stat.Quantile(0.5, stat.LinInterp, x, nil)
}
