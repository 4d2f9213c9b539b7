package main

import (
	"math"
	"testing"

	"evenkeel/cluster"
	"evenkeel/internal/race"
)

// TestCounts: what every room does most allocates what ranges.yaml says, and no byte more.
func TestCounts(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates too")
	}
	all, err := readRanges("ranges.yaml")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, s := range subjects {
		names[s.name] = true
		t.Run(s.name, func(t *testing.T) {
			k, ok := all[s.name]
			if !ok {
				t.Fatal("not in ranges.yaml: go run ./experiments/bench -update -run " + s.name)
			}
			op, twin, err := s.setup()
			if err != nil {
				t.Fatal(err)
			}
			if err := twin(); err != nil {
				t.Fatal(err)
			}
			var m measured
			if m.allocs, m.bytes, err = count(op); err != nil {
				t.Fatal(err)
			}
			if err := m.compareCounts(k); err != nil {
				t.Error(err)
			}
			if k.Trials < 3 || k.Median <= 0 || k.Range[1] < k.Median {
				t.Errorf("%+v makes no sense", k)
			}
		})
	}
	for name := range all {
		if !names[name] {
			t.Errorf("ranges.yaml has %s, which is no benchmark", name)
		}
	}
}

// TestBisection: the plain allocation finishes when the real one does.
func TestBisection(t *testing.T) {
	c, perf, err := mixed()
	if err != nil {
		t.Fatal(err)
	}
	c.Nodes, perf = c.Nodes[:50], perf[:50]
	c.GlobalBatch = 24 * 50
	sizes := make([]int, 50)
	want, err := bisection(c, perf, sizes)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, b := range sizes {
		sum += b
	}
	got, err := cluster.Allocate(c, nil, perf, make([]int, 50))
	if err != nil {
		t.Fatal(err)
	}
	if sum != c.GlobalBatch || math.Abs(got-want) > 1e-12 {
		t.Errorf("%d samples finish after %v s, the allocation's after %v", sum, want, got)
	}
}

func TestMedian(t *testing.T) {
	if m, s := median([]float64{5, 1, 4, 2, 3, 9, 8, 7}); m != 5 || s != 2.5 {
		t.Errorf("median %v, spread %v", m, s)
	}
}

func TestRound(t *testing.T) {
	for x, want := range map[float64]float64{0.123456: 0.1235, 12345.6: 12350, 0: 0} {
		if got := round(x); got != want {
			t.Errorf("round(%v) = %v", x, got)
		}
	}
}
