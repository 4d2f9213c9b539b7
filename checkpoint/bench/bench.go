// Package bench measures what checkpoints cost on a disk: how near writing and reading come to the disk's own limit,
// and how much longer training steps take if each is saved. Compared times are measured in turns within one run, and
// the results are medians of ratios, because disks are shared and drift.
package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/checkpoint"
)

// Config says what to measure.
type Config struct {
	Folder  string // on the disk to measure
	Bytes   int64  // of a checkpoint; 0: 256 MiB
	Layers  int    // 0: 48
	Trials  int    // of every comparison; 0: 5
	Steps   int    // of training per trial and way of saving; 0: 12
	Workers int    // goroutines that compute; 0: 1, as where a device computes and the processor feeds it
	// Limit is when no more is begun, though trials are left: half of it for the disk, the rest for steps. At least one
	// trial of each is run. 0: none.
	Limit time.Duration
	// Progress reports how much is done, after every measurement; may be nil.
	Progress func(done, total int)
}

func (c Config) filled() Config {
	for _, f := range []struct {
		field *int
		value int
	}{{&c.Layers, 48}, {&c.Trials, 5}, {&c.Steps, 12}, {&c.Workers, 1}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	if c.Bytes == 0 {
		c.Bytes = 256 << 20
	}
	return c
}

// Validate reports everything that is wrong.
func (c Config) Validate() error {
	c = c.filled()
	var errs []error
	if c.Bytes < 1<<20 || c.Bytes > 1<<40 {
		errs = append(errs, fmt.Errorf("size is %d bytes, must be 1 MiB to 1 TiB", c.Bytes))
	}
	for _, f := range []struct {
		name         string
		is, min, max int
	}{{"layers", c.Layers, 1, 1024}, {"trials", c.Trials, 1, 1000}, {"steps", c.Steps, 2, 1000}, {"workers", c.Workers, 1, 1024}} {
		if f.is < f.min || f.is > f.max {
			errs = append(errs, fmt.Errorf("%s is %d, must be %d to %d", f.name, f.is, f.min, f.max))
		}
	}
	return errors.Join(errs...)
}

// Result is what was measured. Seconds are medians; ratios are medians of the trials' ratios.
type Result struct {
	Bytes  int64 `json:"bytes"`
	Layers int   `json:"layers"`
	Trials int   `json:"trials"`
	// Partial says what was left out, "" for nothing: the time was up, or the context done.
	Partial string `json:"partial,omitempty"`
	// Seconds of each way to write or read that many bytes, ours among them.
	Write map[string]float64 `json:"write_seconds"`
	Read  map[string]float64 `json:"read_seconds"`
	// Direct says that saves past the page cache were durable sooner; the ratios are of the faster way.
	Direct bool `json:"direct"`
	// Bandwidth of a durable checkpoint over that of the best raw way, and of a verified restore over the best raw
	// read, both of a cold cache.
	PersistOverLimit float64 `json:"persist_over_limit"`
	RestoreOverLimit float64 `json:"restore_over_limit"`
	// Seconds of a step without saving, and how much longer one is that is saved every time.
	StepSeconds       float64 `json:"step_seconds"`
	StepRatioSync     float64 `json:"step_ratio_sync"`
	StepRatioStaged   float64 `json:"step_ratio_staged"`
	StepRatioZeroCopy float64 `json:"step_ratio_zerocopy"`
	StepRatioDirect   float64 `json:"step_ratio_direct"`   // zero-copy, past the page cache
	StepRatioInterval float64 `json:"step_ratio_interval"` // zero-copy, every IntervalSteps steps
	// Share of a step in which training waits for the saving.
	WaitShareStaged   float64 `json:"wait_share_staged"`
	WaitShareZeroCopy float64 `json:"wait_share_zerocopy"`
	StagingBytes      int64   `json:"staging_bytes"`
	IntervalSteps     int     `json:"interval_steps"`
	// The trials behind the ratios.
	PersistTrials []float64            `json:"persist_trials"`
	RestoreTrials []float64            `json:"restore_trials"`
	StepTrials    map[string][]float64 `json:"step_trials"`
}

// Model makes arrays like those of a network of equal layers, filled with numbers that do not compress.
func Model(bytes int64, layers int) []checkpoint.Array {
	r := rand.New(rand.NewPCG(1, 2))
	var arrays []checkpoint.Array
	for l := range layers {
		n := max(1, int(bytes/4096)/layers) * 1024 // whole blocks, as direct writing has it
		w := make([]float32, n)
		for i := range w {
			w[i] = r.Float32()
		}
		arrays = append(arrays, checkpoint.Of(fmt.Sprintf("layer.%02d.weight", l), checkpoint.Parameter, w))
	}
	return arrays
}

// Save writes every array and waits until the checkpoint is durable.
func Save(ctx context.Context, f *checkpoint.File, arrays []checkpoint.Array, step uint64) error {
	s, err := f.Begin(ctx, step)
	if err != nil {
		return err
	}
	for _, a := range arrays {
		if err := s.Write(a.Name, a.Data); err != nil {
			return err
		}
	}
	if err := s.Commit(checkpoint.State{}); err != nil {
		return err
	}
	return s.Wait(ctx)
}

// ways to write and read raw, and checkpoints: what a trial of the disk measures.
const perTrial = 13

// Run measures. The folder needs room for eight times Bytes. Where the context ends it, the result holds what whole
// trials have shown until then, beside the error.
func Run(ctx context.Context, c Config) (Result, error) {
	if err := c.Validate(); err != nil {
		return Result{}, err
	}
	c = c.filled()
	arrays := Model(c.Bytes, c.Layers)
	res := Result{Layers: c.Layers, Trials: c.Trials, Write: map[string]float64{}, Read: map[string]float64{}, StepTrials: map[string][]float64{}}
	for _, a := range arrays {
		res.Bytes += a.Len()
	}
	path := filepath.Join(c.Folder, fmt.Sprintf("evenkeel-bench-%016x", rand.Uint64()))
	defer removeAll(path)
	done, total := 0, (c.Trials+1)*perTrial+3+c.Trials*len(savings)
	tick := func() {
		if done = min(done+1, total-1); c.Progress != nil {
			c.Progress(done, total)
		}
	}
	begun := time.Now()
	err := res.disk(ctx, c, path, arrays, begun.Add(c.Limit/2), tick)
	if err == nil {
		err = res.training(ctx, c, path, arrays, begun.Add(c.Limit), tick)
	}
	if err != nil && ctx.Err() == nil {
		return Result{}, err
	}
	if err != nil {
		res.left("interrupted", "what follows is of the trials that were complete")
	}
	return res, err
}

// left notes that something was left out.
func (r *Result) left(why string, args ...any) {
	if r.Partial != "" {
		r.Partial += "; "
	}
	r.Partial += why + ": " + fmt.Sprint(args...)
}

// late says whether no other trial is to be begun.
func (c Config) late(trials int, until time.Time) bool {
	return c.Limit > 0 && trials > 0 && time.Now().After(until)
}

// disk compares with the disk's limits.
func (r *Result) disk(ctx context.Context, c Config, path string, arrays []checkpoint.Array, until time.Time, tick func()) error {
	raw, err := newRaw(path+".raw", r.Bytes)
	if err != nil {
		return err
	}
	defer raw.close()
	f, err := checkpoint.Create(path+".ckpt", arrays, checkpoint.Options{Slots: 2})
	if err != nil {
		return err
	}
	defer f.Close()
	past, err := checkpoint.Create(path+".direct.ckpt", arrays, checkpoint.Options{Slots: 2, Direct: true})
	if err != nil {
		return err
	}
	defer past.Close()
	writes, reads := map[string][]float64{}, map[string][]float64{}
	timed := func(into map[string][]float64, name string, do func() error) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		begun := time.Now()
		if err := do(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		into[name] = append(into[name], time.Since(begun).Seconds())
		tick()
		return nil
	}
	step, complete := uint64(0), 0
	defer func() { r.compare(writes, reads, complete) }()
	for trial := range c.Trials + 1 {
		if trial == 1 { // the first only warms up
			clear(writes)
			clear(reads)
		}
		if c.late(complete, until) {
			r.left(fmt.Sprintf("%v are over", c.Limit), complete, " of ", c.Trials, " trials of the disk")
			return nil
		}
		for name, do := range raw.writes(arrays) {
			if err := timed(writes, name, do); err != nil {
				return err
			}
		}
		step++
		for name, to := range map[string]*checkpoint.File{ours: f, oursDirect: past} {
			if err := timed(writes, name, func() error { return Save(ctx, to, arrays, step) }); err != nil {
				return err
			}
		}
		for name, do := range raw.reads(arrays) {
			if err := DropCache(path + ".raw"); err != nil {
				return err
			}
			if err := timed(reads, name, do); err != nil {
				return err
			}
		}
		if err := restores(f, arrays, func(name string, do func() error) error { return timed(reads, name, do) }); err != nil {
			return err
		}
		complete = trial
	}
	return nil
}

// restores restores with a cold cache: everything, and a third of the arrays with the rest behind it, as Adam's parameters are a third of its state.
func restores(f *checkpoint.File, arrays []checkpoint.Array, timed func(name string, do func() error) error) error {
	var third []string
	for _, a := range arrays[:(len(arrays)+2)/3] {
		third = append(third, a.Name)
	}
	var behind *checkpoint.Behind
	for _, do := range []func() error{
		func() error { return DropCache(f.Path()) },
		func() error {
			return timed(ours, func() error {
				_, _, err := f.Restore(arrays)
				return err
			})
		},
		func() error { return DropCache(f.Path()) },
		func() error {
			return timed(oursBehind, func() (err error) {
				if _, behind, err = f.RestoreBehind(arrays); err != nil {
					return err
				}
				return behind.Wait(third...)
			})
		},
		func() error { return behind.Wait() },
	} {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// compare draws the disk's results from whole trials.
func (r *Result) compare(writes, reads map[string][]float64, complete int) {
	if complete == 0 {
		return
	}
	for _, times := range []map[string][]float64{writes, reads} {
		for name := range times {
			times[name] = times[name][:complete]
		}
	}
	r.Direct = median(writes[oursDirect]) < median(writes[ours])
	r.PersistTrials, r.RestoreTrials = overBest(writes, r.Write, r.persistedBy()), overBest(reads, r.Read, ours)
	r.PersistOverLimit, r.RestoreOverLimit = median(r.PersistTrials), median(r.RestoreTrials)
}

// The names of a checkpoint among the ways to write and read.
const (
	ours       = "checkpoint"
	oursDirect = "checkpoint, direct"
	oursBehind = "checkpoint, a third, the rest behind"
)

// persistedBy is the faster of them.
func (r *Result) persistedBy() string {
	if r.Direct {
		return oursDirect
	}
	return ours
}

// overBest gives, trial by trial, the time of the raw way with the best median over this one of ours, and notes the
// medians.
func overBest(times map[string][]float64, medians map[string]float64, mine string) []float64 {
	best := ""
	for name, t := range times {
		medians[name] = median(t)
		if !slices.Contains([]string{ours, oursDirect, oursBehind}, name) && (best == "" || medians[name] < medians[best] || medians[name] == medians[best] && name < best) {
			best = name
		}
	}
	var ratios []float64
	for i, t := range times[mine] {
		ratios = append(ratios, times[best][i]/t)
	}
	return ratios
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(x))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}
