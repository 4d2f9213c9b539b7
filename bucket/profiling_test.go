package bucket

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// runner is a machine of costA.
type runner struct {
	trials map[int]int
	stop   int
}

func (r *runner) Run(_ context.Context, length, batch int) (Trial, error) {
	if r.stop--; r.stop == 0 {
		return Trial{}, context.Canceled
	}
	r.trials[length]++
	return Trial{Seconds: costA.Seconds(length, batch), OutOfMemory: batch > costA.Cap(length), PeakBytes: 1}, nil
}

// The search needs at most 8 trials a length, and a stopped one goes on where it was.
func TestProfile(t *testing.T) {
	lengths := []int{4096, 2500, 1700, 1200, 900, 640, 430, 300, 200, 120}
	r := &runner{trials: map[int]int{}}
	all, err := Profile(t.Context(), r, Profiling{Lengths: lengths, MaxBatch: 2000})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for l, k := range r.trials {
		n += k
		if k > 8 {
			t.Errorf("length %d: %d trials", l, k)
		}
	}
	c, err := NewCost(all, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lengths {
		if got, want := c.Cap(l), costA.Cap(l); got > want || float64(got) < .9*float64(want) {
			t.Errorf("length %d: largest batch found %d of %d", l, got, want)
		}
	}
	var kept Table
	half := &runner{trials: map[int]int{}, stop: n / 2}
	record := func(t Trial) error { kept = append(kept, t); return nil }
	if _, err := Profile(t.Context(), half, Profiling{Lengths: lengths, MaxBatch: 2000, Record: record}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	rest := &runner{trials: map[int]int{}}
	again, err := Profile(t.Context(), rest, Profiling{Lengths: lengths, MaxBatch: 2000, Done: kept})
	if err != nil || len(again) != len(all) {
		t.Fatal(len(again), len(all), err)
	}
	for i := range all {
		if again[i] != all[i] {
			t.Fatal(again[i], all[i])
		}
	}
	if _, err := Profile(t.Context(), Recorded(all), Profiling{Lengths: lengths, MaxBatch: 2000}); err != nil {
		t.Error("from the recorded table:", err)
	}
	if _, err := Profile(t.Context(), Recorded(all), Profiling{Lengths: lengths, Batches: []int{1999}}); !errors.Is(err, ErrInput) {
		t.Error(err)
	}
	grid, err := Profile(t.Context(), &runner{trials: map[int]int{}}, Profiling{Lengths: []int{100, 200}, Batches: []int{1, 2, 4}})
	if err != nil || len(grid) != 6 {
		t.Error(grid, err)
	}
}

// noisy is a machine whose durations scatter by 5%.
type noisy struct {
	runner
	r *rand.Rand
}

func (n *noisy) Run(ctx context.Context, length, batch int) (Trial, error) {
	t, err := n.runner.Run(ctx, length, batch)
	t.Seconds *= math.Exp(.05 * n.r.NormFloat64())
	t.PeakBytes = int64(float64(length*batch) * (1 + float64(length)/costA.m))
	return t, err
}

// With noise in the profile the plan is nearly as good, and its prediction nearly right.
func TestNoise(t *testing.T) {
	l := lognormal(100000, 400, .8, 4096)
	uppers, err := l.Uppers(32)
	if err != nil {
		t.Fatal(err)
	}
	speeds := slices.Repeat([]float64{1}, 8)
	mean := 0.0
	const seeds = 10
	for seed := range uint64(seeds) {
		n := &noisy{runner{trials: map[int]int{}}, rand.New(rand.NewPCG(seed, 1))}
		table, err := Profile(t.Context(), n, Profiling{Lengths: uppers})
		if err != nil {
			t.Fatal(err)
		}
		c, err := NewCost(table, 65536)
		if err != nil {
			t.Fatal(err)
		}
		if c.Smoothed() != "fit" {
			t.Errorf("seed %d: noise alone makes interpolation the better prediction", seed)
		}
		p, err := Make(l, c, Config{Ranks: 8, Mode: Sorted, Buckets: 8})
		if err != nil {
			t.Fatal(err)
		}
		s, err := Judge(l, p.Schedule(l, 1, 1).All(), costA, speeds, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		if worse, off := s.EpochSeconds/Bound(l, costA, speeds), p.EpochSeconds/s.EpochSeconds; worse > 1.01 || math.Abs(off-1) > .02 || s.OutOfMemory > 0 {
			t.Errorf("seed %d: %.4f of the bound, predicted %.4f of realised, %d out of memory", seed, worse, off, s.OutOfMemory)
		}
		mean += p.EpochSeconds / s.EpochSeconds / seeds
	}
	if math.Abs(mean-1) > .005 {
		t.Errorf("predicted %.4f of realised in the mean", mean)
	}
}

// A table that no formula describes is interpolated.
func TestSteps(t *testing.T) {
	var table Table
	for _, l := range []int{100, 200, 400, 800} {
		for b := 1; b*l <= 16000; b += max(1, b/8) {
			s := .01 * math.Ceil(float64(b*l)/4000)
			table = append(table, Trial{Length: l, Batch: b, Seconds: s})
		}
	}
	c, err := NewCost(table, 0)
	if err != nil {
		t.Fatal(err)
	}
	if c.Smoothed() != "isotonic" {
		t.Error(c.Smoothed())
	}
}
