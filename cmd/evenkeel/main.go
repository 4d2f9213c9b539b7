// Command evenkeel keeps a mixed cluster training at one pace: it sizes every node's
// micro-batch so that all finish together. See docs/guides/run.md for the first steps.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/rs/zerolog"

	"github.com/evenkeel/evenkeel/agent/clusters"
	"github.com/evenkeel/evenkeel/agent/export"
	"github.com/evenkeel/evenkeel/cluster"
)

// Exit statuses.
const (
	exitFailed   = 1
	exitBadInput = 2
)

// cli is the whole command line; each command lives in a file of its own.
type cli struct {
	Run        runCmd        `cmd:"" help:"Watch the agent bring a simulated cluster to one pace."`
	Train      trainCmd      `cmd:"" help:"Train a policy from scratch."`
	Compare    compareCmd    `cmd:"" help:"Judge policies over scenarios and seeds."`
	Export     exportCmd     `cmd:"" help:"Write micro-batch sizes for a trainer."`
	Profiles   profilesCmd   `cmd:"" help:"List, show and check device profiles."`
	Forward    forwardCmd    `cmd:"" help:"Train networks by forward passes alone, on paired processors."`
	Bucket     bucketCmd     `cmd:"" help:"Batch samples of unequal lengths so that ranks finish together."`
	Plan       planCmd       `cmd:"" help:"Cut a model over devices that differ."`
	Checkpoint checkpointCmd `cmd:"" help:"Make, look into, verify, export and measure checkpoint files."`
	Version    versionCmd    `cmd:"" help:"Print the version."`
}

const about = `Evenkeel keeps a mixed cluster training at one pace: it gives every node the micro-batch
that it finishes in the same time as the others, and keeps that right while nodes slow down, recover, join
and leave. Everything works without a network and without set-up: measured profiles, a trained policy and
example clusters are built in.

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
		args = []string{"version"}
	}
	var c cli
	parser, err := kong.New(&c, kong.Name("evenkeel"), kong.Description(about), kong.Writers(out, errs),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
		kong.Vars{
			"clusters":    strings.Join(clusters.Names(), ", "),
			"conditions":  strings.Join(cluster.Presets(), ", "),
			"formats":     formatNames(),
			"planFormats": planFormatNames(),
			"scalings":    strings.Join(export.Scalings(), ", "),
		})
	if err != nil {
		return complain(errs, err)
	}
	command, err := parser.Parse(args)
	if err != nil {
		return complain(errs, badInput(err))
	}
	ctx, stop := signal.NotifyContext(context.Background(), endings()...)
	defer stop()
	context.AfterFunc(ctx, func() { time.AfterFunc(patience, stop) }) // a later Ctrl-C ends at once
	a := newApp(ctx, out, errs)
	for _, p := range command.Path {
		if p.Flag != nil {
			a.given = append(a.given, p.Flag.Name)
		}
	}
	return complain(errs, command.Run(a))
}

// patience is how long after the first Ctrl-C others are ignored: many hands press it
// twice, and what was done is to be saved.
const patience = 2 * time.Second

// endings are the signals that end a run in good order.
func endings() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// complain prints the error plainly and returns the exit status that it stands for.
func complain(errs io.Writer, err error) int {
	if err == nil {
		return 0
	}
	if errors.Is(err, context.Canceled) {
		hint := "interrupted"
		if i := (*interruption)(nil); errors.As(err, &i) {
			hint = i.Error()
		}
		fmt.Fprintln(errs, "evenkeel: "+hint)
		return exitFailed
	}
	fmt.Fprintln(errs, "evenkeel: "+err.Error())
	if isBadInput(err) {
		return exitBadInput
	}
	return exitFailed
}

func formatNames() string {
	var names []string
	for _, f := range export.Formats() {
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ")
}

// app is what every command gets.
type app struct {
	ctx   context.Context // done on Ctrl-C, SIGTERM and SIGHUP
	out   *os.File        // results
	errs  *os.File        // progress and logs
	log   zerolog.Logger  // to errs
	given []string        // flags on the command line
}

func newApp(ctx context.Context, out, errs *os.File) *app {
	w := zerolog.ConsoleWriter{Out: errs, NoColor: !colours(errs), TimeFormat: "15:04:05"}
	return &app{ctx: ctx, out: out, errs: errs, log: zerolog.New(w).With().Timestamp().Logger()}
}

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run(a *app) error {
	_, err := fmt.Fprintln(a.out, "evenkeel", version()+revision())
	return err
}

// version is the module's as the build recorded it; (devel) where it recorded none.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}

// revision is that of the sources, where the build recorded it.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	switch {
	case settings["vcs.revision"] == "":
		return ""
	case settings["vcs.modified"] == "true":
		return fmt.Sprintf(" (revision %s, modified)", settings["vcs.revision"])
	}
	return fmt.Sprintf(" (revision %s)", settings["vcs.revision"])
}
