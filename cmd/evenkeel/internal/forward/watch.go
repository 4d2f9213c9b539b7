package forward

import (
	"fmt"
	"math"
	"time"

	"github.com/dustin/go-humanize"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/forward"
	"evenkeel/internal/chart"
)

// monitor follows a run: progress, an evaluation every tenth of it, and the curves.
type monitor struct {
	*cli.App
	config   *forward.Config
	work     *setup
	first    int     // steps done before this process
	steps    int     // done
	loss     float64 // of the last block
	began    float64 // the first block's
	absent   []int   // by pair: steps in which it did not count
	report   func(done, total int)
	clear    func()
	begun    time.Time
	reported int

	x, losses []float64 // training loss, by block
	at, right []float64 // accuracy on held-out samples
}

func newMonitor(a *cli.App, config *forward.Config, work *setup, before []*forward.Block) *monitor {
	w := &monitor{App: a, config: config, work: work, begun: time.Now(), absent: make([]int, config.Processors/2)}
	for _, b := range before {
		w.note(b)
	}
	w.first, w.reported = w.steps, w.steps*10/config.Steps
	w.report, w.clear = a.Progress("training")
	return w
}

// note counts a block.
func (w *monitor) note(b *forward.Block) {
	w.steps = b.Number*forward.BlockSteps + len(b.Steps)
	for _, c := range b.Steps {
		for pair := range w.absent {
			if !c.Counts(pair) {
				w.absent[pair]++
			}
		}
	}
	if !math.IsNaN(b.Loss) {
		if w.loss = b.Loss; w.began == 0 {
			w.began = b.Loss
		}
		w.x, w.losses = append(w.x, w.forwards()), append(w.losses, b.Loss)
	}
}

// block records the steps of a block; the weights are those after it.
func (w *monitor) block(b *forward.Block, weights *forward.Weights) error {
	w.note(b)
	w.report(w.steps, w.config.Steps)
	tenth := w.steps * 10 / w.config.Steps
	if tenth == w.reported {
		return nil
	}
	w.reported = tenth
	accuracy, _, err := forward.Evaluate(w.work.Network, weights, w.work.Held)
	if err != nil {
		return err
	}
	w.at, w.right = append(w.at, w.forwards()), append(w.right, accuracy)
	done := w.steps - w.first
	left := time.Since(w.begun) * time.Duration(w.config.Steps-w.steps) / time.Duration(max(done, 1))
	rate := float64(done*w.config.Processors) / time.Since(w.begun).Seconds()
	w.clear() // the bar reappears below the line
	w.Log.Info().Msgf("%d of %d steps, loss %.4f, test accuracy %.1f%%, %.0f forward passes a second, %s on the wire, %s left",
		w.steps, w.config.Steps, w.loss, 100*accuracy, rate, humanize.Bytes(uint64(done*w.config.Processors*forward.FrameBytes)), left.Round(time.Second))
	return nil
}

func (w *monitor) forwards() float64 { return float64(w.steps * w.config.Processors) }

// summary evaluates the weights at the end of the run.
func (w *monitor) summary(weights *forward.Weights, took time.Duration) (*summary, error) {
	s := &summary{Steps: w.steps, Of: w.config.Steps, Processors: w.config.Processors, Directions: w.config.Directions, Model: w.work.Task.Model, Data: w.work.Task.Data,
		Weights: weights.Len(), Seconds: took.Seconds(), Absent: w.absent, LeftOut: make([]int64, len(w.absent)), Ignored: map[int]int64{}}
	if w.loss > w.began {
		w.Log.Warn().Msgf("the training loss rose from %.4g to %.4g; lower --learning-rate", w.began, w.loss)
	}
	var err error
	s.TestAccuracy, s.Loss, err = forward.Evaluate(w.work.Network, weights, w.work.Held)
	return s, err
}

func (w *monitor) plot(path string) error {
	f := chart.Figure{Title: fmt.Sprintf("Forward-only training: %s on %s, %d processors", w.work.Task.Model, w.work.Task.Data, w.config.Processors)}
	if len(w.x) > 1 {
		f.Panels = append(f.Panels, plotPanel("training loss", w.x, w.losses))
	}
	if len(w.at) > 1 {
		percent := make([]float64, len(w.right))
		for i, v := range w.right {
			percent[i] = 100 * v
		}
		f.Panels = append(f.Panels, plotPanel("test accuracy, %", w.at, percent))
	}
	if err := f.Save(path); err != nil {
		return err
	}
	w.Log.Info().Str("file", path).Msg("figure written")
	return nil
}

// plotPanel is one curve over forward passes.
func plotPanel(label string, x, y []float64) chart.Panel {
	return chart.Panel{XLabel: "forward passes of two inputs", YLabel: label, Series: []chart.Series{{Kind: chart.Line, X: x, Y: y}}}
}
