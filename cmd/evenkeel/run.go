package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/agent/export"
	"github.com/evenkeel/evenkeel/internal/runlog"
)

// runCmd runs the agent on a simulated cluster while one watches.
type runCmd struct {
	runFlags `set:"rounds=200"`
	Log      string `help:"Write a run log (JSON Lines)." placeholder:"FILE"`
	Export   string `help:"Write the sizes at the end: as json, or in another format: ${formats}." placeholder:"[FORMAT=]FILE"`
	scalingFlags
	Plot    string `help:"Draw the run, .svg or .png." placeholder:"FILE"`
	Explain string `help:"Say why a node got its sizes: what was measured, believed, chosen, and over what. --json and --log keep every round." placeholder:"NODE"`
	JSON    bool   `name:"json" help:"Print the summary as JSON, and nothing else."`
	Replay  string `help:"Instead of a run, replay a run log and check that every report comes out the same." placeholder:"LOG"`
}

// Help is shown under the flags.
func (*runCmd) Help() string {
	return `On a terminal a table of the nodes is refreshed while the agent works, elsewhere a line comes every tenth of the run. At the end stands a
summary against three others on the same cluster under the same seed: the same size everywhere, water-filling tuned for these conditions, and an
oracle that knows every node's true speed.

Examples:

  evenkeel run                                            # sixteen GPUs of four generations, one pace
  evenkeel run --cluster my.yaml --profiles my.csv        # a cluster and devices of your own
  evenkeel run --conditions bursts --seed 7 --plot run.png
  evenkeel run --export torchrun=sizes.sh --log run.jsonl
  evenkeel run --quorum auto --weights speed=1,freshness=0.5
  evenkeel run --explain t4-1
  evenkeel run --replay run.jsonl`
}

// Run is kong's.
func (r *runCmd) Run(a *app) error {
	if r.Replay != "" {
		if err := a.only("--replay", "replay"); err != nil {
			return err
		}
		return r.replay(a)
	}
	format, file, err := r.exported()
	if err == nil && r.LRScaling != "" && file == "" {
		err = badInputf("--lr-scaling has no effect without --export; leave it out")
	}
	if err == nil {
		err = errors.Join(r.scalingFlags.check(), checkPlot(r.Plot))
	}
	if err == nil {
		err = checkFiles(r.inputs(), []named{{logFlag, r.Log}, {"--export", file}, {"--plot", r.Plot}})
	}
	if err != nil {
		return err
	}
	s, err := r.load()
	if err != nil {
		return err
	}
	a.warnMemory(s.cluster)
	w := &watch{app: a, setup: s, course: course{policy: "evenkeel"}, devices: map[string]*deviceCourse{}}
	if r.Explain != "" {
		w.reasons = &reasons{}
		if w.reasons.node, err = findNode(s.cluster, r.Explain); err != nil {
			return err
		}
	}
	if r.Log != "" {
		if w.log, err = runlog.Create(r.Log, s.header()); err != nil {
			return opened(err)
		}
	}
	ctx, cancel := context.WithCancel(a.ctx)
	defer cancel()
	w.references = s.compare(ctx)
	v := r.view(w)
	failed := w.run(v)
	v.close()
	if failed != nil {
		cancel() // no summary needs what is not there yet
	}
	w.references.wait(a)
	if failed == nil {
		failed = a.ctx.Err() // interrupted while tuning: the summary lacks something
	}
	if w.log != nil {
		failed = errors.Join(failed, w.log.Close())
	}
	if len(w.course.rounds) == 0 {
		return failed
	}
	if w.references.err != nil && !errors.Is(w.references.err, context.Canceled) {
		a.log.Warn().Err(w.references.err).Msg("the summary lacks a reference")
	}
	failed = errors.Join(failed, w.save(r, format, file))
	if r.JSON {
		err = a.writeJSON(w.document())
	} else {
		lines := w.summary()
		if w.reasons != nil {
			lines = append(w.reasons.text(), lines...)
		}
		err = printLines(a.out, lines)
	}
	if errors.Is(failed, context.Canceled) {
		kept := slices.DeleteFunc([]string{r.Log, file, r.Plot}, func(p string) bool { return p == "" })
		hint := fmt.Sprintf("interrupted after %d of %d rounds", len(w.course.rounds), s.rounds)
		if len(kept) > 0 {
			hint += "; they are kept in " + strings.Join(kept, ", ")
		}
		return &interruption{failed, hint}
	}
	return errors.Join(failed, err)
}

func (r *runCmd) view(w *watch) view {
	switch {
	case r.JSON:
		return newQuietView(w)
	case isTerminal(w.app.out):
		return newLiveView(w)
	}
	return newLineView(w)
}

// exported splits --export into format and file.
func (r *runCmd) exported() (format, file string, err error) {
	if r.Export == "" {
		return "", "", nil
	}
	format, file, ok := strings.Cut(r.Export, "=")
	if !ok {
		return "json", r.Export, nil
	}
	if file == "" {
		return "", "", badInputf("--export: %q names no file; write %s=FILE", r.Export, format)
	}
	return format, file, checkFormat("--export", format)
}

func (r *runCmd) replay(a *app) error {
	f, err := os.Open(r.Replay)
	if err != nil {
		return opened(err)
	}
	defer f.Close()
	rounds, cut, err := runlog.Replay(a.ctx, f)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Replay, err)
	}
	if rounds == 0 {
		return badInputf("%s: the log holds no round", r.Replay)
	}
	if cut {
		a.warnCut(r.Replay)
	}
	_, err = fmt.Fprintf(a.out, "%s: %s replayed, every report the same\n", r.Replay, count(rounds, "round"))
	return err
}

// warnCut says that a log ends in the middle of a line.
func (a *app) warnCut(path string) {
	a.log.Warn().Str("file", path).Msg("the last line is cut and left out: the run was killed or is still going on")
}

// header of the run's log.
func (s *setup) header() runlog.Header {
	h := runlog.NewHeader(s.text, s.cluster)
	h.Evenkeel, h.Name, h.Preset, h.Conditions = version(), s.name, s.conditions.Name, s.conditions.Conditions
	h.Seed, h.Policy, h.Weights = s.seed, s.policy, s.weights
	return h
}

// watch is a run of the agent under way.
type watch struct {
	app        *app
	setup      *setup
	log        *runlog.Writer // nil: none
	agent      *agent.Agent
	references *references
	course     course
	tally      tally
	round      agent.Round // the newest
	before     []int       // sizes of the round before it
	bars       int         // columns of a bar
	reasons    *reasons    // nil: nobody asked

	order   []string                 // devices, as in the cluster file
	devices map[string]*deviceCourse // for the plot
}

// run plays the rounds and shows each to v.
func (w *watch) run(v view) error {
	policy, simulator, control := w.setup.start()
	w.agent = policy
	w.before = make([]int, len(w.setup.cluster.Nodes))
	for n := range w.setup.rounds {
		if w.round.Plan.Sizes != nil {
			copy(w.before, w.round.Plan.Sizes)
		}
		note := runlog.Note{Weights: w.setup.prefer(policy, n+1)}
		round, err := control.Round(w.app.ctx)
		if err != nil {
			return err
		}
		w.round = round
		w.course.add(round, simulator.Efficiency(round.Report.Counted))
		w.tally.add(round.Report)
		w.classes()
		if w.reasons != nil {
			if note.Explain, err = w.reasons.add(policy.Explain(w.reasons.node)); err != nil {
				return err
			}
		}
		if w.log != nil {
			if err := w.log.Round(round.Plan, policy.Performance(), round.Report, note); err != nil {
				return err
			}
		}
		v.show()
	}
	return nil
}

// save writes the files that were asked for.
func (w *watch) save(r *runCmd, format, file string) error {
	var errs []error
	if r.Log != "" {
		w.app.log.Info().Str("file", r.Log).Int("rounds", len(w.course.rounds)).Msg("run log written")
	}
	if file != "" {
		err := w.tally.nothing(w.setup.cluster)
		var sizes export.Sizes
		if err == nil {
			sizes, err = w.setup.end(w.agent, w.round.Plan.Sizes).export(r.LRScaling)
		} else {
			err = fmt.Errorf("--export: %s is not written: %w", file, err)
		}
		if err == nil {
			err = export.Save(file, format, sizes)
		}
		if err == nil {
			w.app.log.Info().Str("file", file).Str("format", format).Msg("sizes written")
		}
		errs = append(errs, err)
	}
	if r.Plot != "" {
		err := w.figure().Save(r.Plot)
		if err == nil {
			w.app.log.Info().Str("file", r.Plot).Msg("figure written")
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
