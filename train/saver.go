package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"evenkeel/checkpoint"
)

// SaveConfig says when a trainer saves.
type SaveConfig struct {
	// Every is the number of steps from one save to the next; 0: found from what saves cost, see
	// checkpoint.Interval. That looks at the clock, so which steps are saved differs between runs; what is saved does
	// not.
	Every int
	// Durable, if not nil, is called with the step of every checkpoint once it is on the storage: in order, one at a
	// time, from other goroutines.
	Durable func(step uint64)
}

// saver hands what a step has updated to a checkpoint file, layer by layer.
type saver struct {
	trainer *Trainer
	file    *checkpoint.File // nil: nothing is saved
	config  SaveConfig
	arrays  [][]checkpoint.Array // of node 0, by layer
	save    *checkpoint.Save     // of this step; nil if the step is not saved
	last    uint64               // step of the last save
	writing sync.WaitGroup       // for the timeline, of this save's layers

	waiting  sync.WaitGroup // for saves to be durable
	hurry    chan struct{}  // closed when somebody waits for them
	before   chan struct{}  // closed when Durable has returned for the save before the next
	mu       sync.Mutex
	interval checkpoint.Interval
	underway int
	touched  bool  // a save was under way when this step began
	failed   error // not returned yet
}

// Arrays are the weights and moments in the trainer's own memory: what a checkpoint file is made for.
func (t *Trainer) Arrays() []checkpoint.Array {
	return slices.Concat(t.arrays()...)
}

// arrays are those in the memory of node 0, layer by layer.
func (t *Trainer) arrays() [][]checkpoint.Array {
	n, out := t.nodes[0], make([][]checkpoint.Array, len(t.net.layers))
	for i, l := range t.net.layers {
		for k, p := range t.net.params[l.first:][:l.count] {
			out[i] = append(out[i], checkpoint.Of(p.Name, checkpoint.Parameter, n.weights.Params[l.first+k], p.Shape...))
			for j, m := range n.moments {
				out[i] = append(out[i], checkpoint.Of(fmt.Sprintf("%s.moment%d", p.Name, j+1), checkpoint.Moment, m.Params[l.first+k], p.Shape...))
			}
		}
	}
	return out
}

// SaveTo saves the steps that follow to a file, which must have been made for Arrays, or restored. Close the trainer
// before the file.
func (t *Trainer) SaveTo(f *checkpoint.File, c SaveConfig) error {
	if c.Every < 0 {
		return fmt.Errorf("%w: a save every %d steps; want 1 or more, or 0 to find out", ErrUsage, c.Every)
	}
	s := &t.saver
	s.file, s.config, s.last, s.arrays, s.hurry = f, c, t.step, t.arrays(), make(chan struct{})
	return nil
}

// Restore takes weights, moments and the position in the data from the newest checkpoint that verifies. The run then
// continues as if it had not been interrupted, to the bit. The errors are those of checkpoint.File.Restore, and
// ErrUsage, naming the setting that differs, if the checkpoint is of a run with another configuration.
func (t *Trainer) Restore(f *checkpoint.File) (checkpoint.Report, error) {
	state, report, err := f.Restore(t.Arrays())
	if err != nil {
		return report, err
	}
	return report, t.resume(state)
}

// resume goes on from a checkpoint whose arrays node 0 has.
func (t *Trainer) resume(state checkpoint.State) error {
	now := t.settings()
	for _, name := range append([]string{"nodes"}, slices.Sorted(maps.Keys(now))...) {
		if was, ok := state.Scalars[name]; !ok || was != now[name] {
			return fmt.Errorf("%w: the checkpoint is of a run with %s %v, not %v", ErrUsage, name, was, now[name])
		}
	}
	if err := t.sampler.restore(state.Random, state.Cursor); err != nil {
		return err
	}
	t.step = state.Step
	t.saver.last = state.Step
	t.spread()
	return nil
}

// settings are what a run must keep to end in the same bits.
func (t *Trainer) settings() map[string]float64 {
	s := map[string]float64{
		"seed": float64(t.config.Seed), "nodes": float64(len(t.nodes)), "samples": float64(t.data.Len()),
		"rate":     t.config.Optimizer.Rate,
		"momentum": 0, "beta1": 0, "beta2": 0, "weight_decay": 0, // 0: the method's own; release 0.1.0 asks for them
	}
	for i, b := range t.config.MicroBatches {
		s[fmt.Sprintf("micro_batch.%d", i)] = float64(b)
	}
	return s
}

func (t *Trainer) state() checkpoint.State {
	return checkpoint.State{Step: t.step, Cursor: t.sampler.cursor, Random: t.sampler.before, Scalars: t.settings()}
}

// begin starts the save of the step that begins, if it is to be saved.
func (s *saver) begin(ctx context.Context) error {
	s.save = nil
	if s.file == nil {
		return nil
	}
	s.mu.Lock()
	s.touched = s.underway > 0
	err, every := s.failed, cmp.Or(s.config.Every, s.interval.Steps())
	s.failed = nil
	s.mu.Unlock()
	step := s.trainer.step + 1
	if err != nil || step < s.last+uint64(every) {
		return err
	}
	s.save, err = s.file.Begin(ctx, step)
	return err
}

// ready waits until the layer of node 0 may be changed.
func (s *saver) ready(layer int) {
	if s.file == nil || len(s.arrays[layer]) == 0 {
		return
	}
	defer s.trainer.record(0, layer, Wait)()
	for _, a := range s.arrays[layer] {
		s.file.Ready(a.Name)
	}
}

// write hands a layer over to the save. Errors are Commit's: it reports a missing array.
func (s *saver) write(layer int) {
	if s.save == nil || len(s.arrays[layer]) == 0 {
		return
	}
	end := s.trainer.record(0, layer, Save)
	for _, a := range s.arrays[layer] {
		if err := s.save.Write(a.Name, a.Data); err != nil {
			s.fail(err)
		}
	}
	if s.trainer.config.Timeline { // Ready takes the file's lock: any goroutine may wait in it
		s.writing.Go(func() {
			for _, a := range s.arrays[layer] {
				s.file.Ready(a.Name)
			}
			end()
		})
	}
}

// commit ends the save of the step that was done, which lasted from begun to now.
func (s *saver) commit(begun time.Time) error {
	if s.file == nil {
		return nil
	}
	now, save := time.Now(), s.save
	if save != nil {
		s.save = nil
		if err := save.Commit(s.trainer.state()); err != nil {
			return err
		}
		s.last = s.trainer.step
	}
	s.mu.Lock()
	s.interval.Step(now.Sub(begun), save != nil, s.touched || save != nil)
	if save != nil {
		s.underway++
	}
	s.mu.Unlock()
	if save == nil {
		return nil
	}
	s.follow(save, s.trainer.step, begun)
	if s.trainer.config.Sequential {
		s.wait()
		return s.unreported()
	}
	return nil
}

// follow waits in the background until the save is durable.
func (s *saver) follow(save *checkpoint.Save, step uint64, begun time.Time) {
	end := s.trainer.recordOf(step, 0, -1, Commit)
	before, done, hurry := s.before, make(chan struct{}), s.hurry
	s.before = done
	s.waiting.Go(func() {
		defer close(done)
		select { // nobody is held up by a save that is spread over the step
		case <-save.Done():
		case <-hurry:
		}
		err := save.Wait(context.Background()) // it ends with the file at the latest
		end()
		s.mu.Lock()
		s.underway--
		s.interval.Saved(time.Since(begun))
		s.mu.Unlock()
		if before != nil {
			<-before
		}
		if err != nil {
			s.fail(err)
		} else if s.config.Durable != nil {
			s.config.Durable(step)
		}
	})
}

// wait waits for all saves to be durable.
func (s *saver) wait() {
	if s.hurry != nil {
		close(s.hurry)
		s.hurry = make(chan struct{})
	}
	s.waiting.Wait()
}

func (s *saver) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = errors.Join(s.failed, err)
}

// unreported returns the errors of earlier saves that no call has returned yet.
func (s *saver) unreported() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.failed
	s.failed = nil
	return err
}

// Save saves the present state, unless the last step was saved, and waits until it is durable. The error wraps
// checkpoint.ErrBusy where no slot is free.
func (t *Trainer) Save(ctx context.Context) error {
	s := &t.saver
	s.wait() // a slot is free then
	if err := s.unreported(); err != nil || s.file == nil || s.last == t.step {
		return err
	}
	save, err := s.file.Begin(ctx, t.step)
	if err != nil {
		return err
	}
	if save == nil { // other ranks have not acknowledged what lies in the slots
		return fmt.Errorf("train: step %d is not saved: %w", t.step, checkpoint.ErrBusy)
	}
	s.save = save
	for layer := range s.arrays {
		s.write(layer)
	}
	s.save = nil
	if err := save.Commit(t.state()); err != nil {
		return err
	}
	s.last = t.step
	s.follow(save, t.step, time.Now())
	s.wait()
	return s.unreported()
}

// Close waits for the saves under way and returns what failed. The file stays open.
func (t *Trainer) Close() error {
	t.saver.wait()
	t.saver.writing.Wait()
	return t.saver.unreported()
}
