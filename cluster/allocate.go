package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// ErrCapacity says that no allocation can make up the global batch.
var ErrCapacity = errors.New("cluster: the nodes cannot make up the global batch")

// Allocate writes into sizes the shares of the round that finish soonest: among all that
// sum to the global batch, each made of micro-steps that its node takes (Node.Full, then
// at most one smaller), those with the smallest latest finish time. They are reached by
// always giving the next samples to the node that would finish them first (ties to the
// lower index), one by one if all nodes take micro-batches of one sample. A node gets 0
// if the others finish sooner without it. Allocate returns the latest finish time in
// seconds.
//
// present says which nodes take part (nil: all); an absent node gets 0. The common
// finish time is searched (water-filling, Cannikin's OptPerf) until less than a sample
// per node is missing; those are dealt one by one from a heap.
//
// The error wraps ErrCapacity when no shares are found that make up the global batch; the
// search for a sum of micro-batches of several samples is bounded. After an error the
// sizes mean nothing.
func Allocate(c *Cluster, present []bool, perf []Performance, sizes []int) (float64, error) {
	var a Allocator
	return a.Allocate(c, present, perf, sizes)
}

// Allocator is Allocate with working memory that is kept between calls. The zero value
// is ready to use.
type Allocator struct {
	next nextFinish `state:"-"` // these two are working memory
	most []int      `state:"-"` // largest shares
}

// Allocate does what the function Allocate does.
func (a *Allocator) Allocate(c *Cluster, present []bool, perf []Performance, sizes []int) (float64, error) {
	if err := c.check(present, perf, sizes); err != nil {
		return 0, err
	}
	a.limits(c, present)
	if fewer := a.without(c, present, perf); !slices.Equal(fewer, present) {
		present = fewer
		a.limits(c, present)
	}
	var level waterLevel
	level.begin(c, present, perf)
	low, total := level.find(c, present, perf, a.most, sizes)
	a.next.reset(c, a.most, sizes, func(i, b int) float64 { return c.Nodes[i].Finish(perf[i], b) })
	last, tries := low, 0
	for total != c.GlobalBatch {
		if total > c.GlobalBatch {
			if a.takeBack(c, sizes, total-c.GlobalBatch, func(i, b int) bool { return c.Nodes[i].Finish(perf[i], b) <= last }) {
				break
			}
			tries++
		}
		if len(a.next) == 0 || tries > mostTries {
			return 0, c.odd()
		}
		last = max(last, a.next[0].at)
		total += a.next.deal(c, perf, a.most, sizes, c.GlobalBatch-total)
	}
	finish := 0.0
	for i, b := range sizes {
		if b > 0 {
			finish = max(finish, c.Nodes[i].Finish(perf[i], b))
		}
	}
	return finish, nil
}

// check returns an error for parameters that cannot be allocated by, and sets all sizes to 0.
func (c *Cluster) check(present []bool, perf []Performance, sizes []int) error {
	if len(perf) != len(c.Nodes) || len(sizes) != len(c.Nodes) {
		return fmt.Errorf("cluster: %d nodes, but %d performance parameters and %d sizes", len(c.Nodes), len(perf), len(sizes))
	}
	for i := range c.Nodes {
		sizes[i] = 0
		if i < len(present) && !present[i] {
			continue
		}
		if p := perf[i]; !(p.PerSample > 0) || math.IsInf(p.PerSample, 0) || !(p.Overhead >= 0) || math.IsInf(p.Overhead, 0) {
			return fmt.Errorf("cluster: node %s: performance parameters %+v must be finite, Overhead at least 0 and PerSample above 0", c.Label(i), p)
		}
	}
	return c.CheckCapacity(present)
}

// AllocateOnce writes the shares that finish soonest if every node takes exactly one
// micro-step, for work that is not accumulated. It returns what Allocate returns.
func (a *Allocator) AllocateOnce(c *Cluster, perf []Performance, sizes []int) (float64, error) {
	c = c.Own()
	c.SetEqualSteps(1)
	finish, err := a.Allocate(c, nil, perf, sizes)
	if err != nil {
		return 0, err
	}
	// A node without a share finishes last even with its least one, so it does not matter
	// which nodes give samples for it.
	missing := 0
	for i, b := range sizes {
		if b == 0 {
			missing += c.Nodes[i].LeastShare()
		}
	}
	if missing > 0 && !a.takeBack(c, sizes, missing, spared) {
		return 0, fmt.Errorf("%w: %d nodes need their least micro-batch each, the batch is %d", ErrCapacity, len(c.Nodes), c.GlobalBatch)
	}
	for i, b := range sizes {
		if b == 0 {
			sizes[i] = c.Nodes[i].LeastShare()
			finish = max(finish, c.Nodes[i].Finish(perf[i], sizes[i]))
		}
	}
	return finish, nil
}

// limits notes the largest share of every node, 0 of one that takes no part.
func (a *Allocator) limits(c *Cluster, present []bool) {
	a.most = slices.Grow(a.most[:0], len(c.Nodes))
	for i := range c.Nodes {
		most := 0
		if present == nil || present[i] {
			most = c.Nodes[i].MostShare(c.GlobalBatch)
		}
		a.most = append(a.most, most)
	}
}

// waterLevel searches the common finish time. Invariant: the shares at low sum to at
// most the global batch (at 0 they are none), those at high to more.
type waterLevel struct {
	low, high   float64 // seconds
	rate, start float64 // the sum is about the straight line rate*t - start
	slack       int     // samples: the smallest micro-batches of all nodes
	steps       int     // evaluations of all nodes
}

func (l *waterLevel) begin(c *Cluster, present []bool, perf []Performance) {
	*l = waterLevel{high: math.Inf(1)}
	for i := range c.Nodes {
		if present == nil || present[i] {
			l.slack += c.Nodes[i].LeastStep()
			l.rate += 1 / perf[i].PerSample
			l.start += perf[i].Overhead / perf[i].PerSample
		}
	}
}

// find returns a time at which the shares sum to at most the global batch. They miss at most
// half a smallest micro-batch per node, unless many samples finish at the same moment. It writes these
// shares, bounded by most, into sizes and returns their sum.
func (l *waterLevel) find(c *Cluster, present []bool, perf []Performance, most, sizes []int) (low float64, total int) {
	shares := func(t float64) (sum int) {
		for i := range c.Nodes {
			if present == nil || present[i] {
				sizes[i] = share(&c.Nodes[i], perf[i], t, most[i])
				sum += sizes[i]
			}
		}
		return sum
	}
	t := (float64(c.GlobalBatch) + l.start) / l.rate
	for l.steps = 1; ; l.steps++ {
		// Guesses by the line usually end the search in a few steps. Every third step halves
		// the floating-point numbers in between, so the search ends for every curve.
		if !(t > l.low && t < l.high) || l.steps%3 == 0 {
			t = math.Float64frombits((math.Float64bits(l.low) + math.Float64bits(l.high)) / 2)
			if t == l.low {
				return l.low, shares(l.low)
			}
		}
		sum := shares(t)
		if missing := c.GlobalBatch - sum; missing < 0 {
			l.high = t
		} else if l.low = t; missing <= l.slack/2 {
			return l.low, sum
		}
		// Aim a little low: a guess that leaves few samples to deal ends the search.
		t += (float64(c.GlobalBatch-sum) - 0.25*float64(l.slack)) / l.rate
	}
}

// CheckCapacity returns an error if the present nodes (nil: all) cannot make up the global
// batch. It does not search for a sum of micro-batches, so nil does not prove that they can.
func (c *Cluster) CheckCapacity(present []bool) error {
	if present != nil && len(present) != len(c.Nodes) {
		return fmt.Errorf("cluster: %d nodes, but presence of %d", len(c.Nodes), len(present))
	}
	hold, nodes, divisor, least := 0, 0, 0, MaxGlobalBatch
	for i := range c.Nodes {
		if present != nil && !present[i] {
			continue
		}
		nodes++
		n := &c.Nodes[i]
		switch {
		case n.Limit < 1:
			return fmt.Errorf("%w: node %s: Limit is %d; set it to the largest micro-batch its memory holds, or profile.NoLimit",
				ErrCapacity, c.Label(i), n.Limit)
		case n.Full() < 1:
			return fmt.Errorf("%w: node %s: its smallest micro-batch is %d, but its memory holds %d",
				ErrCapacity, c.Label(i), n.LeastStep(), n.Limit)
		}
		if hold < c.GlobalBatch {
			hold += n.MostShare(c.GlobalBatch)
		}
		divisor, least = n.divisor(divisor), min(least, n.LeastShare())
	}
	switch {
	case nodes == 0:
		return fmt.Errorf("%w: no node takes part", ErrCapacity)
	case c.GlobalBatch < 1:
		return fmt.Errorf("%w: global_batch is %d; it must be at least 1", ErrCapacity, c.GlobalBatch)
	case c.GlobalBatch < least && c.EqualSteps() > 1:
		return fmt.Errorf("%w: %d equal micro-steps take %d samples or more, global_batch is %d; raise it, or lower equal_steps or micro_batch", ErrCapacity, c.EqualSteps(), least, c.GlobalBatch)
	case c.GlobalBatch < least:
		return fmt.Errorf("%w: no node takes fewer than %d samples, global_batch is %d; raise it, or lower micro_batch", ErrCapacity, least, c.GlobalBatch)
	case c.GlobalBatch%divisor != 0:
		return fmt.Errorf("%w: all micro-batches are multiples of %d, global_batch is %d", ErrCapacity, divisor, c.GlobalBatch)
	case hold < c.GlobalBatch:
		return fmt.Errorf("%w: %d nodes make up %d samples at most, in %d micro-steps each; global_batch is %d; lower it, or add nodes or memory",
			ErrCapacity, nodes, hold, cmp.Or(c.EqualSteps(), MaxMicroSteps), c.GlobalBatch)
	}
	return nil
}

// MakesUp returns an error unless shares of all nodes make up the global batch.
func (c *Cluster) MakesUp() error {
	if err := c.CheckCapacity(nil); err != nil || !slices.ContainsFunc(c.Nodes, func(n Node) bool { return n.LeastShare() > 1 }) {
		return err // single samples make up any batch
	}
	_, err := Allocate(c, nil, c.Nominal(), make([]int, len(c.Nodes)))
	return err
}

// odd is the error if no sum of micro-batches is the global batch.
func (c *Cluster) odd() error {
	return fmt.Errorf("%w: the micro-batches that the nodes take do not sum to %d; change global_batch or micro_batch", ErrCapacity, c.GlobalBatch)
}

// Label names a node in messages: its name with its device, or its number.
func (c *Cluster) Label(i int) string {
	n := &c.Nodes[i]
	switch {
	case n.Name == "":
		return strconv.Itoa(i)
	case n.Device == "":
		return n.Name
	}
	return fmt.Sprintf("%s (%s)", n.Name, n.Device)
}

// share is the largest share that finishes by t, at most the share most.
func share(n *Node, p Performance, t float64, most int) int {
	w := (t - p.Overhead) / p.PerSample
	if !(w > 0) {
		return 0
	}
	return n.within(w, most)
}
