// Package samples says which samples of an epoch a node takes, and what its gradient
// weighs: the method's steps 1 and 3 where nodes work until a deadline.
//
//	epoch := samples.New(50_000)
//	for epoch.Left() > 0 {
//		ranges := epoch.Deal(most)     // for every node, more than it may manage
//		...                            // each takes the first samples of its own
//		epoch.Settle(used)             // what was not used goes back to the front
//		weights := samples.Weights(used)
//	}
//
// A sample is its place in the epoch's order; the trainer's shuffle says which it is. An
// Epoch is a function of what it is told. Every rank can keep one of its own: after
// an all-reduce of the samples used, all know the same.
package samples

import (
	"fmt"
	"slices"
)

// Range is the samples from First to End-1.
type Range struct {
	First int `json:"first"`
	End   int `json:"end"`
}

// Epoch hands every sample out until it was used exactly once. It can be kept as JSON and
// read back in mid-epoch. It is not safe for concurrent use.
type Epoch struct {
	Samples  int       `json:"samples"`
	Next     int       `json:"next"`     // samples from here on were never handed out
	Returned []Range   `json:"returned"` // handed out, not used; rising, apart
	Out      [][]Range `json:"out"`      // by node; what is with it now
}

// New begins an epoch of so many samples.
func New(samples int) *Epoch { return &Epoch{Samples: max(samples, 0)} }

// Left is how many samples were not used yet, those that are with nodes included.
func (e *Epoch) Left() int {
	left := e.Samples - e.Next + count(e.Returned)
	for _, r := range e.Out {
		left += count(r)
	}
	return left
}

func count(ranges []Range) int {
	n := 0
	for _, r := range ranges {
		n += r.End - r.First
	}
	return n
}

// Deal hands out samples from the front of the order: up to most[i] to node i, in the order of
// nodes. A node that still has some keeps these and gets no more. Near the end of the
// epoch there may be fewer than asked for; they are shared out in proportion, so that no
// node goes without while another has plenty. The result is valid until the next call.
func (e *Epoch) Deal(most []int) [][]Range {
	for len(e.Out) < len(most) {
		e.Out = append(e.Out, nil)
	}
	asked := 0
	for i, n := range most {
		if len(e.Out[i]) == 0 {
			asked += max(n, 0)
		}
	}
	free := e.Samples - e.Next + count(e.Returned)
	dealt, before := 0, 0
	for i, n := range most {
		if n <= 0 || len(e.Out[i]) > 0 {
			continue
		}
		if asked > free {
			// The parts of the first nodes together are rounded, so that all sum to what is there.
			before += n
			n = part(before, free, asked) - dealt
		}
		dealt += n
		e.Out[i] = e.take(n)
	}
	return e.Out
}

// part is floor(before*free/asked), for numbers whose product may exceed an int.
func part(before, free, asked int) int {
	whole, rest := before/asked*free, before%asked
	return whole + int(float64(rest)/float64(asked)*float64(free))
}

// take removes n samples from the front.
func (e *Epoch) take(n int) []Range {
	var out []Range
	for n > 0 && len(e.Returned) > 0 {
		r := &e.Returned[0]
		k := min(n, r.End-r.First)
		out = append(out, Range{r.First, r.First + k})
		r.First += k
		n -= k
		if r.First == r.End {
			e.Returned = e.Returned[1:]
		}
	}
	if k := min(n, e.Samples-e.Next); k > 0 {
		out = append(out, Range{e.Next, e.Next + k})
		e.Next += k
	}
	return out
}

// Pending says of a node in Settle that it is still at work.
const Pending = -1

// Settle takes in the end of a round: of node i's samples the first used[i] are in an
// accepted gradient; 0 for a node that was lost or refused, Pending for one that will
// deliver later. The others go back to the front of the order. The error, after which
// nothing has changed, names a node that says it used more than it was given.
func (e *Epoch) Settle(used []int) error {
	for i, n := range used {
		if i >= len(e.Out) && n > 0 || i < len(e.Out) && n > count(e.Out[i]) {
			return fmt.Errorf("samples: node %d used %d samples, more than it was handed", i, n)
		}
	}
	for i := range e.Out {
		if i < len(used) && used[i] == Pending {
			continue
		}
		n := 0
		if i < len(used) {
			n = max(used[i], 0)
		}
		for _, r := range e.Out[i] {
			k := min(n, r.End-r.First)
			n -= k
			if r.First += k; r.First < r.End {
				e.Returned = append(e.Returned, r)
			}
		}
		e.Out[i] = nil
	}
	slices.SortFunc(e.Returned, func(a, b Range) int { return a.First - b.First })
	joined := e.Returned[:0]
	for _, r := range e.Returned {
		if n := len(joined); n > 0 && joined[n-1].End == r.First {
			joined[n-1].End = r.End
		} else {
			joined = append(joined, r)
		}
	}
	e.Returned = joined
	return nil
}

// Weights are what the nodes' mean gradients weigh in the mean over all samples of the
// round: each its share of the samples. They sum to 1, and are all 0 where nothing was
// used. Where a trainer averages over n nodes instead of summing, multiply by n.
func Weights(used []int) []float64 {
	sum := 0
	for _, n := range used {
		sum += max(n, 0)
	}
	w := make([]float64, len(used))
	for i, n := range used {
		if n > 0 {
			w[i] = float64(n) / float64(sum)
		}
	}
	return w
}
