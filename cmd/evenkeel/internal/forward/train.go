package forward

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/forward"
	"evenkeel/internal/badinput"
)

// trainCmd trains with a goroutine per processor.
type trainCmd struct {
	flags
	Log    string `help:"Log file: the increments of every step, from which forward replay rebuilds the weights." placeholder:"FILE"`
	Out    string `help:"Write the weights as safetensors at the end." placeholder:"FILE"`
	Resume bool   `help:"Continue where the log ends."`
	Plot   string `help:"Draw loss and accuracy over forward passes, as SVG." placeholder:"FILE"`
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
	r, err := c.prepare(a)
	if err != nil {
		return err
	}
	if c.Log != "" {
		if r.log, err = beginLog(c.Log, r.encoded, r.before); err != nil {
			return err
		}
	}
	r.watch = newMonitor(a, &r.header.Config, r.work, r.blocks)
	return errors.Join(r.train(a, c), r.close())
}

// session is a run in this process, or one that this process follows.
type session struct {
	header  *forward.Header
	encoded []byte
	work    *setup
	replica *forward.Replica // after the blocks that were done before; then, of the first processor
	before  [][]byte         // bytes of these blocks
	blocks  []*forward.Block // these blocks
	log     *os.File         // nil: none
	watch   *monitor
	check   *validator
}

func (r *session) close() error {
	if r.log == nil {
		return nil
	}
	l := r.log
	r.log = nil
	return errors.Join(l.Sync(), l.Close())
}

// prepare starts a run, or resumes the run of a log.
func (c *trainCmd) prepare(a *cli.App) (*session, error) {
	outputs := []cli.File{cli.FileFlag("--plot", c.Plot)}
	if c.Plot != "" {
		if err := cli.CheckPlot(c.Plot); err != nil {
			return nil, err
		}
	}
	if !c.Resume {
		outputs = append(outputs, cli.FileFlag("--log", c.Log))
	}
	if err := cli.CheckFiles(c.inputs(), outputs); err != nil {
		return nil, err
	}
	if c.Resume {
		return c.resume(a)
	}
	if info, err := os.Stat(c.Log); err == nil && info.Mode().IsRegular() && info.Size() > 0 { // a file that cannot be looked at gives an error when it is written
		return nil, badinput.Errorf("--log: %s exists already: continue its run with --resume, or choose another name", c.Log)
	}
	r, err := c.session()
	if err == nil && c.Plot != "" && r.header.Config.Steps <= forward.BlockSteps {
		return nil, badinput.Errorf("--plot: a curve needs more than %d steps", forward.BlockSteps)
	}
	return r, err
}

// session begins a run.
func (f *flags) session() (*session, error) {
	header, work, weights, err := f.header()
	if err != nil {
		return nil, err
	}
	r := &session{work: work, check: newValidator(work)}
	if r.encoded, err = header.Encode(); err != nil {
		return nil, err
	}
	if r.replica, err = forward.NewReplica(r.encoded, weights); err != nil {
		return nil, err
	}
	r.header = r.replica.Header
	return r, nil
}

// resume reads the log that is to be continued.
func (c *trainCmd) resume(a *cli.App) (*session, error) {
	if c.Log == "" {
		return nil, badinput.Errorf("--resume needs the --log to continue")
	}
	l, blocks, err := readLog(c.Log)
	if err != nil {
		return nil, err
	}
	r := &session{header: l.Header, encoded: l.Encoded, before: blocks}
	if r.work, err = taskOf(r.header, ""); err != nil {
		return nil, err
	}
	r.check = newValidator(r.work)
	weights, err := initialWeights(r.header, c.Init)
	if err != nil {
		return nil, badinput.Errorf("%s: %w", c.Log, err)
	}
	if r.replica, err = forward.NewReplica(r.encoded, weights); err != nil {
		return nil, badinput.Errorf("%s: %w", c.Log, err)
	}
	for _, b := range blocks {
		block, err := r.replica.Apply(b)
		if err != nil {
			return nil, badinput.Errorf("%s: %w", c.Log, err)
		}
		r.blocks = append(r.blocks, block)
		if err := r.check.take(r.replica.Steps(), r.replica.Weights); err != nil {
			return nil, err
		}
	}
	if r.replica.Done() {
		return nil, badinput.Errorf("the run of %s is finished; evenkeel forward replay %s shows its result", c.Log, c.Log)
	}
	a.Log.Info().Msgf("%s goes on after step %d", c.Log, r.replica.Steps())
	return r, nil
}

// block records a block that is done.
func (r *session) block(b *forward.Block, encoded []byte) error {
	if r.log != nil {
		if _, err := r.log.Write(encoded); err != nil {
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
			all[rank].OnBlock = func(b *forward.Block, encoded []byte) error {
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
		hint := fmt.Sprintf("interrupted after %d of %d steps", r.watch.steps, config.Steps)
		if c.Log != "" {
			hint += fmt.Sprintf("; the log has them. Continue with\n  evenkeel forward train --resume --log %s", c.Log)
		}
		return cli.Interrupted(a.Ctx.Err(), hint)
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
	return c.finish(a, r, s)
}

// finish writes what a finished run leaves, and prints its summary.
func (c *trainCmd) finish(a *cli.App, r *session, s *summary) error {
	if c.Log != "" {
		info, err := os.Stat(c.Log)
		if err != nil {
			return err
		}
		s.Log, s.LogBytes = c.Log, info.Size()
	}
	if c.Out != "" {
		if err := exportWeights(c.Out, r.replica.Weights, s.Steps); err != nil {
			return err
		}
	}
	if err := s.print(a, c.JSON); err != nil {
		return err
	}
	if c.Plot != "" && s.Steps <= forward.BlockSteps {
		a.Log.Warn().Msgf("--plot: a curve needs more than %d steps; the run was stopped before", forward.BlockSteps)
	} else if c.Plot != "" {
		if err := r.watch.plot(c.Plot); err != nil {
			return err
		}
	}
	return s.absence()
}
