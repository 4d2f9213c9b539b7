package cluster

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// No other way to give every node one micro-step, between one sample and its limit, is done
// sooner; where there is none, that is said.
func TestAllocateOnceBrute(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	possible := 0
	for range 3000 {
		n, batch := 1+rng.IntN(3), 1+rng.IntN(10)
		perf, limits := make([]Performance, n), make([]int, n)
		for i := range perf {
			perf[i] = Performance{Overhead: float64(rng.IntN(4)), PerSample: 0.25 * float64(1+rng.IntN(8))}
			limits[i] = rng.IntN(8)
		}
		best := math.Inf(1)
		var try func(i, left int, last float64)
		try = func(i, left int, last float64) {
			if i == n {
				if left == 0 {
					best = min(best, last)
				}
				return
			}
			for b := 1; b <= min(left, limits[i]); b++ {
				try(i+1, left-b, max(last, perf[i].Overhead+perf[i].PerSample*float64(b)))
			}
		}
		try(0, batch, 0)
		c, sizes := &Cluster{GlobalBatch: batch}, make([]int, n)
		for _, most := range limits {
			c.Nodes = append(c.Nodes, Node{Limit: most})
		}
		finish, err := new(Allocator).AllocateOnce(c, perf, sizes)
		ok := err == nil
		if ok != !math.IsInf(best, 1) {
			t.Fatalf("batch %d, %v, limits %v: possible %v, found %v", batch, perf, limits, !ok, ok)
		}
		if !ok {
			if !errors.Is(err, ErrCapacity) {
				t.Fatal(err)
			}
			continue
		}
		possible++
		sum, last := 0, 0.0
		for i, b := range sizes {
			sum += b
			last = max(last, perf[i].Overhead+perf[i].PerSample*float64(b))
			if b < 1 || b > limits[i] {
				t.Fatalf("%v within %v", sizes, limits)
			}
		}
		if sum != batch || last > best+1e-9 || finish != last {
			t.Fatalf("batch %d, %v, limits %v: %v is done at %v, possible is %v", batch, perf, limits, sizes, last, best)
		}
	}
	if possible < 500 {
		t.Errorf("only %d instances have a solution", possible)
	}
}

// Nobody is left with nothing while another can give; where nobody can, somebody is.
func TestTakeBackSpares(t *testing.T) {
	var a Allocator
	c := &Cluster{GlobalBatch: 10, Nodes: []Node{{Limit: 8}, {Limit: 8}, {Limit: 8}}}
	sizes := []int{7, 2, 1}
	if err := a.TakeBack(c, sizes, 1); err != nil || fmt.Sprint(sizes) != "[7 1 1]" {
		t.Errorf("%v, %v", sizes, err)
	}
	sizes = []int{1, 1, 1}
	if err := a.TakeBack(c, sizes, 1); err != nil || fmt.Sprint(sizes) != "[1 1 0]" {
		t.Errorf("%v, %v", sizes, err)
	}
	if err := a.TakeBack(c, sizes, 3); !errors.Is(err, ErrCapacity) {
		t.Error(err)
	}
}
