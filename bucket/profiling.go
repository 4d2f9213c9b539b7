package bucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Runner runs one training step of batch samples of a length, with optimizer state in
// memory, and says what it took. Out of memory is a Trial, not an error.
type Runner interface {
	Run(ctx context.Context, length, batch int) (Trial, error)
}

// Recorded is a Runner that looks trials up in a table.
type Recorded Table

// Run is Runner's; a trial that is not in the table is an error of ErrInput.
func (t Recorded) Run(_ context.Context, length, batch int) (Trial, error) {
	for _, r := range t {
		if r.Length == length && r.Batch == batch {
			return r, nil
		}
	}
	return Trial{}, badf("the recorded table has no trial of length %d, batch %d", length, batch)
}

// Profiling says what to try.
type Profiling struct {
	Lengths  []int // to try, each 1 to MaxLength: the buckets' longest samples
	Batches  []int // full grid: all of these at every length; nil: double, then bisect
	MaxBatch int   // of the search; 0: 4096
	Trials   int   // of the search, per length; 0: 8
	Done     Table // trials that ran before; they are not run again
	// Record is told every new trial, as soon as it is there.
	Record func(Trial) error
	// Tell is told how many lengths are done, of how many; may be nil.
	Tell func(done, total int)
}

// Profile runs trials, the longest length first, and returns all of them, Done included.
// When the context ends it returns its error; what was recorded is kept.
//
// The search begins at the batch that fits the longer length before (1 at the first),
// doubles it until it is out of memory, and then bisects. What is known beforehand, from a
// trial as long and as large that ran, or one that did not and was neither longer nor
// larger, needs no trial; the grid keeps to the latter too.
func Profile(ctx context.Context, run Runner, p Profiling) (Table, error) {
	if p.MaxBatch == 0 {
		p.MaxBatch = 4096
	}
	if p.Trials == 0 {
		p.Trials = 8
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	lengths := slices.Clone(p.Lengths)
	slices.Sort(lengths)
	lengths = slices.Compact(lengths)
	slices.Reverse(lengths)
	s := &search{ctx: ctx, run: run, p: p, table: slices.Clone(p.Done)}
	for i, l := range lengths {
		try := s.grid
		if p.Batches == nil {
			try = s.bisect
		}
		if err := try(l); err != nil {
			return nil, err
		}
		if p.Tell != nil {
			p.Tell(i+1, len(lengths))
		}
	}
	sortTable(s.table)
	return s.table, nil
}

func (p *Profiling) check() error {
	if len(p.Lengths) == 0 {
		return badf("profile: no lengths to try")
	}
	for _, l := range p.Lengths {
		if l < 1 || l > MaxLength {
			return badf("profile: length %d: must be 1 to %d", l, MaxLength)
		}
	}
	for _, b := range p.Batches {
		if b < 1 || b > MaxLength {
			return badf("profile: batch %d: must be 1 to %d", b, MaxLength)
		}
	}
	if p.MaxBatch < 1 || p.MaxBatch > MaxLength || p.Trials < 1 {
		return badf("profile: max batch %d (1 to %d), trials %d (from 1)", p.MaxBatch, MaxLength, p.Trials)
	}
	return nil
}

type search struct {
	ctx   context.Context
	run   Runner
	p     Profiling
	table Table
	fits  int // largest batch that ran at this length or a longer one
}

// try is one trial, from what is known or run.
func (s *search) try(length, batch int) (ran bool, err error) {
	for _, t := range s.table {
		if t.Length == length && t.Batch == batch {
			return !t.OutOfMemory, nil
		}
		if t.OutOfMemory && t.Length <= length && t.Batch <= batch {
			return false, nil
		}
	}
	if err := s.ctx.Err(); err != nil {
		return false, err
	}
	t, err := s.run.Run(s.ctx, length, batch)
	if err != nil {
		return false, fmt.Errorf("length %d, batch %d: %w", length, batch, err)
	}
	t.Length, t.Batch = length, batch
	if !t.OutOfMemory && !(t.Seconds > 0 && t.Seconds < 1e9) {
		return false, badf("length %d, batch %d: took %v s; want a number above 0", length, batch, t.Seconds)
	}
	s.table = append(s.table, t)
	if s.p.Record != nil {
		if err := s.p.Record(t); err != nil {
			return false, errors.Join(errors.New("the trial could not be recorded"), err)
		}
	}
	return !t.OutOfMemory, nil
}

func (s *search) grid(length int) error {
	for _, b := range s.p.Batches {
		if _, err := s.try(length, b); err != nil {
			return err
		}
	}
	return nil
}

func (s *search) bisect(length int) error {
	fits, fails := 0, s.p.MaxBatch+1
	b := max(1, s.fits)
	for range s.p.Trials {
		ran, err := s.try(length, b)
		if err != nil {
			return err
		}
		if ran {
			fits = b
		} else {
			fails = b
		}
		if fails-fits <= 1 {
			break
		}
		b = (fits + fails) / 2
		if fails > s.p.MaxBatch {
			b = min(max(1, 2*fits), s.p.MaxBatch)
		}
	}
	s.fits = max(s.fits, fits)
	return nil
}

// sortTable sorts by length, then batch.
func sortTable(t Table) {
	slices.SortFunc(t, func(a, b Trial) int {
		if a.Length != b.Length {
			return a.Length - b.Length
		}
		return a.Batch - b.Batch
	})
}
