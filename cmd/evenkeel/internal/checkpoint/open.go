package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/evenkeel/evenkeel/checkpoint"
	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/train"
)

// open creates the checkpoint files, or restores from them.
func (r *savedRun) open() error {
	path, arrays, o := r.command.path(slotsFile), r.trainer.Arrays(), r.command.options()
	report, clear := r.Progress("checkpoint file (MiB)")
	defer clear()
	o.Progress = inBytes(report)
	striped := r.stripes()
	_, missing := os.Lstat(path)
	if len(striped) > 0 && r.command.Resume && missing == nil {
		return badinput.Errorf("--stripe: the run in %s was started without it; leave it out, or start another run with --out", r.command.Out)
	}
	there := missing == nil
	for _, p := range striped {
		_, err := os.Lstat(p)
		there = there || err == nil
	}
	if !there && r.command.Resume {
		if err := r.began(); err != nil {
			return err
		}
		r.Log.Info().Msg("the run was interrupted before it had a checkpoint file; it starts from the beginning")
	}
	restore, err := r.openFiles(path, striped, arrays, o, there)
	if err != nil {
		if there {
			return cli.FileError(err)
		}
		return err
	}
	reports, err := restore()
	clear()
	warnFaults(r.App, r.files, reports)
	switch {
	case errors.Is(err, checkpoint.ErrEmpty):
		if there {
			r.Log.Info().Msg("the run was interrupted before its first checkpoint; it starts from the beginning")
		}
	case err != nil:
		return errors.Join(fmt.Errorf("%s: %w", r.files[0].Path(), err), r.close())
	default:
		r.Log.Info().Int("slot", reports[0].Restored).Msgf("restored step %d of %d, every byte verified", r.trainer.Steps(), r.work.Task.Steps)
	}
	return nil
}

// warnFaults warns of checkpoints that were not restored.
func warnFaults(a *cli.App, files []*checkpoint.File, reports []checkpoint.Report) {
	for i, report := range reports {
		for _, d := range report.Damage {
			a.Log.Warn().Str("file", files[i].Path()).Msg(d)
		}
		for _, s := range report.Slots {
			if s.Fault != "" {
				a.Log.Warn().Str("file", files[i].Path()).Int("slot", s.Slot).Msgf("not restored: %s", s.Fault)
			}
		}
	}
}

// openFiles opens or creates the files, and returns how to restore from them.
func (r *savedRun) openFiles(path string, striped []string, arrays []checkpoint.Array, o checkpoint.Options, there bool) (restore func() ([]checkpoint.Report, error), _ error) {
	if len(striped) > 0 {
		s, err := checkpoint.OpenOrCreateSet(striped, arrays, o)
		if err != nil {
			return nil, err
		}
		r.files = s.Files()
		r.saveTo = func(c train.SaveConfig) error { return r.trainer.SaveToSet(s, c) }
		return func() ([]checkpoint.Report, error) { return r.trainer.RestoreSet(s) }, nil
	}
	var f *checkpoint.File
	var err error
	if there {
		f, err = checkpoint.Open(path, arrays, o)
	} else {
		f, err = checkpoint.Create(path, arrays, o)
	}
	if err != nil {
		return nil, err
	}
	r.files = []*checkpoint.File{f}
	r.saveTo = func(c train.SaveConfig) error { return r.trainer.SaveTo(f, c) }
	return func() ([]checkpoint.Report, error) {
		report, err := r.trainer.Restore(f)
		return []checkpoint.Report{report}, err
	}, nil
}

// stripes are the files of a striped run; none if it is not striped.
func (r *savedRun) stripes() []string {
	var paths []string
	striped := r.command.Stripe
	for i := range r.work.Task.MicroBatches {
		p := r.command.path(fmt.Sprintf(stripesFile, i))
		if _, err := os.Lstat(p); !errors.Is(err, fs.ErrNotExist) {
			striped = true
		}
		paths = append(paths, p)
	}
	if !striped {
		return nil
	}
	return paths
}

func (r *savedRun) close() error {
	var errs []error
	for _, f := range r.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// saved sums up the statistics of the files, and the bytes of a checkpoint in all of them. A checkpoint counts if all
// files have it; nodes wait at the same time.
func (r *savedRun) saved() (all checkpoint.Stats, bytes int64) {
	for i, f := range r.files {
		s := f.Stats()
		if i == 0 {
			all.Committed = s.Committed
		}
		all.Committed, all.Skipped, all.Waited = min(all.Committed, s.Committed), max(all.Skipped, s.Skipped), max(all.Waited, s.Waited)
		bytes += f.Info().Bytes
	}
	return all, bytes
}

// paths are the names of the files, separated by spaces.
func (r *savedRun) paths() string {
	var names []string
	for _, f := range r.files {
		names = append(names, f.Path())
	}
	return strings.Join(names, " ")
}
