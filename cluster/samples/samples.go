// Package samples says which samples of an epoch a node takes, and the weight of its gradient: the method's steps 1
// and 3 for nodes that work until a deadline.
//
//	epoch := samples.New(50_000)
//	for epoch.Left() > 0 {
//		ranges := epoch.Deal(most)     // for every node, more than it may manage
//		...                            // each takes the first samples of its own
//		epoch.Settle(used)             // what was not used goes back to the front
//		weights := samples.Weights(used)
//	}
//
// A sample is its place in the epoch's order; the trainer's shuffle maps it to a sample of the data. An Epoch is a
// function of its calls, so every rank can keep one of its own: after an all-reduce of the samples used, all are in
// the same state.
//
// If samples do not cost the same, DealCost hands out by cost and SettleAt takes in which samples were used; the
// weights remain those of the loss.
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

// DealCost is Deal where samples do not cost the same: it hands out samples that together cost
// at least most[i] to node i, given the cost of each, above 0. Most is of the same unit, tokens
// say. Near the end of the epoch it is their cost that is shared out in proportion.
func (e *Epoch) DealCost(most []float64, cost func(sample int) float64) [][]Range {
	for len(e.Out) < len(most) {
		e.Out = append(e.Out, nil)
	}
	asked, last := 0.0, -1
	for i, n := range most {
		if n > 0 && len(e.Out[i]) == 0 {
			asked += n
			last = i
		}
	}
	scale, short := 1.0, false
	if free := e.front(asked, cost); free < asked {
		scale, short = free/asked, true
	}
	dealt, before := 0.0, 0.0
	for i, n := range most {
		if !(n > 0) || len(e.Out[i]) > 0 {
			continue
		}
		before += n * scale
		for dealt < before || short && i == last {
			one := e.take(1)
			if len(one) == 0 {
				break
			}
			dealt += cost(one[0].First)
			e.Out[i] = add(e.Out[i], one[0])
		}
		if !short {
			before = dealt // what one has too much is not taken off the next
		}
	}
	return e.Out
}

// front is what the samples at the front cost, up to a bound.
func (e *Epoch) front(most float64, cost func(sample int) float64) float64 {
	sum := 0.0
	for _, r := range e.Returned {
		for k := r.First; k < r.End && sum < most; k++ {
			sum += cost(k)
		}
	}
	for k := e.Next; k < e.Samples && sum < most; k++ {
		sum += cost(k)
	}
	return sum
}

// add appends a range, joined to the one before where it goes on from there.
func add(ranges []Range, r Range) []Range {
	if n := len(ranges); n > 0 && ranges[n-1].End == r.First {
		ranges[n-1].End = r.End
		return ranges
	}
	return append(ranges, r)
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
	e.join()
	return nil
}

// SettleAt is Settle for nodes that do not take their samples in order (cluster.Accumulation.NextOf):
// of what node i was handed, those at the places used[i], which rise, are in an accepted
// gradient. pending says which nodes are still at work; nil: none.
func (e *Epoch) SettleAt(used [][]int, pending []bool) error {
	for i, places := range used {
		have := 0
		if i < len(e.Out) {
			have = count(e.Out[i])
		}
		for k, place := range places {
			if place < 0 || place >= have || k > 0 && place <= places[k-1] {
				return fmt.Errorf("samples: node %d used place %d of %d samples; places rise from 0", i, place, have)
			}
		}
	}
	for i := range e.Out {
		if i < len(pending) && pending[i] {
			continue
		}
		var places []int
		if i < len(used) {
			places = used[i]
		}
		place := 0
		for _, r := range e.Out[i] {
			for k := r.First; k < r.End; k, place = k+1, place+1 {
				if len(places) > 0 && places[0] == place {
					places = places[1:]
				} else {
					e.Returned = append(e.Returned, Range{k, k + 1})
				}
			}
		}
		e.Out[i] = nil
	}
	e.join()
	return nil
}

// join sorts what was returned and puts together what belongs together.
func (e *Epoch) join() {
	slices.SortFunc(e.Returned, func(a, b Range) int { return a.First - b.First })
	joined := e.Returned[:0]
	for _, r := range e.Returned {
		joined = add(joined, r)
	}
	e.Returned = joined
}

// Weights are what the nodes' mean gradients weigh in the mean over all samples of the
// round: each its share of the samples. They sum to 1, and are all 0 where nothing was
// used. Where a trainer averages over n nodes instead of summing, multiply by n.
//
// They are exact by samples: for a loss that is a mean over samples, however long these
// are. For a mean over tokens give the tokens that each node used instead of its samples.
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
