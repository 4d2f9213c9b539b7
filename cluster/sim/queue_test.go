package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// The queue gives events in the order of a sorted list, through pushes, pops and removals.
func TestQueueIsSorted(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		const nodes = 40
		q := queue{at: make([]time.Duration, nodes)}
		var plain []event
		for range 300 {
			free := rng.IntN(nodes)
			at := slices.IndexFunc(plain, func(e event) bool { return int(e.node) == free })
			switch {
			case at < 0:
				when := time.Duration(rng.IntN(8)) // many ties
				q.push(free, when)
				plain = append(plain, event{when, q.pushed, int32(free)})
				slices.SortFunc(plain, func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.sequence, b.sequence)) })
			case rng.IntN(3) == 0:
				q.remove(free)
				plain = slices.Delete(plain, at, at+1)
			default:
				if got := q.pop(); got != int(plain[0].node) || q.at[got] != plain[0].at {
					t.Fatalf("got node %d, want %+v", got, plain[0])
				}
				plain = plain[1:]
			}
		}
		for _, want := range plain {
			if got := q.pop(); got != int(want.node) {
				t.Fatalf("got node %d, want %+v", got, want)
			}
		}
		q.remove(3) // nothing there
	}
}
