package stepcost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"evenkeel/bucket/internal/input"
)

// Runner runs one training step of batch samples of a length, with optimizer state in memory, and reports what it took. With two lengths,
// length is that of the source; else target is 0. Out of memory is a Trial, not an error.
type Runner func(ctx context.Context, length, target, batch int) (Trial, error)

// Profiling says what to try.
type Profiling struct {
	Lengths  []int // to try, each 1 to MaxLength: the buckets' longest samples
	Targets  []int // beside each length that of a target, 1 to MaxLength; nil: samples have one length
	MaxBatch int   // 0: 4096
	Trials   int   // per length; 0: 8
	// PadTo and BatchMultiple, 0 or 1: none, are what the plan will pad lengths to and what batch sizes the device computes in:
	// lengths are tried as padded, and the search tries whole multiples.
	PadTo, BatchMultiple int
	Done                 Table // trials that ran before; they are not run again
	// Record gets every new trial, as soon as it is there.
	Record func(Trial) error
	// Progress reports how many lengths are done, of how many; may be nil.
	Progress func(done, total int)
}

// Profile runs trials, the longest length first, and returns all of them, Done included.
// When the context ends it returns its error; what was recorded is kept.
//
// For each length it begins with as many tokens as fitted at longer lengths (a batch of 1 at the first length). It moves up or down by
// doubling strides until one batch ran and another did not, and bisects to a part in 32. The remaining trials are for smaller batches, because
// the cost of a step is fitted to the batches that ran. A batch needs no trial if a smaller one, no longer, was out of memory.
func Profile(ctx context.Context, run Runner, p Profiling) (Table, error) {
	p.MaxBatch, p.Trials = cmp.Or(p.MaxBatch, 4096), cmp.Or(p.Trials, 8)
	if err := p.check(); err != nil {
		return nil, err
	}
	s := &search{ctx: ctx, run: run, p: p, table: slices.Clone(p.Done)}
	shapes := p.shapes()
	for i, l := range shapes {
		if err := s.bisect(l); err != nil {
			return nil, err
		}
		if p.Progress != nil {
			p.Progress(i+1, len(shapes))
		}
	}
	sortTable(s.table)
	return s.table, nil
}

// Foreign are the lengths of earlier trials that are not to be tried now, each once, rising. They suggest that the table is for other samples.
func (p *Profiling) Foreign() (lengths []int) {
	asked := p.shapes()
	for _, t := range p.Done {
		if !slices.ContainsFunc(asked, func(a Trial) bool { return a.Length == t.Length && a.Target == t.Target }) {
			lengths = append(lengths, t.Length)
		}
	}
	slices.Sort(lengths)
	return slices.Compact(lengths)
}

// shapes are the padded lengths to try, the longest first, as trials without a batch.
func (p *Profiling) shapes() (out []Trial) {
	pad := func(l int) int { return (l + max(1, p.PadTo) - 1) / max(1, p.PadTo) * max(1, p.PadTo) }
	for i, l := range p.Lengths {
		t := Trial{Length: pad(l)}
		if p.Targets != nil {
			t.Target = pad(p.Targets[i])
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b Trial) int {
		return cmp.Or(b.Length+b.Target-a.Length-a.Target, b.Length-a.Length)
	})
	return slices.Compact(out)
}

func (p *Profiling) check() error {
	if len(p.Lengths) == 0 {
		return input.Errorf("profile: no lengths to try")
	}
	if p.Targets != nil && len(p.Targets) != len(p.Lengths) {
		return input.Errorf("profile: %d lengths and %d targets", len(p.Lengths), len(p.Targets))
	}
	for _, l := range slices.Concat(p.Lengths, p.Targets) {
		if l < 1 || l > MaxLength {
			return input.Errorf("profile: length %d: must be 1 to %d", l, MaxLength)
		}
	}
	for _, t := range p.Done {
		if (t.Target > 0) != (p.Targets != nil) {
			return input.Errorf("profile: the trials before have two lengths where these have one, or the other way round")
		}
	}
	if p.PadTo < 0 || p.PadTo > MaxLength || p.BatchMultiple < 0 || p.BatchMultiple > MaxLength {
		return input.Errorf("profile: pad to %d, batch multiple %d: must be 0 to %d", p.PadTo, p.BatchMultiple, MaxLength)
	}
	if p.MaxBatch < 1 || p.MaxBatch > MaxLength || p.Trials < 1 {
		return input.Errorf("profile: max batch %d (1 to %d), trials %d (from 1)", p.MaxBatch, MaxLength, p.Trials)
	}
	return nil
}

type search struct {
	ctx   context.Context
	run   Runner
	p     Profiling
	table Table
	// tokens of the largest batch that fits at a longer length, which is likely to fit here.
	tokens int
}

// try looks a trial up, or runs it.
func (s *search) try(shape Trial, batch int) (ran bool, err error) {
	for _, t := range s.table {
		if t.Length == shape.Length && t.Target == shape.Target && t.Batch == batch {
			return !t.OutOfMemory, nil
		}
		if t.OutOfMemory && t.Length <= shape.Length && t.Target <= shape.Target && t.Batch <= batch {
			return false, nil
		}
	}
	if err := s.ctx.Err(); err != nil {
		return false, err
	}
	t, err := s.run(s.ctx, shape.Length, shape.Target, batch)
	if err != nil {
		return false, fmt.Errorf("%s, batch %d: %w", shape.shape(), batch, err)
	}
	t.Length, t.Target, t.Batch = shape.Length, shape.Target, batch
	if !t.OutOfMemory && !(t.Seconds > 0 && t.Seconds < 1e9) {
		return false, input.Errorf("%s, batch %d: took %v s; want a number above 0", shape.shape(), batch, t.Seconds)
	}
	s.table = append(s.table, t)
	if s.p.Record != nil {
		if err := s.p.Record(t); err != nil {
			return false, errors.Join(errors.New("the trial could not be recorded"), err)
		}
	}
	return !t.OutOfMemory, nil
}

// fine is the part of the batch size to which bisect finds the largest that fits.
const fine = 32

func (s *search) bisect(shape Trial) error {
	length := shape.Length + shape.Target
	fits, fails := 0, s.p.MaxBatch+1
	b := min(max(1, s.tokens/length), s.p.MaxBatch)
	stride, left := max(1, b/16), s.p.Trials
	var ran []int
	try := func(b int) error {
		left--
		if m := s.p.BatchMultiple; m > 1 && b > m {
			b -= b % m
		} else if m > 1 && fails > m {
			b = min(m, s.p.MaxBatch) // a smaller one takes as long
		}
		ok, err := s.try(shape, b)
		if ok {
			ran = append(ran, b)
			fits = max(fits, b)
		} else {
			fails = b
		}
		return err
	}
	for left > 0 {
		if err := try(b); err != nil {
			return err
		}
		if fails-fits <= max(1, fits/fine, s.p.BatchMultiple) {
			break
		}
		switch {
		case fails > s.p.MaxBatch:
			b = min(b+stride, s.p.MaxBatch)
		case fits == 0:
			b = max(1, b-stride)
		default:
			b = (fits + fails) / 2
		}
		stride *= 2
	}
	for left > 0 {
		// What is left of the trials goes where the next size tried is farthest.
		slices.Sort(ran)
		below, gap, before := 0, 0, 0
		for _, r := range ran {
			if r-before > gap {
				below, gap = before, r-before
			}
			before = r
		}
		if gap <= 1 {
			break
		}
		if err := try(below + gap/2); err != nil {
			return err
		}
	}
	s.tokens = max(s.tokens, fits*length)
	return nil
}

func sortTable(t Table) {
	slices.SortFunc(t, func(a, b Trial) int {
		return cmp.Or(a.Length-b.Length, a.Target-b.Target, a.Batch-b.Batch)
	})
}
