package cluster

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func init() { _ = flag.Set("rapid.checks", "1000") } // cheap properties; the command line still rules

// event is what happens to a node in a round.
type event struct {
	at    time.Duration
	node  int
	model time.Duration // of the gradient
	lost  bool          // the node fails instead
}

const opened = 10 * time.Nanosecond

// outcome is how a round went: a verdict for every event, and its end.
type outcome struct {
	verdicts []Verdict
	seen     int // events before the end
	end      time.Duration
	closed   bool
}

// over closes a collection whose limit lies before now, as a Recorder does.
func over(r *collection, now time.Duration) bool {
	if t, limited := r.limit(); limited && now > t && !r.closed {
		r.close(t)
	}
	return r.closed
}

// machine feeds the events to a collection.
func machine(c Collect, n int, events []event) outcome {
	r, o, in := c.open(opened, n), outcome{}, map[int]bool{}
	for _, e := range events {
		verdict := Verdict(0)
		if over(&r, e.at) {
			o.verdicts = append(o.verdicts, verdict)
			continue
		}
		o.seen++
		switch {
		case !e.lost:
			verdict = r.receive(e.at, e.model, e.model == opened)
			in[e.node] = in[e.node] || verdict == Fresh
		case !in[e.node]:
			r.lose(e.at)
		}
		o.verdicts = append(o.verdicts, verdict)
	}
	over(&r, math.MaxInt64)
	o.end, o.closed = r.end, r.closed
	return o
}

// definition computes the same by the words of the design, from the whole list at once.
func definition(c Collect, n int, events []event) outcome {
	fresh := func(e event) bool { return c.MaxStaleness == 0 || e.at-e.model < c.MaxStaleness }
	current := func(e event) bool { return e.model == opened }
	when := func(k int) time.Duration { // after the first k events
		if k == 0 {
			return opened
		}
		return events[k-1].at
	}
	// nodes whose work for this round is accepted among the first k events, q being the event that completes the quorum.
	in := func(k, q int) map[int]bool {
		m := map[int]bool{}
		for i, e := range events[:k] {
			if !e.lost && current(e) && (fresh(e) || i < q) {
				m[e.node] = true
			}
		}
		return m
	}
	// nodes that nothing more can be expected of: lost, or refused with this round's work.
	gone := func(k, q int) (lost, refused int) {
		for i, e := range events[:k] {
			if !in(i, q)[e.node] {
				if e.lost {
					lost++
				} else if current(e) && !fresh(e) && i >= q {
					refused++
				}
			}
		}
		return lost, refused
	}
	never := len(events) + 1

	quorum := 0
	for ; quorum < never; quorum++ {
		lost, _ := gone(quorum, never)
		if len(in(quorum, never)) >= c.Quorum.Of(n-lost) {
			break
		}
	}
	over := 0
	for ; over < never; over++ {
		lost, refused := gone(over, quorum)
		if len(in(over, quorum)) >= n-lost-refused {
			break
		}
	}
	limit := time.Duration(math.MaxInt64)
	if quorum < never {
		limit = when(quorum) + c.Grace + time.Duration(c.GraceShare*float64(when(quorum)-opened))
	}
	if c.Timeout > 0 {
		limit = min(limit, opened+c.Timeout)
	}
	o := outcome{verdicts: make([]Verdict, len(events))}
	if limit < math.MaxInt64 {
		o.end, o.closed = limit, true
	}
	if over < never && when(over) <= limit {
		o.end, o.closed = when(over), true
	}
	for i, e := range events {
		if i >= over || e.at > o.end && o.closed {
			break
		}
		o.seen++
		switch {
		case e.lost:
		case !fresh(e) && (!current(e) || i >= quorum):
			o.verdicts[i] = Stale
		case current(e):
			o.verdicts[i] = Fresh
		default:
			o.verdicts[i] = Aged
		}
	}
	return o
}

// drawRound invents a round: every node may hand in an older gradient, and then this
// round's, fail, or stay silent, in which case the events do not end the round.
func drawRound(t *rapid.T) (c Collect, n int, events []event, ends bool) {
	n = rapid.IntRange(0, 6).Draw(t, "nodes")
	ns := func(most int, name string) time.Duration { return time.Duration(rapid.IntRange(0, most).Draw(t, name)) }
	c = Collect{
		Grace: ns(6, "grace"), MaxStaleness: ns(14, "staleness"),
		GraceShare: rapid.SampledFrom([]float64{0, 0, 0.5, 1}).Draw(t, "grace share"),
		Quorum:     Quorum{Count: rapid.IntRange(0, 7).Draw(t, "count"), Share: rapid.SampledFrom([]float64{0, 0.01, 0.5, 0.7, 1}).Draw(t, "share")},
	}
	if rapid.Bool().Draw(t, "limited") {
		c.Timeout = 1 + ns(14, "timeout")
	}
	ends = true
	for node := range n {
		at := opened + ns(8, "at")
		if rapid.IntRange(0, 2).Draw(t, "late") == 0 {
			events = append(events, event{at: at, node: node, model: ns(9, "model")})
			at += ns(8, "more")
		}
		switch rapid.IntRange(0, 6).Draw(t, "then") {
		case 0:
			ends = false
		case 1:
			events = append(events, event{at: at, node: node, lost: true})
		default:
			events = append(events, event{at: at, node: node, model: opened})
		}
	}
	slices.SortStableFunc(events, func(a, b event) int { return int(a.at - b.at) })
	return c, n, events, ends
}

func TestCollectionByDefinition(t *testing.T) {
	closed := 0
	rapid.Check(t, func(t *rapid.T) {
		c, n, events, ends := drawRound(t)
		got, want := machine(c, n, events), definition(c, n, events)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%+v\n%d nodes: %+v\n got %+v\nwant %+v", c, n, events, got, want)
		}
		if ends && !got.closed {
			t.Fatalf("the round waits for ever: %+v\n%+v", c, events)
		}
		if got.closed {
			closed++
		}
	})
	if closed == 0 {
		t.Error("no round ever closed")
	}
}

func TestQuorumOf(t *testing.T) {
	for _, c := range []struct {
		quorum Quorum
		n      int
		want   int
	}{
		{Quorum{}, 7, 7}, {Quorum{Count: 3}, 7, 3}, {Quorum{Count: 9}, 7, 7}, {Quorum{Share: 0.7}, 10, 7},
		{Quorum{Share: 0.5}, 7, 4}, {Quorum{Share: 1e-12}, 7, 1}, {Quorum{Share: 1}, 7, 7}, {Quorum{Share: 0.5}, 0, 0},
		{Quorum{Share: 0.1}, 100_000, 10_000}, {Quorum{Count: 1, Share: 1}, 2, 1}, {Quorum{Count: 1}, 0, 0},
	} {
		if got := c.quorum.Of(c.n); got != c.want {
			t.Errorf("%+v of %d: %d, want %d", c.quorum, c.n, got, c.want)
		}
	}
}

// Times near the end of the clock, and numbers no file would let through, close a round
// rather than run over.
func TestCollectionExtremes(t *testing.T) {
	const last = time.Duration(math.MaxInt64)
	for _, c := range []Collect{
		{Quorum: Quorum{Count: 1}, Grace: last},
		{Quorum: Quorum{Count: 1}, GraceShare: math.Inf(1)},
		{Quorum: Quorum{Count: 1}, GraceShare: math.NaN()},
		{Quorum: Quorum{Count: 1}, Grace: -last},
		{Quorum: Quorum{Count: 1}, Timeout: last},
	} {
		r := c.open(last-10, 2)
		if v := r.receive(last-5, last-10, true); v != Fresh {
			t.Errorf("%+v: %v", c, v)
		}
		if at, ok := r.limit(); !ok || at < last-5 {
			t.Errorf("%+v: deadline %v %v", c, at, ok)
		}
	}
}

// A share is one of the nodes of which something is expected; a count and all stand.
func TestQuorumWithout(t *testing.T) {
	for _, x := range []struct {
		q    Quorum
		n    int
		want int
	}{
		{Quorum{Share: 0.8, Without: 1}, 8, 6}, {Quorum{Share: 0.8}, 8, 7}, {Quorum{Share: 0.5, Without: 3}, 4, 1}, {Quorum{Share: 0.5, Without: 9}, 4, 1},
		{Quorum{Count: 4, Without: 3}, 5, 4}, {Quorum{Without: 3}, 5, 5}, {Quorum{Share: 0.8, Without: 1}, 0, 0},
	} {
		if got := x.q.Of(x.n); got != x.want {
			t.Errorf("%+v of %d is %d, want %d", x.q, x.n, got, x.want)
		}
	}
}

// A rule is timed by any of the three ways to name a deadline, and by none else.
func TestTimed(t *testing.T) {
	for _, c := range []struct {
		collect Collect
		timed   bool
	}{
		{Collect{}, false}, {Collect{Grace: 1, Timeout: 1, Reserve: 0.1, Overtime: 0.1}, false},
		{Collect{Deadline: 1}, true}, {Collect{DeadlineShare: 0.5}, true}, {Collect{AutoDeadline: true}, true},
	} {
		if got := c.collect.Timed(); got != c.timed {
			t.Errorf("%+v: %v", c.collect, got)
		}
	}
}

func TestRuleString(t *testing.T) {
	for want, r := range map[string]Rule{"quorum 80% +3%": {0.8, 0.03}, "quorum 95%": {0.95, 0}, "quorum all": {1, 0.1}} {
		if got := r.String(); got != want {
			t.Errorf("%+v: %q, want %q", r, got, want)
		}
	}
}
