// Command evenkeel keeps a mixed cluster training at one pace: it sizes every node's
// share of the batch so that all finish together. See docs/tutorials for the first steps.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"evenkeel/agent/clusters"
	"evenkeel/agent/export"
	"evenkeel/cluster"
	"evenkeel/cmd/evenkeel/internal/bucket"
	"evenkeel/cmd/evenkeel/internal/checkpoint"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/cmd/evenkeel/internal/compare"
	"evenkeel/cmd/evenkeel/internal/forward"
	"evenkeel/cmd/evenkeel/internal/plan"
	"evenkeel/cmd/evenkeel/internal/profiles"
	"evenkeel/cmd/evenkeel/internal/run"
	"evenkeel/cmd/evenkeel/internal/serve"
	"evenkeel/cmd/evenkeel/internal/train"
	"evenkeel/internal/badinput"
)

// commands is the whole command line; each family of commands has a package of its own.
type commands struct {
	Run        run.Cmd          `cmd:"" help:"Run the agent on a simulated cluster and watch it even out the nodes."`
	Train      train.Cmd        `cmd:"" help:"Train a policy from scratch."`
	Compare    compare.Cmd      `cmd:"" help:"Compare policies over scenarios and seeds."`
	Export     run.ExportCmd    `cmd:"" help:"Write each rank's share and micro-steps for a trainer."`
	Profiles   profiles.Cmd     `cmd:"" help:"List, show and check device profiles."`
	Forward    forward.Cmd      `cmd:"" help:"Train networks by forward passes only, on paired processors."`
	Bucket     bucket.Cmd       `cmd:"" help:"Batch samples of unequal lengths so that ranks finish together."`
	Plan       plan.Cmd         `cmd:"" help:"Plan hybrid parallelism for a model on mixed devices."`
	Serve      serve.Cmd        `cmd:"" help:"Run the control service, which tunes training jobs; alone, or for one command."`
	Jobs       serve.JobsCmd    `cmd:"" help:"Show and change the jobs of a control service."`
	Workers    serve.WorkersCmd `cmd:"" help:"Simulate the ranks of jobs, to try or load a control service."`
	Checkpoint checkpoint.Cmd   `cmd:"" help:"Create, inspect, verify, export and measure checkpoint files."`
	Version    versionCmd       `cmd:"" help:"Print version, commit and date."`
}

const about = `Evenkeel keeps a mixed cluster training at one pace: it gives every node a share of the batch so that all
finish together, and adjusts the shares while nodes slow down, recover, join and leave. It does so in the
simulator, in Go programs that implement its Runner, and in real jobs beside evenkeel serve. Without the service a
PyTorch job gets fixed sizes, or a deadline by which each rank adapts by itself. Everything works without a
network and without setup: measured profiles, a trained policy and example clusters are built in.

Exit status: 0 done, 1 failed or interrupted, 2 bad input.`

func main() { os.Exit(obey(os.Args[1:], os.Stdout, os.Stderr)) }

// obey runs one command line and returns its exit status.
func obey(args []string, out, errs *os.File) int {
	if len(args) == 0 {
		args = []string{"--help"}
	}
	switch args[0] {
	case "help":
		args = append(args[1:len(args):len(args)], "--help")
	case "--version":
		args = append([]string{"version"}, args[1:]...)
	}
	command, err := parse(args, out, errs)
	if err != nil {
		return complain(errs, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), endings()...)
	defer stop()
	context.AfterFunc(ctx, func() { time.AfterFunc(patience, stop) }) // a later Ctrl-C ends at once
	a := cli.NewApp(ctx, out, errs)
	a.Build = cli.ReadBuild(version, commit, date)
	for _, p := range command.Path {
		if p.Flag != nil {
			a.Given = append(a.Given, p.Flag.Name)
		}
	}
	return complain(errs, command.Run(a))
}

// newParser makes the parser of the whole command line.
func newParser(out, errs io.Writer) (*kong.Kong, error) {
	return kong.New(&commands{}, kong.Name("evenkeel"), kong.Description(about), kong.Writers(out, errs),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
		kong.Vars{
			"clusters":    strings.Join(clusters.Names(), ", "),
			"conditions":  strings.Join(cluster.Presets(), ", "),
			"formats":     run.FormatNames(),
			"planFormats": plan.FormatNames(),
			"scalings":    strings.Join(export.Scalings(), ", "),
		})
}

// patience is how long after the first Ctrl-C further ones are ignored: many people press
// it twice, and results must be saved.
const patience = 2 * time.Second

// endings are the signals that end a run cleanly.
func endings() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// complain prints an error and returns its exit status.
func complain(errs io.Writer, err error) int {
	if err == nil {
		return 0
	}
	var exit cli.Exit
	if errors.As(err, &exit) {
		return int(exit)
	}
	if errors.Is(err, context.Canceled) {
		hint := "interrupted"
		if i := (*cli.Interruption)(nil); errors.As(err, &i) {
			hint = i.Error()
		}
		fmt.Fprintln(errs, "evenkeel: "+hint)
		return cli.ExitFailed
	}
	fmt.Fprintln(errs, "evenkeel: "+err.Error())
	if badinput.Is(err) {
		return cli.ExitBadInput
	}
	return cli.ExitFailed
}
