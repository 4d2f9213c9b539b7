package forward

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
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
	Out    string `help:"Write the weights as safetensors at the end." placeholder:"FILE"`
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
	r, err := prepareRun(a, &c.flags, c.Log, c.Resume, c.Plot)
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
	work    *task.Setup
	replica *forward.Replica // after the blocks done before; then of the first processor, or of who follows the run
	before  [][]byte         // blocks done before
	blocks  []*forward.Block // the same
	path    string           // of the log
	log     *logFile
	watch   *monitor
}

func (r *session) close() error {
	if r.log == nil {
		return nil
	}
	l := r.log
	r.log = nil
	return l.close()
}

// prepareRun starts a run, or resumes one.
func prepareRun(a *cli.App, f *flags, log string, resume bool, plot string) (*session, error) {
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
	r.work = work
	if r.encoded, err = header.Encode(); err != nil {
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
			all[rank].End = r.block
		} else {
			all[rank].Replica = r.replica.Clone()
		}
	}
	memory.Seal()
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
		s.add(p.Stats(), config.Steps-first)
	}
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
	if plot != "" {
		if err := r.watch.plot(plot); err != nil {
			return err
		}
	}
	if err := s.print(a, asJSON); err != nil {
		return err
	}
	return s.absence(&r.header.Config)
}

// interrupted is the error after Ctrl-C.
func (r *session) interrupted(a *cli.App, command, log string) error {
	hint := fmt.Sprintf("interrupted after %d of %d steps", r.watch.steps, r.header.Config.Steps)
	if log != "" {
		hint += fmt.Sprintf("; the log has them. Continue with\n  evenkeel forward %s --resume --log %s", command, log)
	}
	return cli.Interrupted(a.Ctx.Err(), hint)
}

// summary is the JSON document.
type summary struct {
	Steps        int           `json:"steps"`
	Processors   int           `json:"processors"`
	Directions   int           `json:"directions"`
	Model        string        `json:"model"`
	Data         string        `json:"data"`
	Weights      int           `json:"weights"`
	Loss         float64       `json:"loss"`          // on the samples held out
	TestAccuracy float64       `json:"test_accuracy"` // the same
	Seconds      float64       `json:"seconds"`       // of this process
	Sent         float64       `json:"bytes_sent_per_step"`
	Received     float64       `json:"bytes_received_per_step"`
	Wire         *onWire       `json:"transport,omitempty"` // between processes
	Forwards     int64         `json:"forwards"`            // of two inputs, by all processors of this process
	Missed       int64         `json:"steps_missed"`        // by processors
	Absent       []int         `json:"absent_steps"`        // by pair: steps of the run in which it did not count
	NotFinite    []int64       `json:"not_finite"`          // by pair: times that its losses were infinite or NaN
	Ignored      map[int]int64 `json:"ignored,omitempty"`   // by rank that sent them: messages that did not count
	WeightsHash  []string      `json:"weights_hash"`        // one per processor
	Log          string        `json:"log,omitempty"`
	LogBytes     int64         `json:"log_bytes"`

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
	for rank, n := range t.Ignored {
		s.Ignored[rank] = max(s.Ignored[rank], n)
	}
	for pair, n := range t.NotFinite[:min(len(t.NotFinite), len(s.NotFinite))] { // another program may tell less, or more
		s.NotFinite[pair] = max(s.NotFinite[pair], n)
	}
}

// absence is an error if pairs were absent for more than half of the run.
func (s *summary) absence(c *forward.Config) error {
	absent := 0
	for _, n := range s.Absent {
		absent += n
	}
	if pairs := len(s.Absent); 2*absent > pairs*c.Steps {
		return fmt.Errorf("of %d steps of %d pairs %s did not count (absent_steps): the weights are those of a smaller run", c.Steps, pairs, cli.Percent(float64(absent)/float64(pairs*c.Steps)))
	}
	return nil
}

// away says which pairs were absent, and for how long.
func (s *summary) away() string {
	text := ""
	for pair, n := range s.Absent {
		if n > 0 {
			text += fmt.Sprintf("\n                pair %d was absent in %d of %d steps", pair, n, s.Steps)
		}
	}
	for pair, n := range s.NotFinite {
		if n > 0 {
			text += fmt.Sprintf("\n                pair %d had losses of NaN or infinity %d times", pair, n)
		}
	}
	if text == "" {
		return "all pairs in all steps"
	}
	return strings.TrimSpace(text)
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
present         %s
weights         %s, %s
log             %s
`, s.Steps, cli.Seconds(s.Seconds), s.Data, s.Model, humanize.Comma(int64(s.Weights)), cli.Percent(s.TestAccuracy), s.Loss,
		humanize.Comma(s.Forwards), cli.Rate(float64(s.Forwards)/max(s.Seconds, 1e-9)), s.Sent, s.Received, transport, s.away(), s.WeightsHash[0], same, log)
	return err
}

// plotPanel is one curve over forward passes.
func plotPanel(label string, x, y []float64) chart.Panel {
	return chart.Panel{XLabel: "forward passes of two inputs", YLabel: label, Series: []chart.Series{{Name: label, Kind: chart.Line, X: x, Y: y}}}
}
