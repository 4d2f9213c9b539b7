// Package run holds the commands about one run of the agent on a simulated cluster: run
// shows it and explains a node's sizes, export writes the sizes at its end for a trainer.
package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"evenkeel/agent"
	"evenkeel/agent/export"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
	"evenkeel/internal/runlog"
)

// Cmd runs the agent on a simulated cluster and shows each round.
type Cmd struct {
	flags
	Log    string `help:"Write a run log (JSON Lines)." placeholder:"FILE"`
	Export string `help:"Write the sizes at the end of the run, as json or in another format: ${formats}." placeholder:"[FORMAT=]FILE"`
	scalingFlags
	Plot    string `help:"Draw the run, as SVG." placeholder:"FILE"`
	Beliefs string `help:"Begin with what earlier runs wrote here about the nodes, if the file exists; write it anew at the end." placeholder:"FILE"`
	Explain string `help:"Explain a node's sizes: what was measured, what was believed, what was chosen, and the alternatives. --json and --log keep every round." placeholder:"NODE"`
	JSON    bool   `name:"json" help:"Print the summary as JSON, and nothing else."`
	Replay  string `help:"Instead of a run, replay a run log and check that every report is the same; for a real job's log, that every decision is the same." placeholder:"LOG"`
}

// Help is what --help adds.
func (*Cmd) Help() string {
	return `On a terminal a table of the nodes is refreshed in place; elsewhere a line is printed every tenth of the run. The
summary compares the agent with other policies on the same cluster under the same seed: equal sizes; water-filling tuned
for these conditions, where rounds end at a deadline also without one; and an oracle that knows every node's true speed.

Examples:

  evenkeel run                                            # sixteen GPUs of four generations, one pace
  evenkeel run --cluster my.yaml --profiles my.csv        # a cluster and devices of your own
  evenkeel run --conditions bursts --seed 7 --plot run.svg
  evenkeel run --export torchrun=sizes.sh --log run.jsonl
  evenkeel run --quorum auto --weights speed=1,freshness=0.5
  evenkeel run --beliefs run.beliefs                      # the next run begins with what this one learnt
  evenkeel run --explain t4-1
  evenkeel run --replay run.jsonl`
}

// Run runs the command.
func (r *Cmd) Run(a *cli.App) error {
	if r.Replay != "" {
		if r.Explain != "" {
			return badinput.New("--explain needs a run, not --replay; run again with the log's cluster, conditions and seed, and with --explain")
		}
		if err := a.Only("--replay", "replay"); err != nil {
			return err
		}
		return r.replay(a)
	}
	format, file, err := r.check()
	if err != nil {
		return err
	}
	w, err := r.prepare(a, file)
	if err != nil {
		return err
	}
	failed := r.play(w)
	if len(w.history.rounds) == 0 {
		return failed
	}
	if w.references.err != nil && !errors.Is(w.references.err, context.Canceled) {
		a.Log.Warn().Err(w.references.err).Msg("the summary lacks a reference")
	}
	if text := w.control.Absurd().String(); text != "" {
		w.app.Log.Warn().Str("ignored", text).Msg("some reports were impossible and were ignored")
	}
	w.app.WarnExtrapolated(w.setup.cluster, w.round.Plan.Sizes)
	failed = errors.Join(failed, w.save(r, format, file))
	err = r.print(w)
	if errors.Is(failed, context.Canceled) {
		kept := slices.DeleteFunc([]string{r.Log, file, r.Plot, r.Beliefs}, func(p string) bool { return p == "" })
		hint := fmt.Sprintf("interrupted after %d of %d rounds", len(w.history.rounds), w.setup.rounds)
		if len(kept) > 0 {
			hint += "; they are kept in " + strings.Join(kept, ", ")
		}
		return cli.Interrupted(failed, hint)
	}
	return errors.Join(failed, err)
}

// check looks at the flags before any work; file is what --export writes.
func (r *Cmd) check() (format, file string, err error) {
	format, file, err = r.exported()
	switch {
	case err != nil:
		return "", "", err
	case r.LRScaling != "" && file == "":
		return "", "", badinput.Errorf("--lr-scaling has no effect without --export; leave it out")
	}
	if err := errors.Join(r.scalingFlags.check(), cli.CheckPlot(r.Plot)); err != nil {
		return "", "", err
	}
	return format, file, cli.CheckFiles(append(clusterInputs(&r.ClusterFlags), cli.FileFlag("--policy", r.Policy)), r.outputs(file))
}

// outputs are the files that are written; file is what --export writes.
func (r *Cmd) outputs(file string) []cli.File {
	return []cli.File{cli.FileFlag(cli.LogFlag, r.Log), cli.FileFlag("--export", file), cli.FileFlag("--plot", r.Plot), cli.FileFlag("--beliefs", r.Beliefs)}
}

// prepare loads what the run needs and creates its log; file is what --export writes.
func (r *Cmd) prepare(a *cli.App, file string) (*watch, error) {
	s, err := r.load(r.outputs(file)...)
	if err != nil {
		return nil, err
	}
	a.WarnMemory(s.cluster)
	w := &watch{app: a, setup: s, history: history{policy: "evenkeel"}, devices: map[string]*sizeHistory{}}
	if r.Explain != "" {
		w.reasons = &reasons{}
		if w.reasons.node, err = findNode(s.cluster, r.Explain); err != nil {
			return nil, err
		}
	}
	if w.beliefs, err = r.beliefs(); err != nil {
		return nil, err
	}
	if r.Log != "" {
		if w.log, err = runlog.Create(r.Log, s.header(a.Build.Version)); err != nil {
			return nil, cli.FileError(err)
		}
	}
	return w, nil
}

// beliefs reads those of earlier runs; nil: there are none.
func (r *Cmd) beliefs() (*agent.Beliefs, error) {
	if r.Beliefs == "" {
		return nil, nil
	}
	text, err := os.ReadFile(r.Beliefs)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, cli.FileError(err)
	}
	b, err := agent.DecodeBeliefs(text)
	if err != nil {
		return nil, badinput.Errorf("--beliefs: %s: %w; remove it to begin without", r.Beliefs, err)
	}
	return b, nil
}

// play runs the agent, and the references beside it.
func (r *Cmd) play(w *watch) error {
	ctx, cancel := context.WithCancel(w.app.Ctx)
	defer cancel()
	w.references = w.setup.compare(ctx)
	v := r.view(w)
	failed := w.run(v)
	v.close()
	if failed != nil {
		cancel() // the summary does without the references that are not done
	}
	w.references.wait(w.app)
	if failed == nil {
		failed = w.app.Ctx.Err() // interrupted while tuning: the summary lacks a reference
	}
	if w.log != nil {
		failed = errors.Join(failed, w.log.Close())
	}
	return failed
}

// print prints the summary.
func (r *Cmd) print(w *watch) error {
	if r.JSON {
		return w.app.WriteJSON(w.document())
	}
	lines := w.summary()
	if w.reasons != nil {
		lines = append(w.reasons.text(), lines...)
	}
	return cli.PrintLines(w.app.Out, lines)
}

func (r *Cmd) view(w *watch) view {
	switch {
	case r.JSON:
		return newQuietView(w)
	case cli.IsTerminal(w.app.Out):
		return newLiveView(w)
	}
	return newLineView(w)
}

// exported splits --export into its format and its file.
func (r *Cmd) exported() (format, file string, err error) {
	if r.Export == "" {
		return "", "", nil
	}
	format, file, ok := strings.Cut(r.Export, "=")
	if !ok {
		return "json", r.Export, nil
	}
	if file == "" {
		return "", "", badinput.Errorf("--export: %q names no file; write %s=FILE", r.Export, format)
	}
	return format, file, checkFormat("--export", format)
}

func (r *Cmd) replay(a *cli.App) error {
	f, err := os.Open(r.Replay)
	if err != nil {
		return cli.FileError(err)
	}
	defer f.Close()
	log, err := runlog.NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Replay, err)
	}
	if log.Header.Source == runlog.Live {
		return replayLive(a, r.Replay, log)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	rounds, cut, err := runlog.Replay(a.Ctx, f)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Replay, err)
	}
	if rounds == 0 {
		return badinput.Errorf("%s: the log has no rounds", r.Replay)
	}
	if cut {
		warnCut(a, r.Replay)
	}
	_, err = fmt.Fprintf(a.Out, "%s: %s replayed, every report the same\n", r.Replay, cli.Count(rounds, "round"))
	return err
}

// warnCut warns of a log that ends in the middle of a line.
func warnCut(a *cli.App, path string) {
	a.Log.Warn().Str("file", path).Msg("the last line is incomplete and ignored: the run was killed, or is still going on")
}

// header is the header of the run log.
func (s *setup) header(version string) runlog.Header {
	h := runlog.NewHeader(s.text, s.cluster)
	h.Evenkeel, h.Name, h.Preset, h.Conditions = version, s.name, s.conditions.Name, s.conditions.Conditions
	h.Seed, h.Policy, h.Weights = s.seed, s.policy, s.weights
	return h
}

// watch is a run of the agent, and what is shown of it.
type watch struct {
	app        *cli.App
	setup      *setup
	log        *runlog.Writer // nil: none
	agent      *agent.Agent
	control    *agent.Control
	beliefs    *agent.Beliefs // to begin with; nil: none
	references *references
	history    history
	tally      tally
	round      agent.Round // the newest
	before     []int       // sizes of the round before it
	bars       int         // columns of a bar
	reasons    *reasons    // nil without --explain

	order   []string                // devices, as in the cluster file
	devices map[string]*sizeHistory // for the plot
}

// run runs all rounds and shows each in v.
func (w *watch) run(v view) error {
	policy, simulator, control := w.setup.start()
	w.agent, w.control = policy, control
	control.Adopt(w.beliefs)
	w.before = make([]int, len(w.setup.cluster.Nodes))
	for range w.setup.rounds {
		if w.round.Plan.Sizes != nil {
			copy(w.before, w.round.Plan.Sizes)
		}
		var note runlog.Note
		round, err := control.Round(w.app.Ctx)
		if err != nil {
			return err
		}
		w.round = round
		w.history.add(round, simulator.Efficiency(round.Report.Counted))
		w.tally.add(round.Report)
		w.classes()
		if w.reasons != nil {
			e := policy.Explain(w.reasons.node)
			control.Explain(&e, w.reasons.node)
			if note.Explain, err = w.reasons.add(e); err != nil {
				return err
			}
		}
		if w.log != nil {
			note.LeftOut = w.leftOuts()
			if err := w.log.Round(round.Plan, policy.Performance(), round.Report, note); err != nil {
				return err
			}
		}
		v.show()
	}
	return nil
}

// save writes the files that the flags name.
func (w *watch) save(r *Cmd, format, file string) error {
	var errs []error
	if r.Log != "" {
		w.app.Log.Info().Str("file", r.Log).Int("rounds", len(w.history.rounds)).Msg("run log written")
	}
	if file != "" {
		err := w.tally.failure(w.setup.cluster)
		var sizes export.Sizes
		w.control.SettleLimits()
		if err == nil {
			var form export.Format
			if form, err = export.Find(format); err == nil {
				end := w.setup.end(w.agent, w.round.Plan.Sizes)
				end.Equal = form.Equal
				sizes, err = export.FromRun(end, r.LRScaling)
			}
		} else {
			err = fmt.Errorf("--export: %s is not written: %w", file, err)
		}
		if err == nil {
			warnLeftOut(w.app, sizes)
			warnSilent(w.app, "the run", w.setup.silent(w.control))
			err = export.Save(file, format, sizes)
		}
		if err == nil {
			w.app.Log.Info().Str("file", file).Str("format", format).Msg("sizes of the simulated nodes written")
		}
		errs = append(errs, err)
	}
	if r.Beliefs != "" {
		text, err := w.control.Beliefs().Encode()
		if err == nil {
			err = cli.WriteFile(r.Beliefs, func(w io.Writer) error { _, err := w.Write(text); return err })
		}
		if err == nil {
			w.app.Log.Info().Str("file", r.Beliefs).Msg("beliefs written")
		}
		errs = append(errs, err)
	}
	if r.Plot != "" {
		err := w.figure().Save(r.Plot)
		if err == nil {
			w.app.Log.Info().Str("file", r.Plot).Msg("figure written")
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
