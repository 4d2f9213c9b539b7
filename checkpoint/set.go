package checkpoint

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

// Set is the files of several ranks, striped: each holds its share of the arrays, all are written at the same time.
// It is used like a File.
type Set struct {
	files []*File
	rank  map[string]int // of an array
	fresh bool           // no checkpoint of all ranks was ever made: what single ranks have is given up by the first Begin
}

// SetSave is one checkpoint of a Set in the making; nil does nothing.
type SetSave struct {
	set   *Set
	step  uint64
	saves []*Save
}

// CreateSet makes one file per path, for the arrays striped over them. On an error no file is left.
func CreateSet(paths []string, arrays []Array, o Options) (*Set, error) {
	creators := make([]func(part []Array, o Options) (*File, error), len(paths))
	for i, p := range paths {
		creators[i] = func(part []Array, o Options) (*File, error) { return Create(p, part, o) }
	}
	return createSet(creators, arrays, o)
}

func createSet(creators []func([]Array, Options) (*File, error), arrays []Array, o Options) (*Set, error) {
	parts, err := Stripe(arrays, len(creators))
	if err != nil {
		return nil, err
	}
	_, _ = rand.Read(o.ID[:]) // never fails
	o.Ranks = len(creators)
	var files []*File
	for i, part := range parts {
		o.Rank = i
		f, err := creators[i](part, o)
		if err != nil {
			return nil, errors.Join(err, closeAll(files, true))
		}
		files = append(files, f)
	}
	return newSet(files, arrays)
}

// OpenSet opens the files of all ranks, in any order.
func OpenSet(paths []string, arrays []Array, o Options) (*Set, error) {
	var files []*File
	for _, p := range paths {
		f, err := Open(p, nil, o)
		if err != nil {
			return nil, errors.Join(err, closeAll(files, false))
		}
		files = append(files, f)
	}
	s, err := newSet(files, arrays)
	if err != nil {
		return nil, errors.Join(err, closeAll(files, false))
	}
	return s, nil
}

// newSet holds files together that belong together.
func newSet(files []*File, arrays []Array) (*Set, error) {
	s := &Set{files: files, rank: map[string]int{}}
	var all []Array
	for i, f := range files {
		switch h, first := f.head, files[0].head; {
		case h.id != first.id:
			return nil, fmt.Errorf("checkpoints %s and %s are not of one set: %w", files[0].path, f.path, ErrSchema)
		case h.ranks != len(files):
			return nil, &incomplete{fmt.Sprintf("checkpoint %s is of a set of %d files, not of %d", f.path, h.ranks, len(files))}
		case slices.ContainsFunc(files[:i], func(g *File) bool { return g.head.rank == h.rank }):
			return nil, fmt.Errorf("checkpoint %s: there is another file of rank %d: %w", f.path, h.rank, ErrSchema)
		}
		for _, a := range f.head.arrays {
			s.rank[a.Name] = i
		}
		all = append(all, f.head.arrays...)
	}
	if len(arrays) > 0 {
		if err := sameArrays(arrays, all); err != nil {
			return nil, fmt.Errorf("checkpoint set %s...: %w", files[0].path, err)
		}
	}
	return s, nil
}

// incomplete is an ErrSchema whose arrays do not differ: files are missing, or too many.
type incomplete struct{ text string }

func (i *incomplete) Error() string { return i.text }
func (i *incomplete) Unwrap() error { return ErrSchema }

// parts sorts a program's arrays by rank.
func (s *Set) parts(arrays []Array) ([][]Array, error) {
	parts := make([][]Array, len(s.files))
	for _, a := range arrays {
		i, ok := s.rank[a.Name]
		if !ok {
			return nil, fmt.Errorf("array %q is in no file of the set: %w", a.Name, ErrSchema)
		}
		parts[i] = append(parts[i], a)
	}
	return parts, nil
}

// Restore fills the arrays from the newest step that verifies in all files, and discards what single ranks have
// beyond it. The errors are those of File.Restore. Reports are those of the files.
func (s *Set) Restore(arrays []Array) (State, []Report, error) {
	parts, err := s.parts(arrays)
	if err != nil {
		return State{}, nil, err
	}
	reports := make([]Report, len(s.files))
	var faults []error
	none, global := false, "" // none: a rank that provably never committed, so there never was a checkpoint of all
	for i, f := range s.files {
		if err := f.idle(); err != nil {
			return State{}, reports, err
		}
		if into, err := f.destinations(parts[i]); err != nil || into == nil {
			return State{}, reports, fmt.Errorf("checkpoint %s: %w", f.path, err)
		}
		pages := f.readPages()
		for slot, p := range pages.pages {
			if p.err != nil {
				faults = append(faults, fmt.Errorf("%s: slot %d: %w", f.path, slot, p.err))
			}
		}
		for _, d := range pages.damage() {
			faults = append(faults, fmt.Errorf("%s: %s", f.path, d))
		}
		if pages.note.global > 0 {
			global = fmt.Sprintf("%s says that all ranks had step %d", f.path, pages.note.globalStep)
		}
		if len(f.committed()) == 0 {
			if err := f.empty(pages); err == nil {
				none = true
			} else {
				faults = append(faults, fmt.Errorf("%s: %w", f.path, err))
			}
		}
	}
	for _, step := range s.common() {
		tried := make([]Report, len(s.files))
		state, err := s.restoreStep(parts, step, tried)
		merge(reports, tried)
		if err == nil {
			return state, reports, s.settle(step)
		}
		faults = append(faults, fmt.Errorf("step %d: %w", step, err))
	}
	if global != "" {
		faults = append(faults, errors.New(global))
	}
	if !none || global != "" {
		return State{}, reports, fmt.Errorf("no step verifies on all %d ranks: %w: %w", len(s.files), errors.Join(faults...), ErrCorrupt)
	}
	s.fresh = true
	for _, f := range s.files {
		f.mu.Lock()
		f.known = true
		f.mu.Unlock()
	}
	return State{}, reports, fmt.Errorf("restore checkpoint %s: %w", s.files[0].path, ErrEmpty)
}

// RestoreStep is File.RestoreStep, on all ranks.
func (s *Set) RestoreStep(arrays []Array, step uint64) (State, error) {
	parts, err := s.parts(arrays)
	if err != nil {
		return State{}, err
	}
	for _, f := range s.files {
		if !slices.Contains(f.committed(), step) {
			return State{}, fmt.Errorf("checkpoint %s: step %d is not there; all ranks hold %s: %w", f.path, step, list(s.common()), ErrUsage)
		}
	}
	state, err := s.restoreStep(parts, step, make([]Report, len(s.files)))
	if err != nil {
		return State{}, fmt.Errorf("step %d: %w: %w", step, err, ErrCorrupt)
	}
	return state, s.settle(step)
}

// merge adds what was found of one more step; what was found damaged before it stays so.
func merge(reports, tried []Report) {
	for i := range tried {
		for k := range tried[i].Slots {
			if k < len(reports[i].Slots) && tried[i].Slots[k].Fault == "" {
				tried[i].Slots[k].Fault = reports[i].Slots[k].Fault
			}
		}
		if tried[i].Slots != nil { // else another rank failed first
			reports[i] = tried[i]
		}
	}
}

// common are the steps that all ranks have committed, newest first.
func (s *Set) common() []uint64 {
	steps := s.files[0].committed()
	for _, f := range s.files[1:] {
		theirs := f.committed()
		steps = slices.DeleteFunc(steps, func(step uint64) bool { return !slices.Contains(theirs, step) })
	}
	return steps
}

func list(steps []uint64) string {
	if len(steps) == 0 {
		return "none"
	}
	var words []string
	for _, s := range steps {
		words = append(words, fmt.Sprint(s))
	}
	return strings.Join(words, ", ")
}

func (s *Set) restoreStep(parts [][]Array, step uint64, reports []Report) (State, error) {
	var state State
	for i, f := range s.files {
		one, report, err := f.restore(parts[i], &step)
		reports[i] = report
		if err == nil && i > 0 && one.Nonce != state.Nonce {
			err = fmt.Errorf("%s and %s hold different saves of it: %w", s.files[0].path, f.path, ErrCorrupt)
		}
		if err != nil {
			return State{}, err
		}
		state = one
	}
	return state, nil
}

// settle makes a restored step the newest one on all ranks.
func (s *Set) settle(step uint64) error {
	for _, f := range s.files {
		if err := errors.Join(f.giveUpAfter(step), f.Acknowledge(step)); err != nil {
			return err
		}
	}
	return nil
}

// Begin is File.Begin for all ranks: a step is saved by all of them or skipped by all of them.
func (s *Set) Begin(ctx context.Context, step uint64) (*SetSave, error) {
	if s.fresh {
		for _, f := range s.files {
			if err := f.giveUpAll(); err != nil {
				return nil, err
			}
		}
		s.fresh = false
	}
	all := &SetSave{set: s, step: step}
	var missing sync.Mutex
	left, failed := len(s.files), false
	for _, f := range s.files {
		save, err := f.Begin(ctx, step)
		if save == nil {
			all.Abort()
			return nil, err
		}
		save.settled = func(err error) {
			missing.Lock()
			left--
			failed = failed || err != nil
			good := left == 0 && !failed
			missing.Unlock()
			if good {
				for _, f := range s.files {
					_ = f.Acknowledge(step) // it was committed on all
				}
			}
		}
		all.saves = append(all.saves, save)
	}
	return all, nil
}

// Write is Save.Write, to the array's rank.
func (s *SetSave) Write(name string, data []byte) error {
	if s == nil {
		return nil
	}
	i, ok := s.set.rank[name]
	if !ok {
		return fmt.Errorf("array %q is in no file of the set: %w", name, ErrSchema)
	}
	return s.saves[i].Write(name, data)
}

// Commit is Save.Commit of every rank. The checkpoint counts once all of them have committed.
func (s *SetSave) Commit(state State) error {
	if s == nil {
		return nil
	}
	var nonce [4]byte
	_, _ = rand.Read(nonce[:])
	state.Nonce = le.Uint32(nonce[:]) >> 1
	var errs []error
	for _, save := range s.saves {
		errs = append(errs, save.Commit(state))
	}
	return errors.Join(errs...)
}

// Abort is Save.Abort of every rank.
func (s *SetSave) Abort() {
	if s == nil {
		return
	}
	for _, save := range s.saves {
		save.Abort()
	}
}

// Wait waits until the checkpoint counts, and returns the errors of the ranks that failed.
func (s *SetSave) Wait(ctx context.Context) error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, save := range s.saves {
		errs = append(errs, save.Wait(ctx))
	}
	return errors.Join(errs...)
}

// Ready is File.Ready, of the array's rank.
func (s *Set) Ready(name string) {
	if i, ok := s.rank[name]; ok {
		s.files[i].Ready(name)
	}
}

// Files are those of the ranks.
func (s *Set) Files() []*File { return slices.Clone(s.files) }

// Close closes all files.
func (s *Set) Close() error { return closeAll(s.files, false) }

func closeAll(files []*File, remove bool) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.Close())
		if remove && f.path != "" {
			errs = append(errs, os.Remove(f.path))
		}
	}
	return errors.Join(errs...)
}
