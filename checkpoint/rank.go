package checkpoint

import (
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
	sequence := uint64(0)
	for _, s := range f.slots {
		if s.committed && s.record.step == step {
			sequence = max(sequence, s.record.sequence)
		}
	}
	if sequence == 0 {
		return fmt.Errorf("checkpoint %s: step %d is acknowledged and was not committed here: %w", f.path, step, ErrUsage)
	}
	f.global = max(f.global, sequence)
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
	from := uint64(0)
	for _, s := range f.slots {
		if s.committed && s.record.step == step {
			from = max(from, s.record.sequence)
		}
	}
	return f.giveUp(from)
}

// giveUp frees all slots with a sequence above this one. A reader leaves them to the writer.
func (f *File) giveUp(from uint64) error {
	if f.opts.ReadOnly {
		return nil
	}
	for i := range f.slots {
		s := &f.slots[i]
		if !s.committed || s.record.sequence <= from {
			continue
		}
		if err := freeSlot(f.storage, f.head, i); err != nil {
			s.poisoned = true
			return fmt.Errorf("checkpoint %s: %w", f.path, err)
		}
		s.committed = false
	}
	return nil
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
	slices.SortFunc(records, func(a, b record) int { return compare(b.sequence, a.sequence) })
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
	slices.SortStableFunc(order, func(a, b int) int { return compare(uint64(arrays[b].Len()), uint64(arrays[a].Len())) })
	loads, owner := make([]int64, ranks), make([]int, len(arrays))
	for _, i := range order {
		r := 0
		for k := range loads {
			if loads[k] < loads[r] {
				r = k
			}
		}
		owner[i] = r
		loads[r] += arrays[i].Len() + 1 // empty arrays are shared out too
	}
	parts := make([][]Array, ranks)
	for i, a := range arrays {
		parts[owner[i]] = append(parts[owner[i]], a)
	}
	return parts, nil
}
