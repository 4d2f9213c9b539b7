package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/dustin/go-humanize"
	"gonum.org/v1/gonum/stat"

	"evenkeel/checkpoint"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
	"evenkeel/internal/chart"
	"evenkeel/train"
	"evenkeel/train/task"
)

// savedRun is a run of checkpoint train.
type savedRun struct {
	*cli.App
	command  *trainCmd
	work     *task.Setup
	trainer  *train.Trainer
	file     *checkpoint.File
	losses   *lossLog
	begun    time.Time // the first step of this process
	first    uint64    // steps done before this process
	reported uint64    // tenths of the run that were reported
}

func (r *savedRun) run() (err error) {
	if err := r.open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.trainer.Close(), r.file.Close()) }()
	if r.losses, err = openLosses(r.command.path(lossesFile), r.trainer.Steps()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.losses.Close()) }()
	if err := r.trainer.SaveTo(r.file, train.SaveConfig{Every: r.command.SaveEvery}); err != nil {
		return err
	}
	r.first, r.begun = r.trainer.Steps(), time.Now()
	if _, err := os.Lstat(r.command.path(weightsFile)); err == nil && r.first >= uint64(r.work.Task.Steps) {
		return badinput.Errorf("the run in %s is finished; start another one with --out", r.command.Out)
	}
	trained := r.train()
	if trained != nil && !errors.Is(trained, context.Canceled) {
		return trained
	}
	if err := r.trainer.Save(context.WithoutCancel(r.Ctx)); err != nil {
		return err
	}
	if trained != nil {
		return cli.Interrupted(trained, fmt.Sprintf("interrupted after %d of %d steps; everything is saved. Continue with\n  evenkeel checkpoint train --resume --out %s", r.trainer.Steps(), r.work.Task.Steps, r.command.Out))
	}
	return r.finish()
}

// open creates the checkpoint file, or restores from it.
func (r *savedRun) open() error {
	path, arrays, o := r.command.path(slotsFile), r.trainer.Arrays(), r.command.options()
	report, clear := r.Progress("checkpoint file (MiB)")
	defer clear()
	o.Progress = inBytes(report)
	_, err := os.Lstat(path)
	there := err == nil
	if !there && r.command.Resume {
		if err := r.began(); err != nil {
			return err
		}
		r.Log.Info().Msg("the run was interrupted before it had a checkpoint file; it starts from the beginning")
	}
	if !there {
		r.file, err = checkpoint.Create(path, arrays, o)
		return err
	}
	if r.file, err = checkpoint.Open(path, arrays, o); err != nil {
		return cli.FileError(err)
	}
	restored, err := r.trainer.Restore(r.file)
	clear()
	warnFaults(r.App, []*checkpoint.File{r.file}, []checkpoint.Report{restored})
	switch {
	case errors.Is(err, checkpoint.ErrEmpty):
		r.Log.Info().Msg("the run was interrupted before its first checkpoint; it starts from the beginning")
	case err != nil:
		return errors.Join(fmt.Errorf("%s: %w", path, err), r.file.Close())
	default:
		r.Log.Info().Int("slot", restored.Restored).Msgf("restored step %d of %d, every byte verified", r.trainer.Steps(), r.work.Task.Steps)
	}
	return nil
}

// train trains to the end, or until Ctrl-C.
func (r *savedRun) train() error {
	steps := r.work.Task.Steps
	report, clear := r.Progress("training")
	defer clear()
	for r.trainer.Steps() < uint64(steps) {
		loss, err := r.trainer.Step(r.Ctx)
		if err != nil {
			return err
		}
		done := r.trainer.Steps()
		if math.IsNaN(loss) || math.IsInf(loss, 0) {
			return fmt.Errorf("loss is NaN or infinite at step %d: the learning rate %v is too high; start again with a lower --rate in another folder", done, r.work.Task.Rate)
		}
		if err := r.losses.add(done, loss); err != nil {
			return err
		}
		report(int(done), steps)
		r.report(done, loss)
	}
	return nil
}

// report logs every tenth of a run of some seconds if no progress bar is drawn.
func (r *savedRun) report(done uint64, loss float64) {
	total := uint64(r.work.Task.Steps)
	tenth := done * 10 / total
	if cli.IsTerminal(r.Errs) || tenth == r.reported || time.Since(r.begun) < cli.BarDelay {
		return
	}
	r.reported = tenth
	left := time.Duration(float64(time.Since(r.begun)) / float64(done-r.first) * float64(total-done))
	r.Log.Info().Msgf("%d of %d steps, loss %.4f, %s left", done, total, loss, left.Round(time.Second))
}

// savedSummary is the --json document.
type savedSummary struct {
	Steps       uint64  `json:"steps"`
	Samples     uint64  `json:"samples"`
	Loss        float64 `json:"loss,omitempty"` // mean of the last tenth of the steps, at most 100
	HeldLoss    float64 `json:"held_loss"`
	HeldRight   float64 `json:"held_right"` // share of the predictions on samples that were held out
	Weights     int     `json:"weights"`
	Saves       int     `json:"saves"`        // of this process
	Skipped     int     `json:"skipped"`      // because no slot was free
	WaitedShare float64 `json:"waited_share"` // of the time, for saves
	SavedBytes  int64   `json:"saved_bytes"`  // of a checkpoint
	Seconds     float64 `json:"seconds"`      // of this process
	Resumed     uint64  `json:"resumed"`      // the step that this process resumed from, 0 for none
	Task        string  `json:"task"`
	Checkpoint  string  `json:"checkpoint"`
	Model       string  `json:"model"`
	Losses      string  `json:"losses"`
}

// finish writes the results and prints the summary.
func (r *savedRun) finish() error {
	seconds := time.Since(r.begun).Seconds()
	right, held, err := r.trainer.Evaluate(r.work.Held)
	if err != nil {
		return err
	}
	steps, losses, err := r.losses.read()
	if err != nil {
		return err
	}
	if len(losses) > 0 { // else the file was removed
		if err := saveLossFigures(r.command.path(lossesFigure), steps, losses); err != nil {
			return err
		}
	}
	if err := r.export(); err != nil { // last: a folder with a model is a finished run
		return err
	}
	stats := r.file.Stats()
	s := savedSummary{
		Steps: r.trainer.Steps(), Samples: r.trainer.Samples(), HeldLoss: held,
		HeldRight: float64(right) / float64(r.work.Held.Len()*r.work.Network.Positions()),
		Saves:     stats.Committed, Skipped: stats.Skipped, WaitedShare: stats.Waited.Seconds() / seconds, SavedBytes: r.file.Info().Bytes,
		Seconds: seconds, Resumed: r.first, Task: r.command.path(taskFile), Checkpoint: r.file.Path(),
		Model: r.command.path(weightsFile), Losses: r.command.path(lossesFile),
	}
	if len(losses) > 0 {
		s.Loss = stat.Mean(losses[len(losses)-min(100, (len(losses)+9)/10):], nil)
	}
	for _, p := range r.work.Network.Params() {
		s.Weights += p.Len()
	}
	if r.command.JSON {
		return r.WriteJSON(s)
	}
	_, err = fmt.Fprintf(r.Out, `Trained %d steps on %s: loss %.4f; held-out samples: %.1f %% right, loss %.4f.
%s weights; %d checkpoints of %s in %s, %d skipped; training waited for them %.1f %% of the time.

task         %s
checkpoint   %s
model        %s
losses       %s, with a figure, .svg

Inspect it:  evenkeel checkpoint inspect %[13]s
`, s.Steps, r.work.Task.Data, s.Loss, 100*s.HeldRight, s.HeldLoss,
		humanize.Comma(int64(s.Weights)), s.Saves, humanize.IBytes(uint64(s.SavedBytes)), time.Duration(seconds*1e9).Round(time.Second/10), s.Skipped, 100*s.WaitedShare,
		s.Task, s.Checkpoint, s.Model, s.Losses)
	return err
}

// export writes the weights, without the optimizer's moments.
func (r *savedRun) export() error {
	var weights []checkpoint.Array
	for _, a := range r.trainer.Arrays() {
		if a.Kind == checkpoint.Parameter {
			weights = append(weights, a)
		}
	}
	return cli.WriteFile(r.command.path(weightsFile), func(w io.Writer) error {
		return checkpoint.WriteSafetensors(w, weights, checkpoint.State{Step: r.trainer.Steps()})
	})
}

// lossPoints is the largest number of points of a curve.
const lossPoints = 500

// saveLossFigures draws means over intervals of steps, as SVG.
func saveLossFigures(path string, steps, losses []float64) error {
	stretch := max(1, len(steps)/lossPoints)
	var x, y []float64
	for i := 0; i < len(steps); i += stretch {
		end := min(i+stretch, len(steps))
		x = append(x, steps[end-1])
		y = append(y, stat.Mean(losses[i:end], nil))
	}
	f := chart.Figure{Title: "Training", Panels: []chart.Panel{{XLabel: "steps", YLabel: "loss", ZeroY: true, Series: []chart.Series{{Name: "mean over the batch", Kind: chart.Line, X: x, Y: y}}}}}
	return f.Save(path + ".svg")
}
