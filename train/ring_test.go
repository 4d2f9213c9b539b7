package train

import (
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// After a sum, every node has what plain addition gives (of whole numbers, so in any order), and all have the same bits.
func TestRing(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		nodes := rapid.IntRange(1, 6).Draw(r, "nodes")
		size := rapid.IntRange(0, 20).Draw(r, "size")
		ring := newRing(nodes, 0)
		for range 3 {
			want := make([]float32, size)
			var data [][]float32
			for range nodes {
				var d []float32
				for i := range size {
					d = append(d, float32(rapid.IntRange(-1000, 1000).Draw(r, "value")))
					want[i] += d[i]
				}
				data = append(data, d)
			}
			var all sync.WaitGroup
			for i, d := range data {
				all.Go(func() { ring.sum(i, d) })
			}
			all.Wait()
			for i, d := range data {
				if !slices.Equal(d, want) {
					r.Fatalf("node %d: %v, want %v", i, d, want)
				}
			}
		}
	})
}

func TestRingBitsEqual(t *testing.T) {
	rng := generator(4)
	ring := newRing(5, 0)
	var data [][]float32
	for range 5 {
		data = append(data, normal(rng, 1001))
	}
	var all sync.WaitGroup
	for i, d := range data {
		all.Go(func() { ring.sum(i, d) })
	}
	all.Wait()
	for i, d := range data {
		if !slices.Equal(d, data[0]) {
			t.Errorf("nodes 0 and %d differ", i)
		}
	}
}

// Every sample once before any twice, in an order that a restored Order continues.
func TestSampler(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		samples := rapid.IntRange(1, 7).Draw(r, "samples")
		s, err := NewOrder(samples, 3)
		if err != nil {
			r.Fatal(err)
		}
		draw := func(s *Order) int {
			i, err := s.Next()
			if err != nil {
				r.Fatal(err)
			}
			return i
		}
		seen := make([]int, samples)
		for k := range rapid.IntRange(0, 30).Draw(r, "drawn") {
			i := draw(s)
			if seen[i]++; seen[i] != k/samples+1 {
				r.Fatalf("draw %d: sample %d for the %dth time", k, i, seen[i])
			}
		}
		other, err := NewOrder(samples, 99)
		if err != nil {
			r.Fatal(err)
		}
		if err := other.restore(s.before, s.cursor); err != nil {
			r.Fatal(err)
		}
		for range 20 {
			if a, b := draw(s), draw(other); a != b {
				r.Fatalf("%d, restored %d", a, b)
			}
		}
	})
}
