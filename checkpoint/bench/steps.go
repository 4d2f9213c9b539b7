package bench

import (
	"context"
	"errors"
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
)

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
// It returns how long it waited for the saving.
func (w *work) step(ctx context.Context, f *checkpoint.File, n uint64, save, wait bool) (time.Duration, error) {
	var s *checkpoint.Save // nil does nothing
	var before time.Duration
	if f != nil {
		before = f.Stats().Waited
	}
	if f != nil && save {
		var err error
		if s, err = f.Begin(ctx, n); err != nil {
			return 0, err
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
				return 0, err
			}
		}
	}
	begun := time.Now()
	if wait { // a synchronous save begins when the step is over
		for _, a := range w.arrays {
			if err := write(a); err != nil {
				return 0, err
			}
		}
	}
	if err := s.Commit(checkpoint.State{}); err != nil {
		return 0, err
	}
	if wait {
		err := s.Wait(ctx)
		return time.Since(begun), err
	}
	if f == nil {
		return 0, nil
	}
	return f.Stats().Waited - before, nil
}

// training measures steps of about twice a save's length, saved in every way by turns.
func (r *Result) training(ctx context.Context, c Config, path string, arrays []checkpoint.Array, tick func()) error {
	f, err := checkpoint.Create(path+".zero.ckpt", arrays, checkpoint.Options{WhenFull: checkpoint.Block})
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	w := &work{arrays: arrays, workers: c.Workers}
	if err := w.calibrate(ctx, 2*r.Write[ours]); err != nil {
		return err
	}
	waits := map[string][]float64{}
	var tune checkpoint.Interval
	n := uint64(0)
	series := func(how string) error {
		var f *checkpoint.File
		if how != none {
			o := checkpoint.Options{WhenFull: checkpoint.Block}
			if how == staged {
				o.Mode = checkpoint.Staged
			}
			var err error
			if f, err = checkpoint.Open(path+".zero.ckpt", arrays, o); err != nil {
				return err
			}
			defer f.Close()
			if _, _, err := f.Restore(arrays); err != nil && !errors.Is(err, checkpoint.ErrEmpty) {
				return err
			}
		}
		every := uint64(1)
		if how == interval {
			every = uint64(tune.Steps())
		}
		var begun time.Time
		waited, count := time.Duration(0), 0
		for k := range uint64(max(c.Steps, 2*int(every))) + 1 {
			if k == 1 { // the first fills the pipeline
				begun, waited, count = time.Now(), 0, 0
			}
			n++
			one := time.Now()
			d, err := w.step(ctx, f, n, k%every == 0, how == synced)
			if err != nil {
				return err
			}
			if k > 0 {
				waited += d
				count++
				if how == none || how == zerocopy {
					tune.Step(time.Since(one), how == zerocopy)
				}
			}
		}
		each := time.Since(begun).Seconds() / float64(count)
		r.StepTrials[how] = append(r.StepTrials[how], each)
		waits[how] = append(waits[how], waited.Seconds()/float64(count)/each)
		if f != nil {
			r.StagingBytes = max(r.StagingBytes, f.Stats().StagingBytes)
			tune.Saved(time.Duration(r.Write[ours] * float64(time.Second)))
		}
		return nil
	}
	for range c.Trials {
		for _, how := range []string{none, synced, staged, zerocopy, interval} {
			if err := series(how); err != nil {
				return err
			}
		}
		tick()
	}
	ratio := func(how string) float64 {
		var q []float64
		for i, t := range r.StepTrials[how] {
			q = append(q, t/r.StepTrials[none][i])
		}
		return median(q)
	}
	r.StepSeconds = median(r.StepTrials[none])
	r.StepRatioSync, r.StepRatioStaged, r.StepRatioZeroCopy, r.StepRatioInterval = ratio(synced), ratio(staged), ratio(zerocopy), ratio(interval)
	r.WaitShareStaged, r.WaitShareZeroCopy = median(waits[staged]), median(waits[zerocopy])
	r.IntervalSteps = tune.Steps()
	return nil
}

// calibrate finds the work that makes a step last this many seconds.
func (w *work) calibrate(ctx context.Context, want float64) error {
	seconds := func(rounds int) (float64, error) {
		w.rounds = rounds
		var t []float64
		for range 3 {
			begun := time.Now()
			if _, err := w.step(ctx, nil, 0, false, false); err != nil {
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
	const probe = 2000
	with, err := seconds(probe)
	if err != nil {
		return err
	}
	w.rounds = int(max(0, want-without) / max(1e-9, with-without) * probe)
	return nil
}
