package bucket

import (
	"context"
	"slices"
)

// Runner tries one training step. It returns a trial marked out of memory as such; an
// error ends the profiling.
type Runner interface {
	Try(ctx context.Context, length, batch int) (Trial, error)
}

// Profile methods.
const (
	Grid   = "grid"   // every combination
	Bisect = "bisect" // double, then bisect: at most 8 trials a length
)

// maxTrials per length of Bisect.
const maxTrials = 8

// Profile tries (length, batch) combinations, longest length first, and hands each trial
// to got as it comes. Known trials are not tried again: that resumes a profile. Grid
// tries batches in rising order and leaves a length at the first that runs out of memory.
// Bisect doubles the batch until memory runs out, starting from the tokens that the next
// longer length held, then bisects between the last that ran and the first that did not.
func Profile(ctx context.Context, r Runner, method string, lengths, batches []int, known Table, got func(Trial) error) error {
	lengths = slices.Clone(lengths)
	slices.Sort(lengths)
	lengths = slices.Compact(lengths)
	slices.Reverse(lengths)
	seen := map[[2]int]Trial{}
	for _, t := range known {
		seen[[2]int{t.Length, t.Batch}] = t
	}
	try := func(length, batch int) (bool, error) {
		t, ok := seen[[2]int{length, batch}]
		if !ok {
			if err := ctx.Err(); err != nil {
				return false, err
			}
			var err error
			if t, err = r.Try(ctx, length, batch); err != nil {
				return false, err
			}
			seen[[2]int{length, batch}] = t
			if err := got(t); err != nil {
				return false, err
			}
		}
		return !t.OutOfMemory, nil
	}
	if method == Grid {
		batches = slices.Clone(batches)
		slices.Sort(batches)
		for _, l := range lengths {
			for _, b := range batches {
				ran, err := try(l, b)
				if err != nil {
					return err
				}
				if !ran {
					break
				}
			}
		}
		return nil
	}
	most := slices.Max(batches)
	start := 1
	for i, l := range lengths {
		if i > 0 {
			start = min(most, start*lengths[i-1]/l)
		}
		low, high := 0, most+1
		n := 0
		for b := start; n < maxTrials-1 && high-low > 1 && (low == 0 || high-low > low/20); n++ {
			ran, err := try(l, b)
			if err != nil {
				return err
			}
			if ran {
				low = b
			} else {
				high = b
			}
			switch {
			case high <= most || low == most:
				b = (low + high) / 2
			default:
				b = min(2*low, most)
			}
			b = max(b, 1)
		}
		// A small batch beside the large ones tells the overhead.
		if small := max(1, low/4); low > 1 && n < maxTrials {
			if _, err := try(l, small); err != nil {
				return err
			}
		}
		start = max(1, low)
	}
	return nil
}

// Recorded is a Runner that replays a table: a combination that is not in it is an error.
type Recorded Table

// Try is Runner's.
func (t Recorded) Try(_ context.Context, length, batch int) (Trial, error) {
	for _, r := range t {
		if r.Length == length && r.Batch == batch {
			return r, nil
		}
	}
	return Trial{}, badf("the recorded table has no trial of length %d, batch %d", length, batch)
}
