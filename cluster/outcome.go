package cluster

import (
	"math"
	"slices"
)

// Work is what one node does in a round, timed from its opening: what it computes
// first, and, where that is work of an older model, this round's after it.
type Work struct {
	At, Took float64 // seconds: when the first gradient is there, and how long it was in work
	Size     int
	Behind   int // updates since the model of the first gradient; 0: this round's own
	// The same of this round's work after older one; size 0: there is none.
	NextAt, NextTook float64
	NextSize         int
	Power            Power
}

// Outcome is what a round under some rule comes to.
type Outcome struct {
	Wait    float64 // seconds until it closes
	Counted float64 // samples accepted, each with its Credit
	Later   float64 // what the gradients still in work will count
	Debt    float64 // samples that their nodes cannot begin meanwhile
	Late    float64 // samples still in work: they will count as aged
	Idle    float64 // seconds without work, summed over the nodes
	Joules  float64 // of the nodes whose power is known, the rest of the late work included
}

// PerSample is the energy of a counted sample, in joules.
func (o Outcome) PerSample() float64 { return o.Joules / max(o.Counted+o.Later, 1e-9) }

// Outcomes says what one round's work comes to under any rule: the round rule in closed
// form, without staleness bound, timeout and failures in mid-round. It keeps its working
// memory; the zero value is ready.
type Outcomes struct {
	work  []Work
	first []float64 // sorted
}

// Set takes in the work of the nodes that take part; it is copied.
func (o *Outcomes) Set(work []Work) {
	o.work = append(o.work[:0], work...)
	o.first = o.first[:0]
	for i := range o.work {
		at := o.work[i].At
		if o.work[i].NextSize > 0 {
			at = o.work[i].NextAt
		}
		o.first = append(o.first, at)
	}
	slices.Sort(o.first)
}

// Under returns the outcome under a rule; zero where no node takes part.
func (o *Outcomes) Under(r Rule) Outcome {
	n := len(o.first)
	if n == 0 {
		return Outcome{}
	}
	quorum := Quorum{Share: r.Quorum}
	end := min(o.first[quorum.Of(n)-1]*(1+r.Grace), o.first[n-1])
	out := Outcome{Wait: end}
	for i := range o.work {
		w := &o.work[i]
		switch {
		case w.At > end:
			out.late(w.Size, w.Behind, w.At-end, w.Took, end)
			out.Joules += w.Power.Joules(w.At, w.At)
			continue
		case w.NextSize > 0 && w.NextAt > end:
			out.late(w.NextSize, 0, w.NextAt-end, w.NextTook, end)
			out.Joules += w.Power.Joules(w.NextAt, w.NextAt)
		case w.NextSize > 0:
			out.Counted += float64(w.NextSize)
			out.Idle += end - w.NextAt
			out.Joules += w.Power.Joules(w.NextAt, end)
		default:
			out.Idle += end - w.At
			out.Joules += w.Power.Joules(w.At, end)
		}
		out.Counted += float64(w.Size) * Credit(w.Behind)
	}
	return out
}

// late counts work that still takes left seconds when the round closes. What its node
// could have done in the next round is lost for as long.
func (o *Outcome) late(size, behind int, left, took, wait float64) {
	b := float64(size)
	o.Late += b
	o.Later += b * Credit(behind+int(min(math.Ceil(left/max(wait, 1e-9)), 1e6)))
	o.Debt += b * min(left/max(took, 1e-9), 1)
}

// Quantile is the time in seconds by which a share of the nodes has delivered.
func (o *Outcomes) Quantile(share float64) float64 {
	if len(o.first) == 0 {
		return 0
	}
	q := Quorum{Share: share}
	return o.first[q.Of(len(o.first))-1]
}
