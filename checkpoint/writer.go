package checkpoint

import (
	"fmt"
	"time"

	"github.com/zeebo/xxh3"
)

// chunk is how much is hashed and written at a time: it stays in the processor's cache in between.
const chunk = 1 << 20

func hash(b []byte) uint64 { return xxh3.Hash(b) }

// copyAll is the copier of Staged: it takes each array into memory of its own as soon as that is free, and hands it
// on.
func (f *File) copyAll(from <-chan *job, to chan<- *job) {
	defer close(to)
	for j := range from {
		if !j.end {
			f.mu.Lock()
			for f.staged[j.array] {
				f.changed.Wait()
			}
			f.staged[j.array] = true
			if f.staging[j.array] == nil {
				f.staging[j.array] = make([]byte, len(j.data))
			}
			into := f.staging[j.array]
			f.mu.Unlock()
			copy(into, j.data)
			j.data = into
			f.mu.Lock()
			f.pending[j.array]--
			f.changed.Broadcast()
			f.mu.Unlock()
		}
		to <- j
	}
}

// writeAll is the one writer. It writes in the order in which it was asked to: so an error of the storage meets the
// save whose bytes it concerns, or a later one, never one that was reported durable. More goroutines are no faster
// (the kernel writes back while the next piece is hashed), and take the processor from the computation.
func (f *File) writeAll(from <-chan *job) {
	for j := range from {
		s := j.save
		if !s.began && (!j.end || j.commit) {
			s.began = true
			f.mu.Lock()
			f.slots[s.slot].committed = false
			clean := f.slots[s.slot].clean
			s.since, s.spread = time.Now(), f.pace.spread()
			f.mu.Unlock()
			if !clean {
				err := freeSlot(f.storage, f.head, s.slot, f.note)
				s.poison = err != nil
				s.fail(err)
				f.cleaned(s.slot, err == nil)
			}
		}
		if !j.end {
			if s.err == nil {
				sum, err := f.writeArray(s, j)
				s.hashes[j.array] = sum
				s.fail(err)
			}
			f.release(j.array)
			continue
		}
		var r record
		if err := s.err; j.commit && err == nil {
			r, err = f.commit(s, j.state)
			// What was not flushed may be lost although the kernel calls it clean: never try again there.
			s.poison = err != nil
			s.fail(err)
		}
		f.settle(j, r)
	}
}

// commit completes a save, and leaves the note of it.
func (f *File) commit(s *Save, state State) (record, error) {
	next := f.nextVictim(s.slot)
	f.cleaned(s.slot, false)
	if err := writeFull(f.storage, f.shared, f.head.slot(s.slot)+f.from); err != nil {
		return record{}, err
	}
	manifest := encodeManifest(f.head.id, s.sequence, s.hashes, state, f.note.sequence > 0)
	r, err := commitSlot(f.storage, f.head, record{slot: s.slot, sequence: s.sequence, step: s.step}, manifest, next, f.note)
	if err != nil {
		return record{}, err
	}
	if next >= 0 {
		f.cleaned(next, true)
	}
	f.mu.Lock()
	n := f.note
	n.generation, n.sequence, n.step = n.generation+1, s.sequence, s.step
	if f.global.sequence > n.global {
		n.global, n.globalStep = f.global.sequence, f.global.step
	}
	f.mu.Unlock()
	f.note = n
	return r, writeNotes(f.storage, f.head, n)
}

// cleaned notes whether a slot's free marker is durable.
func (f *File) cleaned(slot int, durable bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slots[slot].clean = durable
}

// nextVictim is the slot to free together with this commit, -1 for none: that of a save that was begun already, else the
// one that the next save would take.
func (f *File) nextVictim(committing int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := -1
	for i, s := range f.slots {
		if i != committing && s.busy && !s.clean {
			next = i
		}
	}
	if next < 0 {
		next = choose(f.slots, f.protected())
	}
	if next < 0 || f.slots[next].clean {
		return -1
	}
	f.slots[next].committed = false
	return next
}

// fail notes the first error.
func (s *Save) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// writeArray writes an array and hashes exactly the bytes that it writes.
func (f *File) writeArray(s *Save, j *job) (uint64, error) {
	if at := f.head.offsets[j.array] - f.from; at >= 0 { // commit writes them together
		f.pause(s, copy(f.shared[at:], j.data))
		return hash(f.shared[at:][:len(j.data)]), nil
	}
	var sum xxh3.Hasher
	at := f.head.slot(s.slot) + f.head.offsets[j.array]
	for b := j.data; len(b) > 0; {
		n := min(chunk, len(b))
		_, _ = sum.Write(b[:n]) // never fails
		if err := writeBlocks(f.storage, b[:n], at); err != nil {
			return 0, fmt.Errorf("array %q: %w", f.head.arrays[j.array].Name, err)
		}
		b, at = b[n:], at+int64(n)
		f.pause(s, n)
	}
	return sum.Sum64(), nil
}

// writeBlocks writes zeros up to the end of the last block, too: whole blocks go past the page cache together.
func writeBlocks(s Storage, b []byte, at int64) error {
	whole := len(b) / block * block
	if whole > 0 {
		if err := writeFull(s, b[:whole], at); err != nil {
			return err
		}
	}
	if whole == len(b) {
		return nil
	}
	var last [block]byte
	copy(last[:], b[whole:])
	return writeFull(s, last[:], at+int64(whole))
}

// release wakes those who wait for an array to be written.
func (f *File) release(array int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.staged != nil {
		f.staged[array] = false
	} else {
		f.pending[array]--
	}
	f.changed.Broadcast()
}

// settle makes the outcome of a save known.
func (f *File) settle(j *job, r record) {
	s := j.save
	if s.err != nil {
		s.err = fmt.Errorf("checkpoint %s of step %d: %w", f.path, s.step, s.err)
	}
	f.mu.Lock()
	slot := &f.slots[s.slot]
	slot.busy, slot.poisoned = false, s.poison
	switch {
	case s.err != nil:
		if f.failure == nil {
			f.failure = s.err
		}
	case j.commit:
		slot.record, slot.committed = r, true
		f.stats.Committed++
	}
	f.changed.Broadcast()
	f.mu.Unlock()
	if s.settled != nil && j.commit {
		s.settled(s.err)
	}
	close(s.done)
}
