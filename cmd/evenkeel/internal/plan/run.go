package plan

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
	"evenkeel/planner"
	"evenkeel/planner/execute"
	"evenkeel/train"
	"evenkeel/train/task"
)

type runCmd struct {
	Plan      string  `arg:"" help:"Plan file (JSON)." placeholder:"PLAN"`
	Data      string  `help:"Training data: digits (embedded), synthetic, or a file: .csv (numbers, the class in the last column) or text. Default: ${default}." default:"digits" placeholder:"NAME|FILE"`
	Model     string  `help:"mlp, convnet (digits only) or transformer (text only). Default: transformer for text, else mlp." placeholder:"NAME"`
	Size      int     `help:"Width of a hidden layer (default 128) or of a token (64), or channels of the first convolution (16)." placeholder:"N"`
	Depth     int     `help:"Hidden layers, blocks or convolutions. Default: 2." placeholder:"N"`
	Length    int     `help:"Characters of a sample of text. Default: 64." placeholder:"N"`
	Optimizer string  `help:"adamw, momentum or sgd. Default: ${default}." default:"adamw" placeholder:"NAME"`
	Rate      float64 `help:"Learning rate. Default: 0.001 for adamw, 0.01 for momentum, 0.1 for sgd." placeholder:"X"`
	Steps     int     `help:"Iterations. Default: ${default}." default:"100" placeholder:"N"`
	Seed      uint64  `help:"Seed of the weights and the order of the data; the same seed gives the same losses, bit for bit. Default: 0." placeholder:"N"`
	Keys      string  `help:"Folder written by evenkeel plan keys. Default: temporary keys, for stages on this machine." placeholder:"DIR"`
	Stage     int     `help:"Run only this stage; 0 is the server, which owns the data. Start the other stages by hand, on this or other machines. Needs --keys." default:"-1" placeholder:"K"`
	Listen    string  `help:"With --stage: address on which other stages reach this one. Default: ${default}, a free port on loopback." default:"127.0.0.1:0" placeholder:"HOST:PORT"`
	Connect   string  `help:"With --stage 1 or more: address of stage 0." placeholder:"HOST:PORT"`
	JSON      bool    `name:"json" help:"Print the summary as JSON."`
	Child     bool    `hidden:"" help:"This stage was started by its server and ends with it, not by Ctrl-C."`
}

// Help is what --help adds.
func (*runCmd) Help() string {
	return `The first stage is the server, which owns the data and coordinates the run; the others are clients. Activations and gradients flow between
neighbouring stages, micro-batch by micro-batch (1F1B), over TLS 1.3 with certificates on both sides. A stage's replicas are goroutines of its
process. The losses are the same as without a plan, up to rounding.

The layers of a plan are the layers of the network: each dense layer of an mlp; embedding, blocks, norm and predict of a transformer. This command
runs pipeline stages, data-parallel replicas with any shares, and checkpointing. The Python package's python3 -m evenkeel.plan run also runs
tensor degrees, sharded gradients and stages over several machines; for all else export the plan to a trainer.

Examples:

  evenkeel plan run plan.json                                  # all stages on this machine
  evenkeel plan run plan.json --data book.txt --steps 500
  evenkeel plan keys --stages 2 --out keys                     # by hand, or on two machines:
  evenkeel plan run plan.json --keys keys --stage 0 --listen 10.0.0.1:7000
  evenkeel plan run plan.json --keys keys --stage 1 --connect 10.0.0.1:7000`
}

// Run runs the command.
func (c *runCmd) Run(a *cli.App) error {
	if err := c.check(a); err != nil {
		return err
	}
	plan, err := planner.LoadPlan(c.Plan)
	if err != nil {
		return cli.FileError(err)
	}
	t := task.Task{Data: c.Data, Model: c.Model, Size: c.Size, Depth: c.Depth, Length: c.Length, Optimizer: train.Method(c.Optimizer), Rate: c.Rate, Seed: c.Seed, Steps: c.Steps}
	work, err := t.WithDefaults().Build()
	if err != nil {
		return cli.FileError(err)
	}
	job, err := execute.NewJob(plan, work.Network)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Plan, err)
	}
	r := &execution{App: a, command: c, work: work, job: job}
	switch stages := len(plan.Stages); {
	case c.Stage >= stages:
		return badinput.Errorf("--stage %d: the plan has stages 0 to %d", c.Stage, stages-1)
	case c.Stage > 0:
		return r.client()
	case c.Stage == 0:
		return r.serveByHand()
	}
	return r.all()
}

// check reports flags that do not go together.
func (c *runCmd) check(a *cli.App) error {
	given := func(name string) bool { return slices.Contains(a.Given, name) }
	switch {
	case given("steps") && c.Steps < 1:
		return badinput.Errorf("--steps %d: must be at least 1", c.Steps)
	case given("stage") && c.Stage < 0:
		return badinput.Errorf("--stage %d: must be 0, the server, or more", c.Stage)
	case !given("stage") && given("listen"):
		return badinput.Errorf("--listen needs --stage; without it all stages run on this machine")
	case c.Connect != "" && c.Stage < 1:
		return badinput.Errorf("--connect needs --stage 1 or more")
	case c.Stage >= 1 && c.Connect == "":
		return badinput.Errorf("--connect is missing: the address of stage 0")
	case c.Stage >= 0 && c.Keys == "":
		return badinput.Errorf("--keys is missing: evenkeel plan keys --stages N creates keys for all stages")
	}
	for _, flag := range []struct{ name, address string }{{"listen", c.Listen}, {"connect", c.Connect}} {
		if flag.address == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(flag.address); err != nil {
			return badinput.Errorf("--%s %s: must be host:port: %w", flag.name, flag.address, err)
		}
	}
	for _, f := range []struct {
		name string
		zero bool
	}{{"size", c.Size == 0}, {"depth", c.Depth == 0}, {"length", c.Length == 0}, {"rate", c.Rate == 0}} {
		if f.zero && given(f.name) {
			return badinput.Errorf("--%s 0: must be above 0; leave it out for the default", f.name)
		}
	}
	return nil
}

// flags are the arguments by which another stage builds the same job.
func (c *runCmd) flags() []string {
	f := []string{"plan", "run", c.Plan, "--data", c.Data}
	if c.Model != "" {
		f = append(f, "--model", c.Model)
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"--size", c.Size}, {"--depth", c.Depth}, {"--length", c.Length}} {
		if n.value != 0 {
			f = append(f, n.name, fmt.Sprint(n.value))
		}
	}
	return f
}

type execution struct {
	*cli.App
	command *runCmd
	work    *task.Setup
	job     *execute.Job
}

// server makes the first stage; a plan of one stage needs no listener.
func (r *execution) server(keys *execute.Keys, listener net.Listener) (s *execute.Server, clear func()) {
	t := r.work.Task
	s = &execute.Server{Job: r.job, Data: r.work.Training, Keys: keys, Listener: listener, Log: func(m string) { r.Log.Info().Msg(m) },
		Training: execute.Training{Optimizer: r.work.Config.Optimizer, Seed: t.Seed, Steps: t.Steps}}
	report, clear := r.Progress("training")
	begun, reported := time.Now(), 0
	s.Each = func(done int, loss float64) {
		if done == 1 {
			begun = time.Now() // the first iteration warmed up
		}
		report(done, t.Steps)
		if done == 1 && t.Steps > 1 && !cli.IsTerminal(r.Errs) {
			r.Log.Info().Msgf("the first of %d iterations is done, loss %.4f", t.Steps, loss)
		}
		if tenth := done * 10 / t.Steps; tenth != reported && !cli.IsTerminal(r.Errs) {
			reported = tenth
			left := time.Since(begun) * time.Duration(t.Steps-done) / time.Duration(max(done-1, 1))
			r.Log.Info().Msgf("%d of %d iterations, loss %.4f, %s left", done, t.Steps, loss, left.Round(time.Second/10))
		}
	}
	return s, clear
}

// all runs the first stage here, and every other stage in a process of its own.
func (r *execution) all() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	s, clear := r.server(nil, nil)
	if len(r.job.Plan.Stages) > 1 {
		s.Log = nil // this process started the other stages itself
	}
	local := &execute.Local{Server: s, Keys: r.command.Keys, Program: self, BadInput: cli.ExitBadInput, Args: func(stage int, server, keys string) []string {
		return append(r.command.flags(), "--stage", strconv.Itoa(stage), "--connect", server, "--keys", keys, "--child")
	}}
	result, err := local.Run(r.Ctx)
	clear()
	return r.finish(result, err)
}

// serveByHand runs stage 0; the user starts the other stages.
func (r *execution) serveByHand() error {
	keys, err := execute.LoadKeys(r.command.Keys, 0, time.Now())
	if err != nil {
		return err
	}
	var listener net.Listener
	if stages := len(r.job.Plan.Stages); stages > 1 {
		if listener, err = net.Listen("tcp", r.command.Listen); err != nil {
			return badinput.Errorf("--listen %s: %w", r.command.Listen, err)
		}
		r.Log.Info().Msgf("waiting on %s for %s; start each with its number as K", listener.Addr(), cli.Count(stages-1, "stage"))
		fmt.Fprintf(r.Errs, "  evenkeel %s --keys DIR --stage K --connect %s\n", strings.Join(r.command.flags(), " "), listener.Addr())
	}
	s, clear := r.server(keys, listener)
	result, err := s.Run(r.Ctx)
	clear()
	return r.finish(result, err)
}

// client runs a stage after the first.
func (r *execution) client() error {
	c := r.command
	keys, err := execute.LoadKeys(c.Keys, c.Stage, time.Now())
	if err != nil {
		return err
	}
	client := &execute.Client{Job: r.job, Stage: c.Stage, Keys: keys, Server: c.Connect}
	if c.Stage < len(r.job.Plan.Stages)-1 {
		if client.Listener, err = net.Listen("tcp", c.Listen); err != nil {
			return badinput.Errorf("--listen %s: %w", c.Listen, err)
		}
	}
	if !c.Child {
		client.Joined = func() { r.Log.Info().Msgf("stage %d: connected to the server; all stages start", c.Stage) }
	}
	ctx := r.Ctx
	if c.Child {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(context.WithoutCancel(ctx), syscall.SIGTERM)
		defer stop()
	}
	m, err := client.Run(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return r.WriteJSON(m)
	}
	_, err = fmt.Fprintf(r.Out, "stage %d: %s, idle %s of the time\n", c.Stage, cli.Count(m.Iterations, "iteration"), cli.Percent(m.Idle()))
	return err
}

// finish prints the result of a whole or an interrupted run.
func (r *execution) finish(result *execute.Result, err error) error {
	stopped := r.Ctx.Err() != nil && errors.Is(err, r.Ctx.Err())
	if err != nil && !stopped {
		return err
	}
	if stopped && (len(result.Losses) == 0 || len(result.Stages) == 0) {
		return cli.Interrupted(r.Ctx.Err(), "interrupted before anything was measured")
	}
	if err := r.print(result); err != nil {
		return err
	}
	if stopped {
		return cli.Interrupted(r.Ctx.Err(), fmt.Sprintf("interrupted after %d of %d iterations", len(result.Losses), r.command.Steps))
	}
	return nil
}

// runSummary is the JSON document of plan run.
type runSummary struct {
	Plan        string `json:"plan"`
	Model       string `json:"model"`
	Data        string `json:"data"`
	GlobalBatch int    `json:"global_batch"`
	MicroBatch  int    `json:"micro_batch"`
	Replicas    int    `json:"replicas"`
	Cores       int    `json:"cores"` // of the server's machine
	*execute.Result
	Idle []float64 `json:"idle"` // share of its time in which each stage did not compute
}

func (r *execution) print(result *execute.Result) error {
	plan := r.job.Plan
	s := runSummary{Plan: r.command.Plan, Model: r.work.Task.Model, Data: r.work.Task.Data, GlobalBatch: plan.GlobalBatch, MicroBatch: plan.MicroBatch,
		Replicas: r.job.Replicas(), Cores: runtime.GOMAXPROCS(0), Result: result, Idle: []float64{}}
	for _, m := range result.Stages {
		s.Idle = append(s.Idle, m.Idle())
	}
	if r.command.JSON {
		return r.WriteJSON(s)
	}
	done := len(result.Losses)
	fmt.Fprintf(r.Out, "%s of %d samples, %d micro-batches each, on %s: %s, %s, %s.\n\n", cli.Count(done, "iteration"), plan.GlobalBatch, plan.MicroBatches(), s.Data, s.Model,
		cli.Count(len(plan.Stages), "stage"), cli.Count(s.Replicas, "replica"))
	fmt.Fprintf(r.Out, "loss       %.4f at first, %.4f at last\n", result.Losses[0], result.Losses[done-1])
	fmt.Fprintf(r.Out, "iteration  %s measured (median); %s predicted from each stage's time for a micro-batch, measured before the run (%+.1f%%)\n",
		cli.Seconds(result.Median), cli.Seconds(result.Predicted), 100*(result.Predicted/result.Median-1))
	if result.Plan > 0 {
		fmt.Fprintf(r.Out, "           %s predicted in the plan, for its devices\n", cli.Seconds(result.Plan))
	}
	if r.command.Stage < 0 && s.Replicas > s.Cores {
		fmt.Fprintf(r.Out, "           %d replicas share %d cores of this machine, so the time of one depends on the others\n", s.Replicas, s.Cores)
	}
	fmt.Fprintln(r.Out)
	return cli.PrintLines(r.Out, r.stages(result))
}

// stages is the table of each stage's times and bytes of an iteration.
func (r *execution) stages(result *execute.Result) []string {
	var rows [][]string
	for k, m := range result.Stages {
		st := r.job.Plan.Stages[k]
		var shares []string
		for _, g := range st.Groups {
			for _, b := range g.MicroBatches {
				shares = append(shares, fmt.Sprint(b))
			}
		}
		layers := r.job.Units[st.From].Name
		if st.To > st.From+1 {
			layers += " to " + r.job.Units[st.To-1].Name
		}
		side := "client"
		if k == 0 {
			side = "server"
		}
		n, all := float64(max(m.Iterations, 1)), uint64(max(len(result.Losses), 1))
		rows = append(rows, []string{fmt.Sprint(k), side, layers, strings.Join(shares, "+"), cli.Seconds(m.Forward / n), cli.Seconds(m.Backward / n), cli.Seconds(m.Update / n),
			cli.Percent(m.Idle()), humanize.Bytes(uint64(m.Payload) / all), humanize.Bytes(uint64(m.Wire) / all)})
	}
	return cli.Table([]cli.Column{cli.Right("stage"), cli.Left("side"), cli.Left("layers"), cli.Left("samples"), cli.Right("forward"), cli.Right("backward"), cli.Right("update"),
		cli.Right("idle"), cli.Right("sent"), cli.Right("encrypted")}, rows)
}
