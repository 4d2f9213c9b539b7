// Package train holds the command train, which trains a policy from scratch.
package train

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"evenkeel/agent"
	"evenkeel/cluster/profile"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
	"evenkeel/lab/training"
)

// Cmd trains a policy from scratch.
type Cmd struct {
	Out    string  `help:"Folder of the run: policy, checkpoint, returns as CSV and a figure. A folder that has a run already is refused without --resume." default:"policy" placeholder:"DIR"`
	Steps  *int    `help:"Rounds to train on, over all environments; default: as many as for the embedded policy." placeholder:"N"`
	Seed   *uint64 `help:"Seed of the run; the same seed gives the same policy. Default: 1, which trains the embedded policy." placeholder:"N"`
	Resume bool    `help:"Continue the interrupted run of the folder; the policy is the same as without the interruption."`
	JSON   bool    `name:"json" help:"Print the summary as JSON."`
	cli.ProfileFlags
}

// Help is what --help adds.
func (*Cmd) Help() string {
	return `Trains on simulated clusters, with the devices and models that the catalogue marks for training; --profiles can
replace their measurements. Ctrl-C saves everything; --resume continues from there.

Examples:

  evenkeel train
  evenkeel train --steps 200000 --seed 7 --out seed7
  evenkeel train --resume --out seed7`
}

// The files of a run.
const (
	policyFile     = "policy.safetensors"
	checkpointFile = "checkpoint.evenkeel"
	returnsFile    = "returns.csv"
)

// saveEvery is the time between checkpoints, and so what a power cut may cost.
const saveEvery = 30 * time.Second

// Run runs the command.
func (c *Cmd) Run(a *cli.App) error {
	catalogue, err := c.Catalogue()
	if err != nil {
		return err
	}
	t := &trainingRun{App: a, dir: c.Out}
	outputs := []cli.File{cli.FileFlag("--out", t.path(returnsFile)), cli.FileFlag("--out", t.path(policyFile)), cli.FileFlag("--out", t.path(checkpointFile))}
	if err := cli.CheckDistinct(c.Inputs(), outputs); err != nil {
		return err
	}
	if c.Resume {
		err = t.resume(catalogue, c)
	} else {
		err = t.start(catalogue, c)
	}
	if err != nil {
		return err
	}
	if err := t.run(); err != nil || t.restored {
		return err
	}
	return t.summary(c.JSON)
}

// trainingRun is a run of the command.
type trainingRun struct {
	*cli.App
	dir      string
	trainer  *training.Trainer
	resumed  bool
	restored bool                // the run was finished, but its policy not written
	rows     []training.Progress // of the whole run, including those before an interruption
	begun    time.Time           // the first step of this process
	saved    time.Time
	first    int // steps done before this process
	reported int // tenths of the run that were reported
}

// path is the path of a file of the run.
func (t *trainingRun) path(name string) string { return filepath.Join(t.dir, name) }

// start prepares a new run in a folder that holds none.
func (t *trainingRun) start(catalogue *profile.Catalogue, c *Cmd) error {
	config := training.Config{Seed: 1}
	if c.Steps != nil {
		if config.Steps = *c.Steps; *c.Steps == 0 {
			return badinput.Errorf("--steps 0: nothing would be trained; leave it out for the default")
		}
	}
	if c.Seed != nil {
		config.Seed = *c.Seed
	}
	if err := config.Validate(); err != nil {
		return err
	}
	for _, name := range []string{policyFile, checkpointFile} {
		switch _, err := os.Stat(t.path(name)); {
		case err == nil:
			return badinput.Errorf("%s exists already: continue that run with --resume, or choose another folder with --out", t.path(name))
		case !errors.Is(err, os.ErrNotExist):
			return badinput.Wrap(err)
		}
	}
	if err := os.MkdirAll(t.dir, 0o755); err != nil {
		return badinput.Wrap(err)
	}
	var err error
	t.trainer, err = training.NewTrainer(catalogue, config)
	return err
}

// resume continues the run of a folder.
func (t *trainingRun) resume(catalogue *profile.Catalogue, c *Cmd) error {
	var err error
	t.trainer, err = training.LoadCheckpoint(catalogue, t.path(checkpointFile))
	if errors.Is(err, os.ErrNotExist) {
		return badinput.Errorf("nothing to resume in %s: it has no %s", t.dir, checkpointFile)
	}
	if err != nil {
		return err
	}
	was := t.trainer.Trained().Record.Config
	if c.Steps != nil && *c.Steps != was.Steps || c.Seed != nil && *c.Seed != was.Seed {
		return badinput.Errorf("the run in %s has --steps %d --seed %d and must be resumed with the same; for others choose another folder with --out", t.dir, was.Steps, was.Seed)
	}
	t.resumed = true
	t.rows, err = readReturns(t.path(returnsFile))
	return err
}

// run trains to the end, or until Ctrl-C, and saves the results.
func (t *trainingRun) run() error {
	ctx, stop := context.WithCancel(t.Ctx)
	defer stop()
	quiet := context.AfterFunc(t.Ctx, func() {
		if cli.IsTerminal(t.Errs) {
			fmt.Fprintln(t.Errs) // below the bar
		}
		fmt.Fprintln(t.Errs, "evenkeel: saving ...")
	})
	defer quiet()
	var failed error // the disk is full, say
	report, clearBar := t.Progress("training")
	err := t.trainer.Run(ctx, func(p training.Progress) {
		if failed = t.record(p); failed != nil {
			stop()
			return
		}
		report(p.Steps, p.Total)
		t.report(p)
	})
	clearBar()
	switch {
	case failed != nil:
		return failed
	case err != nil && !errors.Is(err, context.Canceled):
		return err
	case !t.stepped() && err != nil:
		return cli.Interrupted(err, "interrupted before the first step; nothing was changed")
	case !t.stepped() && t.unwritten():
		t.restored = true
		if err := t.trainer.Trained().Save(t.path(policyFile)); err != nil {
			return err
		}
		t.Log.Info().Str("file", t.path(policyFile)).Msg("the run was finished, but its policy was not written; it is written now")
		return nil
	case !t.stepped():
		return badinput.Errorf("the run in %s is finished; train another in another folder with --out", t.dir)
	}
	if err := errors.Join(t.trainer.Trained().Save(t.path(policyFile)), t.save(), saveReturnsFigure(t.dir, t.rows)); err != nil {
		return err
	}
	if err != nil {
		last := t.rows[len(t.rows)-1]
		return cli.Interrupted(err, fmt.Sprintf("interrupted after %d of %d steps; everything is saved. Continue with\n  evenkeel train --resume --out %s", last.Steps, last.Total, t.dir))
	}
	return nil
}

// unwritten reports whether the folder lacks the trainer's policy: the process died between
// its last checkpoint and the policy.
func (t *trainingRun) unwritten() bool {
	p, err := agent.Load(t.path(policyFile))
	return err != nil || p.Record.Updates != t.trainer.Trained().Record.Updates
}

// stepped says whether this process has trained.
func (t *trainingRun) stepped() bool { return !t.begun.IsZero() }

// open prepares the rows for the first step of this process: a run that was killed may have written more than its checkpoint has.
func (t *trainingRun) open(now time.Time, p training.Progress) {
	t.begun, t.saved, t.reported = now, now, p.Steps*10/p.Total
	for len(t.rows) > 0 && t.rows[len(t.rows)-1].Steps >= p.Steps {
		t.rows = t.rows[:len(t.rows)-1]
	}
	if n := len(t.rows); n > 0 {
		t.first = t.rows[n-1].Steps
	}
}

// record keeps a report, and saves a checkpoint when it is due.
func (t *trainingRun) record(p training.Progress) error {
	now := time.Now()
	if !t.stepped() {
		t.open(now, p)
	}
	t.rows = append(t.rows, p)
	if now.Sub(t.saved) < saveEvery {
		return nil
	}
	t.saved = now
	return t.save()
}

// save writes the returns, then the checkpoint, so that the returns are never behind it.
func (t *trainingRun) save() error {
	if err := writeReturns(t.path(returnsFile), t.rows); err != nil {
		return err
	}
	return t.trainer.SaveCheckpoint(t.path(checkpointFile))
}

// report logs every tenth of the run if no progress bar is drawn.
func (t *trainingRun) report(p training.Progress) {
	tenth := p.Steps * 10 / p.Total
	if cli.IsTerminal(t.Errs) || tenth == t.reported {
		return
	}
	t.reported = tenth
	left := time.Since(t.begun) * time.Duration(p.Total-p.Steps) / time.Duration(p.Steps-t.first)
	t.Log.Info().Msgf("%d of %d steps, return %.4f, %s left", p.Steps, p.Total, p.Return, left.Round(time.Second))
}

// summary is the --json document.
type summary struct {
	Steps      int     `json:"steps"`
	Updates    int     `json:"updates"`
	Seed       uint64  `json:"seed"`
	Return     float64 `json:"return"`
	Team       float64 `json:"team"`
	Seconds    float64 `json:"seconds"` // of this process
	Policy     string  `json:"policy"`
	Checkpoint string  `json:"checkpoint"`
	Returns    string  `json:"returns"`
}

// summary prints the results.
func (t *trainingRun) summary(asJSON bool) error {
	last := t.rows[len(t.rows)-1]
	s := summary{
		Steps: last.Steps, Updates: last.Updates, Seed: t.trainer.Trained().Record.Config.Seed,
		Return: last.Return, Team: last.Team, Seconds: time.Since(t.begun).Seconds(),
		Policy: t.path(policyFile), Checkpoint: t.path(checkpointFile), Returns: t.path(returnsFile),
	}
	if asJSON {
		return t.WriteJSON(s)
	}
	_, err := fmt.Fprintf(t.Out, `Trained on %d steps (%d updates) in %s; return %.4f, progress against the state oracle %.4f.

policy       %s
checkpoint   %s
returns      %s, with a figure, .svg

Watch it:  evenkeel run --policy %[6]s
Compare it:  evenkeel compare --policy %[6]s
`, s.Steps, s.Updates, time.Since(t.begun).Round(time.Second/10), s.Return, 1+s.Team, s.Policy, s.Checkpoint, s.Returns)
	return err
}
