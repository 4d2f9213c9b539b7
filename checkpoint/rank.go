package checkpoint

import (
	"cmp"
	"fmt"
	"slices"
)

// Several ranks checkpoint together: each writes its own file, and a checkpoint counts once all ranks have committed
// the same step. Until then no rank reuses the newest one that counts. Set does this within one process; processes on
// several machines do it with their own collective operations:
//
//	save.Commit(state); err := save.Wait(ctx); all ranks agree that err was nil; f.Acknowledge(step)
//	f.Verify(); all ranks agree on the newest step that all verified; f.RestoreStep(arrays, step)

// Acknowledge says that all ranks have committed this step: older checkpoints may be reused from now on.
func (f *File) Acknowledge(step uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	newest := f.recordOf(step)
	if newest.sequence == 0 {
		return fmt.Errorf("checkpoint %s: step %d is acknowledged and was not committed here: %w", f.path, step, ErrUsage)
	}
	if newest.sequence > f.global.sequence {
		f.global = newest
	}
	f.changed.Broadcast()
	return nil
}

// giveUpAfter frees the slots of all checkpoints newer than this step's: they do not belong to the resumed run.
func (f *File) giveUpAfter(step uint64) error {
	if err := f.idle(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.giveUp(f.recordOf(step))
}

// recordOf is the newest record of a step that counts.
func (f *File) recordOf(step uint64) (newest record) {
	for _, s := range f.slots {
		if s.committed && s.record.step == step && s.record.sequence > newest.sequence {
			newest = s.record
		}
	}
	return newest
}

// giveUp frees all slots with a sequence above this record's. A reader leaves them to the writer. First the note says so:
// a slot that is free and was not given up is damage.
func (f *File) giveUp(from record) error {
	if f.opts.ReadOnly {
		return nil
	}
	if f.note.sequence > from.sequence {
		n := note{generation: f.note.generation + 1, sequence: from.sequence, step: from.step}
		if f.note.global <= from.sequence {
			n.global, n.globalStep = f.note.global, f.note.globalStep
		}
		// Of two copies of the note the older is whole and durable, before the other is touched.
		for _, do := range []func() error{f.storage.Flush, func() error { return writeNotes(f.storage, f.head, n) }, f.storage.Flush} {
			if err := do(); err != nil {
				return fmt.Errorf("checkpoint %s: give up what came after step %d: %w", f.path, from.step, err)
			}
		}
		f.note = n
	}
	for i := range f.slots {
		s := &f.slots[i]
		if !s.committed || s.record.sequence <= from.sequence {
			continue
		}
		if err := freeSlot(f.storage, f.head, i, f.note); err != nil {
			s.poisoned = true
			return fmt.Errorf("checkpoint %s: %w", f.path, err)
		}
		s.committed, s.clean = false, true
	}
	return nil
}

// giveUpAll frees all slots.
func (f *File) giveUpAll() error {
	if err := f.idle(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.giveUp(record{})
}

// committed are the steps whose records count, newest first.
func (f *File) committed() []uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	var records []record
	for _, s := range f.slots {
		if s.committed {
			records = append(records, s.record)
		}
	}
	slices.SortFunc(records, func(a, b record) int { return cmp.Compare(b.sequence, a.sequence) })
	var steps []uint64
	for _, r := range records {
		steps = append(steps, r.step)
	}
	return steps
}

// Stripe shares arrays out among ranks: each array, from the largest on, to the rank with the fewest bytes so far. All
// ranks find the same. It is an error if there are fewer arrays than ranks.
func Stripe(arrays []Array, ranks int) ([][]Array, error) {
	if ranks < 1 || ranks > len(arrays) {
		return nil, fmt.Errorf("%d ranks for %d arrays: %w", ranks, len(arrays), ErrUsage)
	}
	if err := check(arrays); err != nil {
		return nil, err
	}
	order := make([]int, len(arrays))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(uint64(arrays[b].Len()), uint64(arrays[a].Len())) })
	loads, owner := make([]int64, ranks), make([]int, len(arrays))
	for _, i := range order {
		r := slices.Index(loads, slices.Min(loads))
		owner[i] = r
		loads[r] += arrays[i].Len() + 1 // empty arrays are shared out too
	}
	parts := make([][]Array, ranks)
	for i, a := range arrays {
		parts[owner[i]] = append(parts[owner[i]], a)
	}
	return parts, nil
}
