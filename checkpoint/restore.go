package checkpoint

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"
)

// SlotReport describes the contents of a slot.
type SlotReport struct {
	Slot     int    `json:"slot"`
	Sequence uint64 `json:"sequence"` // 0: no checkpoint
	Step     uint64 `json:"step"`
	// Verified: every byte was read and matches. Not tried where a newer slot was restored.
	Verified bool `json:"verified"`
	// Fault says what does not match, "" where nothing was found.
	Fault string `json:"fault,omitempty"`
	// Where Verified: the position in the data, and a checksum of all that two runs have alike: arrays, cursor, scalars, generators.
	Cursor uint64 `json:"cursor,omitempty"`
	Digest string `json:"digest,omitempty"`
}

// Report says what Restore or Verify found.
type Report struct {
	Slots    []SlotReport `json:"slots"`
	Restored int          `json:"restored"` // slot, -1 for none
	// Damage beside the slots': copies of superblock and table, pages of records, a save that was reported and is gone.
	Damage []string `json:"damage,omitempty"`
}

// Restore fills the arrays from the newest checkpoint that verifies, and returns its state and a report of what was
// found. They must be all of the file's (ErrSchema). ErrEmpty: nothing was ever committed, the arrays are untouched.
// ErrCorrupt: there are checkpoints and none verifies; the contents of the arrays are then undefined.
func (f *File) Restore(arrays []Array) (State, Report, error) {
	if f.head.ranks > 1 {
		return State{}, Report{Restored: -1}, fmt.Errorf("restore checkpoint %s: it holds the part of rank %d of %d; "+
			"open all parts with OpenSet, or agree on a step that every rank has verified and call RestoreStep: %w", f.path, f.head.rank, f.head.ranks, ErrUsage)
	}
	return f.restore(arrays, nil)
}

// RestoreStep is Restore of the checkpoint of one step, and discards all newer ones: their slots are free afterwards.
// Processes that checkpoint together call it with the newest step that all of them have verified. ErrCorrupt: that
// step is not there, or does not verify; nothing is discarded then.
func (f *File) RestoreStep(arrays []Array, step uint64) (State, Report, error) {
	state, report, err := f.restore(arrays, &step)
	if err != nil {
		return state, report, err
	}
	if err := f.giveUpAfter(step); err != nil {
		return State{}, report, err
	}
	return state, report, f.Acknowledge(step)
}

func (f *File) restore(arrays []Array, step *uint64) (State, Report, error) {
	into, err := f.destinations(arrays)
	if err != nil {
		return State{}, Report{Restored: -1}, fmt.Errorf("restore checkpoint %s: %w", f.path, err)
	}
	state, report, err := f.read(into, step)
	if err != nil {
		return State{}, report, fmt.Errorf("restore checkpoint %s: %w", f.path, err)
	}
	return state, report, nil
}

// Slots reports what the commit records say, without reading the arrays.
func (f *File) Slots() []SlotReport {
	var out []SlotReport
	for i, p := range f.readPages().pages {
		out = append(out, p.report(i))
	}
	return out
}

// Sums gives the newest checkpoint of a step without its arrays: the checksum of each, by name, and the state.
func (f *File) Sums(step uint64) (map[string]uint64, State, error) {
	var newest record
	for _, p := range f.readPages().pages {
		if p.record.step == step && p.record.sequence > newest.sequence {
			newest = p.record
		}
	}
	if newest.sequence == 0 {
		return nil, State{}, fmt.Errorf("%s: step %d: %w", f.path, step, ErrEmpty)
	}
	hashes, state, err := f.readManifest(newest)
	if err != nil {
		return nil, State{}, fmt.Errorf("%s: step %d: %w", f.path, step, err)
	}
	out := map[string]uint64{}
	for i, a := range f.head.arrays {
		out[a.Name] = hashes[i]
	}
	return out, state, nil
}

func (p slotPage) report(slot int) SlotReport {
	s := SlotReport{Slot: slot, Sequence: p.record.sequence, Step: p.record.step}
	if p.err != nil {
		s.Fault = p.err.Error()
	}
	return s
}

// Verify reads every slot. Damage is in the report, not an error.
func (f *File) Verify() (Report, error) {
	_, report, err := f.read(nil, nil)
	if errors.Is(err, ErrEmpty) || errors.Is(err, ErrCorrupt) {
		err = nil
	}
	if err != nil {
		return report, fmt.Errorf("verify checkpoint %s: %w", f.path, err)
	}
	return report, nil
}

// destinations puts the arrays into file order.
func (f *File) destinations(arrays []Array) ([][]byte, error) {
	if err := sameArrays(arrays, f.head.arrays); err != nil {
		return nil, err
	}
	into := make([][]byte, len(arrays))
	for _, a := range arrays {
		if int64(len(a.Data)) != a.Len() {
			return nil, fmt.Errorf("array %q: Data has %d bytes, must be %d: %w", a.Name, len(a.Data), a.Len(), ErrUsage)
		}
		into[f.index[a.Name]] = a.Data
	}
	return into, nil
}

// read goes through the slots from the newest on. With somewhere to put the arrays it stops at the first that
// verifies; step, if not nil, is the only one to look at.
func (f *File) read(into [][]byte, step *uint64) (State, Report, error) {
	one := into != nil
	report := Report{Restored: -1}
	if err := f.idle(); err != nil {
		return State{}, report, err
	}
	found := make([]slotState, len(f.slots))
	order := make([]int, len(f.slots))
	pages := f.readPages()
	report.Damage = append(slices.Clone(f.damage), pages.damage()...)
	for i, p := range pages.pages {
		found[i], order[i] = slotState{record: p.record, committed: p.committed}, i
		report.Slots = append(report.Slots, p.report(i))
	}
	slices.SortStableFunc(order, func(a, b int) int { // newest first
		return cmp.Compare(found[b].record.sequence, found[a].record.sequence)
	})
	var state State
	progress := f.progress(found, one)
	for _, i := range order {
		r := found[i].record
		if !found[i].committed || step != nil && r.step != *step || one && report.Restored >= 0 {
			continue
		}
		s, digest, err := f.readSlot(r, into, progress)
		if err != nil {
			report.Slots[i].Fault = err.Error()
			found[i].committed = false
			continue
		}
		report.Slots[i].Verified, report.Slots[i].Cursor, report.Slots[i].Digest = true, s.Cursor, digest
		if report.Restored < 0 {
			state = s
			if one {
				report.Restored = i
			}
		}
	}
	f.learn(found)
	err := outcome(report)
	if errors.Is(err, ErrEmpty) && step == nil {
		if fault := f.empty(pages); fault != nil {
			err = fmt.Errorf("no slot verifies: %w", fault)
		}
	}
	if err == nil || step == nil && errors.Is(err, ErrEmpty) {
		f.mu.Lock()
		f.known = true
		f.mu.Unlock()
	}
	if step != nil && errors.Is(err, ErrEmpty) {
		err = fmt.Errorf("no checkpoint of step %d: %w", *step, ErrCorrupt)
	}
	return state, report, err
}

// outcome is the error of a report: none where something verified.
func outcome(r Report) error {
	var faults []error
	for _, s := range r.Slots {
		if s.Verified {
			return nil
		}
		if s.Fault != "" {
			faults = append(faults, fmt.Errorf("slot %d: %s", s.Slot, s.Fault))
		}
	}
	if len(faults) == 0 {
		return ErrEmpty
	}
	return fmt.Errorf("no slot verifies: %w: %w", errors.Join(faults...), ErrCorrupt)
}

// idle refuses to read while a save may be changing slots.
func (f *File) idle() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return fmt.Errorf("the file is closed: %w", ErrUsage)
	}
	for i, s := range f.slots {
		if s.busy {
			return fmt.Errorf("slot %d is being written; wait for the save first: %w", i, ErrUsage)
		}
	}
	return nil
}

// learn records what was found: a slot that does not verify may be reused.
func (f *File) learn(found []slotState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range found {
		found[i].poisoned = f.slots[i].poisoned // and no marker is taken to be durable
		f.slots[i] = found[i]
	}
}

// readSlot reads and verifies a checkpoint, into memory of its own where into is nil.
func (f *File) readSlot(r record, into [][]byte, progress func(int)) (s State, digest string, err error) {
	hashes, s, err := f.readManifest(r)
	if err != nil {
		return State{}, "", err
	}
	if err := f.readArrays(f.head.slot(r.slot), hashes, into, progress); err != nil {
		return State{}, "", err
	}
	alike := s
	alike.Nonce = 0
	return s, fmt.Sprintf("%016x", hash(encodeManifest([16]byte{}, 0, hashes, alike, false))), f.still(r)
}

func (f *File) readManifest(r record) (hashes []uint64, state State, err error) {
	manifest := make([]byte, r.manifestLen)
	if _, err := f.storage.ReadAt(manifest, f.head.slot(r.slot)+f.head.manifestAt); err != nil {
		return nil, State{}, fmt.Errorf("manifest: %w", err)
	}
	if hash(manifest) != r.manifestSum {
		return nil, State{}, fmt.Errorf("manifest: checksum differs: %w", ErrCorrupt)
	}
	return parseManifest(manifest, f.head, r)
}

// Two read at a time: while one hashes, the other keeps the disk busy; more disturb its reading ahead.
const (
	readers  = 2
	readSize = 256 << 10
)

// readArrays reads and verifies all arrays of a slot, several at a time, into memory of its own where into is nil.
func (f *File) readArrays(start int64, hashes []uint64, into [][]byte, progress func(int)) error {
	var next atomic.Int64
	var failed atomic.Bool
	var all sync.WaitGroup
	errs := make([]error, len(hashes))
	for range min(readers, len(hashes)) {
		all.Go(func() {
			var scratch []byte
			for i := int(next.Add(1)) - 1; i < len(hashes) && !failed.Load(); i = int(next.Add(1)) - 1 {
				var to []byte
				if into != nil {
					to = into[i]
				}
				if scratch, errs[i] = f.readArray(i, start+f.head.offsets[i], hashes[i], to, scratch, progress); errs[i] != nil {
					failed.Store(true)
				}
			}
		})
	}
	all.Wait()
	return cmp.Or(errs...) // the first of the file, so that the same damage gives the same error
}

// readArray returns its scratch memory for the next one.
func (f *File) readArray(i int, at int64, want uint64, to, scratch []byte, progress func(int)) ([]byte, error) {
	var sum xxh3.Hasher
	for length := f.head.arrays[i].Len(); length > 0; {
		n := min(readSize, length)
		var b []byte
		if to != nil {
			b, to = to[:n], to[n:]
		} else {
			scratch = slices.Grow(scratch[:0], int(n))
			b = scratch[:n]
		}
		if _, err := f.storage.ReadAt(b, at); err != nil {
			return scratch, fmt.Errorf("array %q: %w", f.head.arrays[i].Name, err)
		}
		_, _ = sum.Write(b) // never fails
		progress(int(n))
		at, length = at+n, length-n
	}
	if sum.Sum64() != want {
		return scratch, fmt.Errorf("array %q: checksum differs: %w", f.head.arrays[i].Name, ErrCorrupt)
	}
	return scratch, nil
}

// still is an error if a slot's record is not this one any more. Another process may have reused the slot while it was read: then what was read is of two
// checkpoints only if all hashes lied, but its record is gone.
func (f *File) still(r record) error {
	now := make([]byte, wordAt+8)
	if _, err := f.storage.ReadAt(now, f.head.record(r.slot)); err != nil {
		return fmt.Errorf("commit record: %w", err)
	}
	body, word := r.encode(f.head.id)
	if !bytes.Equal(now, le.AppendUint64(body, word)) {
		return fmt.Errorf("the slot was reused while it was read: %w", ErrCorrupt)
	}
	return nil
}

// progress adds up what was read for Options.Progress.
func (f *File) progress(found []slotState, one bool) func(int) {
	if f.opts.Progress == nil {
		return func(int) {}
	}
	total, done := int64(0), int64(0)
	for _, s := range found {
		if s.committed && (total == 0 || !one) {
			total += f.head.bytes()
		}
	}
	var mu sync.Mutex
	return func(n int) {
		mu.Lock()
		defer mu.Unlock()
		done = min(done+int64(n), total)
		f.opts.Progress(done, total)
	}
}
