package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
	"unsafe"

	"github.com/evenkeel/evenkeel/checkpoint"
)

// The ways to save in training.
const (
	none     = "none"
	synced   = "sync"
	staged   = "staged"
	zerocopy = "zerocopy"
	interval = "interval"
	direct   = "direct"
)

// savings are all of them, in the order of their turns.
var savings = []string{none, synced, staged, zerocopy, direct, interval}

// work is one training step without a network: the same number of multiplications for every layer, in memory that
// stays in the processor's cache, and an update that changes every byte of the layer.
type work struct {
	arrays  []checkpoint.Array
	rounds  int // per layer and worker
	workers int
}

func (w *work) compute() {
	var all sync.WaitGroup
	for range w.workers - 1 {
		all.Go(w.multiply)
	}
	w.multiply() // where the trainer runs
	all.Wait()
}

func (w *work) multiply() {
	var x [1024]float32
	for i := range x {
		x[i] = float32(i)
	}
	for range w.rounds {
		for i := range x {
			x[i] = x[i]*0.999 + 1
		}
	}
	if math.IsNaN(float64(x[5])) {
		panic("numbers that are bounded are not") // keeps the work from being optimised away
	}
}

// update changes a layer's parameters.
func update(a checkpoint.Array) {
	p := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(a.Data))), len(a.Data)/4)
	for i := range p {
		p[i] = p[i]*0.9999 + 1e-6
	}
}

// step trains one step, layers from the last, on a model that f, if not nil, may still be saving, and saves it or not.
// It returns the save, and how long it waited for the saving.
func (w *work) step(ctx context.Context, f *checkpoint.File, n uint64, save, wait bool) (*checkpoint.Save, time.Duration, error) {
	var s *checkpoint.Save // nil does nothing
	var before time.Duration
	if f != nil {
		before = f.Stats().Waited
	}
	if f != nil && save {
		var err error
		if s, err = f.Begin(ctx, n); err != nil {
			return nil, 0, err
		}
	}
	write := func(a checkpoint.Array) error { return s.Write(a.Name, a.Data) }
	for i := len(w.arrays) - 1; i >= 0; i-- {
		a := w.arrays[i]
		w.compute()
		if f != nil {
			f.Ready(a.Name)
		}
		update(a)
		if !wait {
			if err := write(a); err != nil {
				return nil, 0, err
			}
		}
	}
	begun := time.Now()
	if wait { // a synchronous save begins when the step is over
		for _, a := range w.arrays {
			if err := write(a); err != nil {
				return nil, 0, err
			}
		}
	}
	if err := s.Commit(checkpoint.State{}); err != nil {
		return nil, 0, err
	}
	if wait {
		err := s.Wait(ctx)
		return s, time.Since(begun), err
	}
	if f == nil {
		return nil, 0, nil
	}
	return s, f.Stats().Waited - before, nil
}

// training measures steps of about twice a save's length, saved in every way by turns.
func (r *Result) training(ctx context.Context, c Config, path string, arrays []checkpoint.Array, until time.Time, tick func()) error {
	t := &training{Result: r, path: path + ".zero.ckpt", steps: c.Steps, late: func() bool { return c.late(1, until) }, waits: map[string][]float64{},
		work: &work{arrays: arrays, workers: c.Workers}}
	f, err := checkpoint.Create(t.path, arrays, checkpoint.Options{})
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := t.work.calibrate(ctx, 2*r.Write[r.persistedBy()]); err != nil {
		return err
	}
	for range 3 { // the interval is to be found before it is measured
		if err := t.series(ctx, interval); err != nil {
			return err
		}
		tick()
	}
	clear(r.StepTrials)
	complete := 0
	defer func() { t.compare(complete) }()
	for trial := range c.Trials {
		if c.late(complete, until) {
			r.left(fmt.Sprintf("%v are over", c.Limit), complete, " of ", c.Trials, " trials of steps")
			return nil
		}
		for _, how := range savings {
			if err := t.series(ctx, how); err != nil {
				return err
			}
			tick()
		}
		complete = trial + 1
	}
	return nil
}

// compare draws the steps' results from whole trials.
func (t *training) compare(complete int) {
	r := t.Result
	if complete == 0 {
		clear(r.StepTrials)
		return
	}
	for how := range r.StepTrials {
		r.StepTrials[how] = r.StepTrials[how][:complete]
	}
	ratio := func(how string) float64 {
		var q []float64
		for i, t := range r.StepTrials[how] {
			q = append(q, t/r.StepTrials[none][i])
		}
		return median(q)
	}
	r.StepSeconds = median(r.StepTrials[none])
	r.StepRatioSync, r.StepRatioStaged, r.StepRatioZeroCopy = ratio(synced), ratio(staged), ratio(zerocopy)
	r.StepRatioDirect, r.StepRatioInterval = ratio(direct), ratio(interval)
	r.WaitShareStaged, r.WaitShareZeroCopy = median(t.waits[staged]), median(t.waits[zerocopy])
	r.IntervalSteps = t.tune.Steps()
}

// training is steps that are saved in every way.
type training struct {
	*Result
	work  *work
	path  string
	steps int // of a series
	late  func() bool
	n     uint64
	waits map[string][]float64 // shares of a series
	tune  checkpoint.Interval
}

// series trains some steps, saved in one way.
func (t *training) series(ctx context.Context, how string) error {
	var f *checkpoint.File
	if how != none {
		o := checkpoint.Options{WhenFull: checkpoint.Block, Direct: t.Direct || how == direct}
		if how == staged {
			o.Mode = checkpoint.Staged
		}
		var err error
		if f, err = checkpoint.Open(t.path, t.work.arrays, o); err != nil {
			return err
		}
		defer f.Close()
		if _, _, err := f.Restore(t.work.arrays); err != nil && !errors.Is(err, checkpoint.ErrEmpty) {
			return err
		}
	}
	every := 1
	if how == interval {
		every = min(t.tune.Steps(), 8*t.steps) // where noise asks for a very long one, the bench would not end
	}
	count := (t.steps + every - 1) / every * every // whole intervals
	var begun time.Time
	var waited time.Duration
	var saves sync.WaitGroup
	var persisted sync.Mutex // guards underway and tune
	underway := 0
	done := 0
	for k := range count + 1 { // the first fills the pipeline
		if k > t.steps && t.late() { // an interval found long on a busy disk would not let it end
			break
		}
		done = k
		if k == 1 {
			begun, waited = time.Now(), 0
		}
		t.n++
		one := time.Now()
		persisted.Lock()
		before := underway
		persisted.Unlock()
		s, d, err := t.work.step(ctx, f, t.n, how != none && (k+every/2)%every == 0, how == synced)
		if err != nil {
			return err
		}
		waited += d
		if how != interval {
			continue
		}
		persisted.Lock()
		if k > 0 {
			t.tune.Step(time.Since(one), s != nil, s != nil || before > 0)
		}
		if s != nil {
			underway++
			saves.Go(func() {
				err := settled(ctx, s)
				persisted.Lock()
				defer persisted.Unlock()
				underway--
				if err == nil {
					t.tune.Saved(time.Since(one))
				}
			})
		}
		persisted.Unlock()
	}
	each := time.Since(begun).Seconds() / float64(done)
	saves.Wait()
	t.StepTrials[how] = append(t.StepTrials[how], each)
	t.waits[how] = append(t.waits[how], waited.Seconds()/float64(done)/each)
	if f != nil {
		t.StagingBytes = max(t.StagingBytes, f.Stats().StagingBytes)
	}
	return nil
}

// settled is Wait without hurrying the save.
func settled(ctx context.Context, s *checkpoint.Save) error {
	select {
	case <-s.Done():
	case <-ctx.Done():
	}
	return s.Wait(ctx)
}

// calibrate finds the work that makes a step last this many seconds.
func (w *work) calibrate(ctx context.Context, want float64) error {
	seconds := func(rounds int) (float64, error) {
		w.rounds = rounds
		var t []float64
		for range 3 {
			begun := time.Now()
			if _, _, err := w.step(ctx, nil, 0, false, false); err != nil {
				return 0, err
			}
			t = append(t, time.Since(begun).Seconds())
		}
		return median(t), ctx.Err()
	}
	without, err := seconds(0)
	if err != nil {
		return err
	}
	for probe := 2000; ; probe *= 2 { // until the work stands out from the noise
		with, err := seconds(probe)
		if err != nil {
			return err
		}
		if with >= 2*without && with >= want/8 {
			w.rounds = int(max(0, want-without) / (with - without) * float64(probe))
			return nil
		}
	}
}
