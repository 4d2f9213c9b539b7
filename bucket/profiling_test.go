package bucket

import (
	"context"
	"errors"
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
