package forward

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/forward"
	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/internal/chart"
)

// trainCmd trains with a goroutine per processor.
type trainCmd struct {
	flags
	Log    string `help:"Log file: the increments of every step, from which forward replay rebuilds the weights." placeholder:"FILE"`
	Out    string `help:"Write the weights as safetensors at the end." placeholder:"FILE"`
	Resume bool   `help:"Continue where the log ends."`
	Plot   string `help:"Draw loss and accuracy over forward passes, .svg or .png." placeholder:"FILE"`
}

// Help is what --help adds.
func (*trainCmd) Help() string {
	return `Each processor computes the losses of the same two inputs with weights moved a little along a random direction of its own.
(With --estimator pairs the two processors of a pair move along a direction and its opposite.) The processors exchange losses,
16 bytes each per step, and all make the same update: no gradients, no stored activations, no optimizer state.

Examples:

  evenkeel forward train                                    # the digits, eight processors
  evenkeel forward train --data book.txt -n 16 --log run.log
  evenkeel forward train --log run.log --resume             # after Ctrl-C`
}

// Run runs the command.
func (c *trainCmd) Run(a *cli.App) error {
	r, err := prepareRun(a, &c.flags, c.Log, c.Resume, false, c.Plot)
	if err != nil {
		return err
	}
	if err := r.begin(a); err != nil {
		return err
	}
	return errors.Join(r.train(a, c), r.close())
}

// session is a run.
type session struct {
	header  *forward.Header
	encoded []byte
	work    *setup
	replica *forward.Replica // after the blocks done before; then of the first processor, or of who follows the run
	before  [][]byte         // blocks done before
	blocks  []*forward.Block // the same
	path    string           // of the log
	log     *logFile
	watch   *monitor
	check   *validator
}

func (r *session) close() error {
	if r.log == nil {
		return nil
	}
	l := r.log
	r.log = nil
	return l.close()
}

// prepareRun starts a run, or resumes one. adopts: one that a server has may be gone on with, without resume.
func prepareRun(a *cli.App, f *flags, log string, resume, adopts bool, plot string) (*session, error) {
	outputs := []cli.File{cli.FileFlag("--plot", plot)}
	if plot != "" {
		if err := cli.CheckPlot(plot); err != nil {
			return nil, err
		}
	}
	if !resume {
		outputs = append(outputs, cli.FileFlag("--log", log))
	}
	if err := cli.CheckFiles(f.inputs(), outputs); err != nil {
		return nil, err
	}
	r := &session{path: log}
	if resume {
		return r, r.take(a, log, f.Init)
	}
	header, work, weights, err := f.header()
	if err != nil {
		return nil, err
	}
	if plot != "" && header.Config.Steps <= forward.BlockSteps {
		return nil, badinput.Errorf("--plot: a curve needs more than %d steps", forward.BlockSteps)
	}
	r.work, r.check = work, newValidator(work)
	if r.encoded, err = header.Encode(); err != nil {
		return nil, err
	}
	if err := keptLog(log, adopts, r.encoded); err != nil {
		return nil, err
	}
	r.replica, err = forward.NewReplica(r.encoded, weights)
	if err == nil {
		r.header = r.replica.Header
	}
	return r, err
}

// take reads the log that is to be continued.
func (r *session) take(a *cli.App, path, init string) error {
	if path == "" {
		return badinput.Errorf("--resume needs the --log to continue")
	}
	l, blocks, err := readLog(path)
	if err != nil {
		return err
	}
	r.header, r.encoded, r.before = l.Header, l.Encoded, blocks
	if r.work, err = taskOf(r.header, ""); err != nil {
		return err
	}
	r.check = newValidator(r.work)
	weights, err := initialWeights(r.header, init)
	if err != nil {
		return badinput.Errorf("%s: %w", path, err)
	}
	if r.replica, err = forward.NewReplica(r.encoded, weights); err != nil {
		return badinput.Errorf("%s: %w", path, err)
	}
	for _, b := range blocks {
		block, err := r.replica.Apply(b)
		if err != nil {
			return badinput.Errorf("%s: %w", path, err)
		}
		r.blocks = append(r.blocks, block)
		if err := r.check.take(r.replica.Steps(), r.replica.Weights); err != nil {
			return err
		}
	}
	if r.replica.Done() {
		return badinput.Errorf("the run of %s is finished; evenkeel forward replay %s shows its result", path, path)
	}
	a.Log.Info().Msgf("%s goes on after step %d", path, r.replica.Steps())
	return nil
}

// begin starts the log, if there is to be one, and what is shown.
func (r *session) begin(a *cli.App) (err error) {
	if r.path != "" {
		r.log, err = beginLog(r.path, r.encoded, r.before)
	}
	r.watch = newMonitor(a, &r.header.Config, r.work, r.blocks)
	return err
}

// block records a block that is done.
func (r *session) block(b *forward.Block, encoded []byte) error {
	if r.log != nil {
		if err := r.log.add(encoded); err != nil {
			return fmt.Errorf("the log: %w", err)
		}
	}
	return r.watch.block(b, r.replica.Weights)
}

// train runs all processors to the end.
func (r *session) train(a *cli.App, c *trainCmd) error {
	config := &r.header.Config
	ctx, stop := context.WithCancel(a.Ctx)
	defer stop()
	memory := forward.NewMemory()
	all := make([]*forward.Processor, config.Processors)
	errs := make([]error, config.Processors)
	first := r.replica.Steps()
	begun := time.Now()
	for rank := range all {
		// Patience without end: what is computed must not depend on the machine's load.
		all[rank] = &forward.Processor{Replica: r.replica, Rank: rank, Model: forward.NewModel(r.work.Network), Data: r.work.Training, Bus: memory.Reader(rank), Patience: math.MaxInt64}
		if rank == 0 {
			all[rank].End = func(b *forward.Block, encoded []byte) error {
				return errors.Join(r.block(b, encoded), r.check.end(ctx, r.replica, all[0].Stop))
			}
		} else {
			all[rank].Replica = r.replica.Clone()
		}
	}
	memory.Seal()
	if err := r.check.ask(ctx, all[0].Stop); err != nil {
		return err
	}
	var wg sync.WaitGroup
	for rank, p := range all {
		wg.Go(func() {
			if errs[rank] = p.Run(ctx); errs[rank] != nil {
				stop()
			}
		})
	}
	wg.Wait()
	r.watch.clear()
	if err := r.close(); err != nil {
		return err
	}
	if a.Ctx.Err() != nil {
		return r.interrupted(a, "train", c.Log)
	}
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	s, err := r.watch.summary(r.replica.Weights, time.Since(begun))
	if err != nil {
		return err
	}
	for _, p := range all {
		s.WeightsHash = append(s.WeightsHash, p.Weights.Hash())
		s.add(p.Stats(), p.Steps()-first)
	}
	s.Validation = r.check.told()
	return r.finish(a, s, c.Plot, c.Out, c.JSON)
}

// finish writes what a finished run leaves, and prints its summary.
func (r *session) finish(a *cli.App, s *summary, plot, weights string, asJSON bool) error {
	if r.path != "" {
		info, err := os.Stat(r.path)
		if err != nil {
			return err
		}
		s.Log, s.LogBytes = r.path, info.Size()
	}
	if weights != "" {
		if err := exportWeights(weights, r.replica.Weights, s.Steps); err != nil {
			return err
		}
	}
	if err := s.print(a, asJSON); err != nil {
		return err
	}
	if plot != "" && s.Steps <= forward.BlockSteps {
		a.Log.Warn().Msgf("--plot: a curve needs more than %d steps; the run was stopped before", forward.BlockSteps)
	} else if plot != "" {
		if err := r.watch.plot(plot); err != nil {
			return err
		}
	}
	return s.absence()
}

// interrupted is the error after Ctrl-C.
func (r *session) interrupted(a *cli.App, command, log string) error {
	hint := fmt.Sprintf("interrupted after %d of %d steps", r.watch.steps, r.header.Config.Steps)
	if log != "" {
		hint += fmt.Sprintf("; the log has them. Continue with\n  evenkeel forward %s --resume --log %s", command, log)
	}
	return cli.Interrupted(a.Ctx.Err(), hint)
}

// plotPanel is one curve over forward passes.
func plotPanel(label string, x, y []float64) chart.Panel {
	return chart.Panel{XLabel: "forward passes of two inputs", YLabel: label, Series: []chart.Series{{Kind: chart.Line, X: x, Y: y}}}
}
