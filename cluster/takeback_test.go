package cluster

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// No other way to give every node one micro-step, between one sample and its limit, finishes
// sooner; if there is none, the error says so.
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

// A share falls to 0 only if the others cannot give enough.
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

// sharesOf are the shares of a node up to most by definition: full micro-steps, and at most one smaller that it takes.
func sharesOf(n Node, most int) map[int]bool {
	rests := []int{0}
	full := n.Limit
	if len(n.Shapes) > 0 {
		full = 0
		for _, s := range n.Shapes {
			if s <= n.Limit {
				full, rests = s, append(rests, s)
			}
		}
	} else {
		for b := max(n.Least, 1); b <= full; b++ {
			rests = append(rests, b)
		}
	}
	all := map[int]bool{}
	for whole := 0; whole <= most; whole += full {
		for _, r := range rests {
			if whole+r <= most {
				all[whole+r] = true
			}
		}
	}
	return all
}

// What is taken back is exactly the excess, from shares that nodes take; nobody loses all where that can be helped; a node
// that can give all alone does, the last one first; and it fails only where trying every combination finds nothing.
func TestTakeBackBrute(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	outcomes := map[string]int{}
	for range 20_000 {
		c, count := &Cluster{}, 1+rng.IntN(4)
		var shares []map[int]bool
		sizes := make([]int, count)
		for i := range sizes {
			n := Node{Limit: 2 + rng.IntN(6)}
			if rng.IntN(2) == 0 {
				n.Shapes = []int{1 + rng.IntN(2), 3 + rng.IntN(2), 6}
				n.Limit = max(n.Limit, n.Shapes[0])
			} else {
				n.Least = 1 + rng.IntN(n.Limit)
			}
			own := sharesOf(n, 14)
			for sizes[i] = rng.IntN(15); !own[sizes[i]]; sizes[i]-- { //nolint:revive // the largest share up to a random one
			}
			c.Nodes, shares = append(c.Nodes, n), append(shares, own)
			c.GlobalBatch += sizes[i]
		}
		excess := 1 + rng.IntN(12)
		var can func(i, left, least int) bool
		can = func(i, left, least int) bool {
			if i == count {
				return left == 0
			}
			for b := range shares[i] {
				if give := sizes[i] - b; give == 0 || give > 0 && give <= left && b >= least {
					if can(i+1, left-give, least) {
						return true
					}
				}
			}
			return false
		}
		alone := -1
		for i := range sizes {
			if b := sizes[i] - excess; b > 0 && shares[i][b] {
				alone = i
			}
		}
		spare, any := can(0, excess, 1), can(0, excess, 0)
		before := slices.Clone(sizes)
		err := new(Allocator).TakeBack(c, sizes, excess)
		if (err == nil) != any {
			t.Fatalf("%d of %v from %+v: %v, possible %v", excess, before, c.Nodes, err, any)
		}
		if err != nil {
			if outcomes["impossible"]++; !slices.Equal(sizes, before) {
				t.Fatalf("%d of %v: failed, and left %v", excess, before, sizes)
			}
			continue
		}
		sum, emptied := 0, false
		for i, b := range sizes {
			sum += before[i] - b
			emptied = emptied || b == 0 && before[i] > 0
			if b > before[i] || !shares[i][b] {
				t.Fatalf("%d of %v from %+v: %v", excess, before, c.Nodes, sizes)
			}
			if alone >= 0 && b != before[i] && i != alone {
				t.Fatalf("%d of %v from %+v: %v, node %d can give all", excess, before, c.Nodes, sizes, alone)
			}
		}
		if sum != excess || emptied == spare {
			t.Fatalf("%d of %v from %+v: %v took %d; nobody need lose all: %v", excess, before, c.Nodes, sizes, sum, spare)
		}
		switch {
		case alone >= 0:
			outcomes["alone"]++
		case spare:
			outcomes["several"]++
		default:
			outcomes["emptied"]++
		}
	}
	for _, what := range []string{"alone", "several", "emptied", "impossible"} {
		if outcomes[what] < 200 {
			t.Errorf("too few instances: %v", outcomes)
		}
	}
}
