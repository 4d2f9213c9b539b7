package checkpoint

import (
	"context"
	"fmt"
	"time"
)

// Save is one checkpoint in the making. Its methods do nothing on a nil Save, which Begin returns for a step that is
// skipped.
type Save struct {
	file     *File
	slot     int
	sequence uint64
	step     uint64
	written  []bool
	hashes   []uint64
	began    bool      // the slot was freed; the writer's
	since    time.Time // when it began to be written, how long it may take, bytes written; the writer's
	spread   time.Duration
	moved    int64
	poison   bool  // the slot cannot be trusted any more; the writer's
	err      error // the first; the writer's until done is closed
	done     chan struct{}
	settled  func(error) // gets the outcome, before done is closed; may be nil
}

// job is what is queued: an array of a save, or the end of it.
type job struct {
	save  *Save
	array int
	data  []byte
	end   bool
	// Of the end:
	commit bool // else the save is given up
	state  State
	since  time.Time
}

// Begin starts the checkpoint of a step. Where no slot is free it does as Options.WhenFull says; with Skip it returns
// a nil Save and no error. It returns any unreported error of an earlier save.
func (f *File) Begin(ctx context.Context, step uint64) (*Save, error) {
	s, err := f.begin(ctx, step)
	if err != nil {
		return nil, fmt.Errorf("checkpoint %s of step %d: %w", f.path, step, err)
	}
	return s, nil
}

func (f *File) begin(ctx context.Context, step uint64) (*Save, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch err := f.failure; {
	case f.closed || f.opts.ReadOnly:
		return nil, fmt.Errorf("the file is closed or open for reading only: %w", ErrUsage)
	case err != nil:
		f.failure = nil
		return nil, fmt.Errorf("an earlier save failed: %w", err)
	case f.open != nil:
		return nil, fmt.Errorf("the save of step %d was neither committed nor aborted: %w", f.open.step, ErrUsage)
	case !f.known:
		return nil, ErrNotRestored
	}
	slot, err := f.take(ctx)
	if slot < 0 {
		return nil, err
	}
	n := len(f.head.arrays)
	s := &Save{file: f, slot: slot, sequence: f.next, step: step, written: make([]bool, n), hashes: make([]uint64, n), done: make(chan struct{})}
	f.next++
	f.open = s
	f.slots[slot].busy = true
	return s, nil
}

// take finds a slot to write to, -1 for none.
func (f *File) take(ctx context.Context) (int, error) {
	begun := time.Now()
	f.pace.asked(begun)
	defer func() { f.stats.Waited += time.Since(begun) }()
	stop := context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.changed.Broadcast()
	})
	defer stop()
	for {
		if ctx.Err() != nil {
			return -1, ctx.Err()
		}
		good := 0
		for _, s := range f.slots {
			if !s.poisoned {
				good++
			}
		}
		if good < 2 {
			return -1, fmt.Errorf("%d of %d slots failed to reach the storage; move to a file on a sound disk: %w", len(f.slots)-good, len(f.slots), ErrPoisoned)
		}
		if slot := choose(f.slots, f.protected()); slot >= 0 {
			return slot, nil
		}
		switch f.opts.WhenFull {
		case Skip:
			f.stats.Skipped++
			return -1, nil
		case Fail:
			return -1, ErrBusy
		}
		end := f.pace.wait()
		f.changed.Wait()
		end()
	}
}

// protected is the sequence from which on slots may not be reused: the newest committed one, or with several ranks
// the newest that all of them have.
func (f *File) protected() uint64 {
	if f.head.ranks > 1 {
		return f.global.sequence
	}
	newest := uint64(0)
	for _, s := range f.slots {
		if s.committed {
			newest = max(newest, s.record.sequence)
		}
	}
	return newest
}

// choose takes a free slot, else the oldest committed one before the protected sequence, else -1.
func choose(slots []slotState, protected uint64) int {
	best := -1
	for i, s := range slots {
		switch {
		case s.busy, s.poisoned, s.committed && s.record.sequence >= protected:
		case !s.committed:
			return i
		case best < 0, s.record.sequence < slots[best].record.sequence:
			best = i
		}
	}
	return best
}

// Ready waits until the array may be changed: every Write of it has read its data.
func (f *File) Ready(name string) {
	i, ok := f.index[name]
	if !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	begun := time.Now()
	f.pace.asked(begun)
	if f.pending[i] == 0 {
		return
	}
	defer f.pace.wait()()
	for f.pending[i] > 0 {
		f.changed.Wait()
	}
	f.stats.Waited += time.Since(begun)
}

// Write saves an array and returns at once: data must stay as it is until Ready(name) returns. Every array of the
// file is to be written before Commit, those that did not change since the last checkpoint too: the slot holds older
// bytes. It is an error if the file has no such array (ErrSchema), or data's length is not the array's.
func (s *Save) Write(name string, data []byte) error {
	if s == nil {
		return nil
	}
	f := s.file
	i, ok := f.index[name]
	switch {
	case !ok:
		return fmt.Errorf("checkpoint %s: array %q is not in the file: %w", f.path, name, ErrSchema)
	case int64(len(data)) != f.head.arrays[i].Len():
		return fmt.Errorf("checkpoint %s: array %q has %d bytes, in the file %d: %w", f.path, name, len(data), f.head.arrays[i].Len(), ErrSchema)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.open != s:
		return fmt.Errorf("checkpoint %s: Write after Commit or Abort: %w", f.path, ErrUsage)
	case s.written[i]:
		return fmt.Errorf("checkpoint %s: array %q was written already: %w", f.path, name, ErrUsage)
	}
	s.written[i] = true
	f.pending[i]++
	f.queue <- &job{save: s, array: i, data: data} // it has room for all that can be under way
	return nil
}

// Commit completes the checkpoint in the background and returns at once. It is an error if an array was not
// written (ErrIncomplete), or the file has no room for the state; the save is then given up. state.Step is set to
// Begin's.
func (s *Save) Commit(state State) error {
	if s == nil {
		return nil
	}
	f := s.file
	f.mu.Lock()
	ended := f.open != s
	f.mu.Unlock()
	if ended {
		return s.endedTwice()
	}
	state.Step = s.step
	err := f.head.checkState(state)
	for i, written := range s.written {
		if !written && err == nil {
			err = fmt.Errorf("array %q: %w", f.head.arrays[i].Name, ErrIncomplete)
		}
	}
	if err != nil {
		s.Abort()
		return fmt.Errorf("checkpoint %s of step %d: %w", f.path, s.step, err)
	}
	state.Random = append([]byte(nil), state.Random...)
	return s.finish(&job{save: s, end: true, commit: true, state: state, since: time.Now()})
}

// Abort discards the save. Its slot is free again.
func (s *Save) Abort() {
	if s != nil {
		_ = s.finish(&job{save: s, end: true}) // the second of two ends is nothing
	}
}

func (s *Save) finish(end *job) error {
	f := s.file
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open != s {
		return s.endedTwice()
	}
	f.open = nil
	if end.commit {
		f.pace.left = end.since
	}
	f.queue <- end
	return nil
}

func (s *Save) endedTwice() error {
	return fmt.Errorf("checkpoint %s: the save of step %d was committed or aborted before: %w", s.file.path, s.step, ErrUsage)
}

// Done is closed once the save has committed, or failed; then Wait returns at once. Unlike Wait, it does not hurry the save.
func (s *Save) Done() <-chan struct{} {
	if s == nil {
		done := make(chan struct{})
		close(done)
		return done
	}
	return s.done
}

// Wait waits until the save has committed, so that the checkpoint is durable, and returns its error.
func (s *Save) Wait(ctx context.Context) error {
	if s == nil {
		return nil
	}
	f := s.file
	if err := f.hurried(ctx, s.done); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.err != nil && f.failure == s.err { //nolint:errorlint // the very same error, returned here
		f.failure = nil
	}
	return s.err
}
