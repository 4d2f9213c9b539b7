package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/forward"
	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/internal/chart"
	"github.com/evenkeel/evenkeel/train/task"
)

// trainCmd trains with a goroutine per processor.
type trainCmd struct {
	flags
	Log    string `help:"Log file: the increments of every step, from which forward replay rebuilds the weights." placeholder:"FILE"`
	Resume bool   `help:"Continue where the log ends."`
	Plot   string `help:"Draw loss and accuracy over forward passes, .svg or .png." placeholder:"FILE"`
}

// Help is what --help adds.
func (*trainCmd) Help() string {
	return `Processors work in pairs: one computes the losses of two inputs with weights moved a little along a random direction,
the other with weights moved the opposite way. They exchange losses, 16 bytes each per step, and all make the same
update: no gradients, no stored activations, no optimizer state.

Examples:

  evenkeel forward train                                    # the digits, eight processors
  evenkeel forward train --data book.txt -n 16 --log run.log
  evenkeel forward train --log run.log --resume             # after Ctrl-C`
}

// Run runs the command.
func (c *trainCmd) Run(a *cli.App) error {
	r, err := prepareRun(&c.flags, c.Log, c.Resume, c.Plot)
	if err != nil {
		return err
	}
	defer r.close()
	return r.train(a, c)
}

// session is a run.
type session struct {
	header  forward.Header
	work    *task.Setup
	weights *forward.Weights // of the first processor
	log     *forward.LogWriter
	file    *os.File
	from    []forward.Commit // done before
	watch   *monitor
}

func (r *session) close() {
	if r.file != nil {
		_ = r.file.Close() // the log was flushed
	}
}

// prepareRun starts a run, or resumes one.
func prepareRun(f *flags, log string, resume bool, plot string) (*session, error) {
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
	r := &session{}
	var err error
	if resume {
		if log == "" {
			return nil, badinput.Errorf("--resume needs the --log to continue")
		}
		err = r.take(log)
	} else {
		r.header, r.work, err = f.header()
	}
	if err == nil && log != "" {
		err = r.begin(log)
	}
	return r, err
}

// take reads the log that is to be continued. Its last block may be incomplete.
func (r *session) take(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return cli.FileError(err)
	}
	defer f.Close()
	l, err := forward.NewLogReader(f)
	if err != nil {
		return badinput.Errorf("%s: %w", path, err)
	}
	r.header = l.Header
	for {
		c, err := l.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, forward.ErrTruncated) {
			break
		}
		if err != nil {
			return badinput.Errorf("%s: %w", path, err)
		}
		r.from = append(r.from, c)
	}
	if len(r.from) == r.header.Config.Steps {
		return badinput.Errorf("the run of %s is finished; evenkeel forward replay %s shows its result", path, path)
	}
	r.work, err = taskOf(r.header, "")
	return err
}

// begin starts the log with the steps done before, under a temporary name, and renames it.
func (r *session) begin(path string) error {
	f, err := os.Create(path + ".tmp")
	if err != nil {
		return badinput.Wrap(err)
	}
	r.file = f
	if r.log, err = forward.NewLogWriter(f, r.header); err != nil {
		return err
	}
	for _, c := range r.from {
		if err := r.log.Add(c); err != nil {
			return err
		}
	}
	if err := errors.Join(r.log.Flush(), f.Sync()); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// train runs all processors to the end.
func (r *session) train(a *cli.App, c *trainCmd) error {
	config := &r.header.Config
	ctx, stop := context.WithCancel(a.Ctx)
	defer stop()
	memory := forward.NewMemory()
	all := make([]*forward.Processor, config.Processors)
	errs := make([]error, config.Processors)
	r.watch = newMonitor(a, config, r.work, len(r.from))
	begun := time.Now()
	var wg sync.WaitGroup
	for rank := range all {
		p := &forward.Processor{Config: config, Rank: rank, Model: forward.NewModel(r.work.Network), Data: r.work.Training, Bus: memory.Reader()}
		if rank == 0 {
			r.weights = forward.NewWeights(r.work.Network, config.Key)
			p.Weights, p.Each = r.weights, r.each
			if err := p.Begin(r.from); err != nil {
				return err
			}
		} else {
			p.Weights = r.weights.Clone() // its steps are applied already
			if err := p.Follow([]forward.Snapshot{forward.NewSnapshot(config, r.from)}, len(r.from)); err != nil {
				return err
			}
		}
		all[rank] = p
	}
	memory.Seal()
	for rank, p := range all {
		wg.Go(func() {
			if errs[rank] = p.Run(ctx); errs[rank] != nil {
				stop()
			}
		})
	}
	wg.Wait()
	r.watch.clear()
	if r.log != nil {
		if err := errors.Join(r.log.Flush(), r.file.Sync()); err != nil {
			return err
		}
	}
	if a.Ctx.Err() != nil {
		return r.interrupted(a, "train", c.Log)
	}
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	s, err := r.watch.summary(r.weights, time.Since(begun))
	if err != nil {
		return err
	}
	for _, p := range all {
		s.WeightsHash = append(s.WeightsHash, p.Weights.Hash())
		s.add(p.Stats(), config.Steps-len(r.from))
	}
	if r.log != nil {
		s.Log, s.LogBytes = c.Log, r.log.Bytes()
	}
	if c.Plot != "" {
		if err := r.watch.plot(c.Plot); err != nil {
			return err
		}
	}
	return s.print(a, c.JSON)
}

// interrupted is the error after Ctrl-C.
func (r *session) interrupted(a *cli.App, command, log string) error {
	hint := fmt.Sprintf("interrupted after %d of %d steps", r.watch.steps, r.header.Config.Steps)
	if log != "" {
		hint += fmt.Sprintf("; the log has all of them. Continue with\n  evenkeel forward %s --resume --log %s", command, log)
	}
	return cli.Interrupted(a.Ctx.Err(), hint)
}

func (r *session) each(_ int, c forward.Commit) error {
	if r.log != nil {
		if err := r.log.Add(c); err != nil {
			return err
		}
	}
	return r.watch.step(c, r.weights)
}

// summary is the JSON document.
type summary struct {
	Steps        int      `json:"steps"`
	Processors   int      `json:"processors"`
	Directions   int      `json:"directions"`
	Model        string   `json:"model"`
	Data         string   `json:"data"`
	Weights      int      `json:"weights"`
	Loss         float64  `json:"loss"`          // on the samples held out
	TestAccuracy float64  `json:"test_accuracy"` // the same
	Seconds      float64  `json:"seconds"`       // of this process
	Sent         float64  `json:"bytes_sent_per_step"`
	Received     float64  `json:"bytes_received_per_step"`
	Wire         *onWire  `json:"transport,omitempty"` // between processes
	Forwards     int64    `json:"forwards"`            // of two inputs, by all processors of this process
	Missed       int64    `json:"steps_missed"`
	Dropped      int64    `json:"pairs_dropped"`
	WeightsHash  []string `json:"weights_hash"` // one per processor
	Log          string   `json:"log,omitempty"`
	LogBytes     int64    `json:"log_bytes"`

	counted int // processors
	missing int // processors without a result
}

// add adds the statistics of a processor over so many steps.
func (s *summary) add(t forward.Stats, in int) {
	s.counted++
	steps := float64(max(in, 1))
	s.Sent += (float64(t.Sent)/steps - s.Sent) / float64(s.counted)
	s.Received += (float64(t.Received)/steps - s.Received) / float64(s.counted)
	s.Forwards += t.Forwards
	s.Missed += t.Missed
	s.Dropped = max(s.Dropped, t.Dropped)
}

// onWire is the traffic of a processor in a step, including what NATS, its acknowledgements and TLS add to the frames.
type onWire struct {
	Sent     float64 `json:"bytes_sent_per_step"`
	Received float64 `json:"bytes_received_per_step"`
}

// addTraffic adds the traffic of a processor, after add.
func (s *summary) addTraffic(j joined) {
	if s.Wire == nil {
		s.Wire = &onWire{}
	}
	steps := float64(max(j.Steps-j.Joined, 1))
	s.Wire.Sent += (float64(j.Sent)/steps - s.Wire.Sent) / float64(s.counted)
	s.Wire.Received += (float64(j.Received)/steps - s.Wire.Received) / float64(s.counted)
}

func (s *summary) same() bool {
	for _, h := range s.WeightsHash {
		if h != s.WeightsHash[0] {
			return false
		}
	}
	return true
}

func (s *summary) print(a *cli.App, asJSON bool) error {
	if !s.same() {
		return fmt.Errorf("the processors' weights differ: %v; please report this run with its flags", s.WeightsHash)
	}
	if asJSON {
		return a.WriteJSON(s)
	}
	same := fmt.Sprintf("the same on all %d processors", s.counted)
	if s.missing > 0 {
		same = fmt.Sprintf("the same on %d processors; %d did not report theirs", s.counted, s.missing)
	}
	log := "none; --log writes one"
	if s.Log != "" {
		log = fmt.Sprintf("%s, %s for the complete run", s.Log, humanize.Bytes(uint64(s.LogBytes)))
	}
	transport := ""
	if s.Wire != nil {
		transport = fmt.Sprintf("\n                %.0f and %.0f including transport overhead", s.Wire.Sent, s.Wire.Received)
	}
	_, err := fmt.Fprintf(a.Out, `%d steps in %s on %s: %s, %s weights.

test accuracy   %s
test loss       %.4f
forward passes  %s of two inputs, %s a second
on the wire     %.0f bytes sent and %.0f received by each processor in a step%s
weights         %s, %s
log             %s
`, s.Steps, cli.Seconds(s.Seconds), s.Data, s.Model, humanize.Comma(int64(s.Weights)), cli.Percent(s.TestAccuracy), s.Loss,
		humanize.Comma(s.Forwards), cli.Rate(float64(s.Forwards)/max(s.Seconds, 1e-9)), s.Sent, s.Received, transport, s.WeightsHash[0], same, log)
	return err
}

// plotPanel is one curve over forward passes.
func plotPanel(label string, x, y []float64) chart.Panel {
	return chart.Panel{XLabel: "forward passes of two inputs", YLabel: label, Series: []chart.Series{{Name: label, Kind: chart.Line, X: x, Y: y}}}
}
