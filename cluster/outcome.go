package cluster

import (
	"math"
	"slices"
)

// Delivery says when a node hands in its gradients of a round, in seconds from the opening
// of the round: the first one and, if that is of an older model, this round's after it.
type Delivery struct {
	At, Took float64 // when the first gradient arrives, and how long it took to compute
	Size     int
	Behind   int // updates since the model of the first gradient; 0: this round's own
	// The same for this round's gradient after an older one; size 0: none.
	NextAt, NextTook float64
	NextSize         int
	Power            Power
}

// Outcome is how a round under some rule ends.
type Outcome struct {
	Wait    float64 // seconds until it closes
	Counted float64 // samples accepted, each with its Credit
	Later   float64 // samples still being computed, each with its Credit in a later round
	Debt    float64 // samples that the late nodes cannot begin meanwhile
	Late    float64 // samples still being computed
	Idle    float64 // seconds without work, summed over the nodes
	Joules  float64 // of the nodes whose power is known, the rest of the late work included
}

// PerSample is the energy of a counted sample, in joules.
func (o Outcome) PerSample() float64 { return o.Joules / max(o.Counted+o.Later, 1e-9) }

// Outcomes computes how a round ends under any rule, given its deliveries. It is the round rule
// in closed form, without staleness bound, timeout and failures during the round. It reuses its
// memory; the zero value is ready to use.
type Outcomes struct {
	work    []Delivery
	first   []float64 // when each node has delivered; sorted once some rule has asked for a quorum
	sorted  bool
	last    float64   // of first
	alone   []float64 // when a node's only gradient arrives; infinite where it has two
	credits []float64 // samples of the first gradients times their Credit, which every rule needs
	powered bool      // some node's power is known
	whole   Outcome   // of waiting for all; zero until a rule needs it
}

// Set sets the deliveries of the nodes that take part. It keeps work, which must not change before the last call of Under.
func (o *Outcomes) Set(work []Delivery) {
	o.work, o.sorted, o.last, o.whole = work, false, math.Inf(-1), Outcome{}
	o.first, o.alone, o.credits, o.powered = o.first[:0], o.alone[:0], o.credits[:0], false
	for i := range o.work {
		w := &o.work[i]
		at, alone := w.At, w.At
		if w.NextSize > 0 {
			at, alone = w.NextAt, math.Inf(1)
		}
		o.first, o.alone = append(o.first, at), append(o.alone, alone)
		o.credits = append(o.credits, float64(w.Size)*Credit(w.Behind))
		o.powered = o.powered || w.Power != Power{}
		o.last = max(o.last, at)
	}
}

// Under returns the outcome under a rule; zero where no node takes part.
func (o *Outcomes) Under(r Rule) Outcome {
	n := len(o.first)
	if n == 0 {
		return Outcome{}
	}
	quorum := o.last
	if k := (Quorum{Share: r.Quorum}).Of(n); k < n {
		if !o.sorted {
			slices.Sort(o.first)
			o.sorted = true
		}
		quorum = o.first[k-1]
	}
	end := min(quorum*(1+r.Grace), o.last) // as collection.check has it, in seconds
	if end < o.last {
		return o.until(end)
	}
	if o.whole == (Outcome{}) {
		o.whole = o.until(end)
	}
	return o.whole
}

// until is the outcome of a round that ends at a given time.
func (o *Outcomes) until(end float64) Outcome {
	out := Outcome{Wait: end}
	idle, counted := 0.0, 0.0 // local, so that they stay in registers
	credits := o.credits[:len(o.alone)]
	for i, alone := range o.alone {
		if alone <= end && !o.powered { // most of them
			idle += end - alone
			counted += credits[i]
			continue
		}
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
			counted += float64(w.NextSize)
			idle += end - w.NextAt
			out.Joules += w.Power.Joules(w.NextAt, end)
		default:
			idle += end - w.At
			out.Joules += w.Power.Joules(w.At, end)
		}
		counted += credits[i]
	}
	out.Idle, out.Counted = idle, counted
	return out
}

// late counts work that still takes left seconds when the round closes. For as long, its
// node cannot work for the next round.
func (o *Outcome) late(size, behind int, left, took, wait float64) {
	b := float64(size)
	o.Late += b
	o.Later += b * Credit(behind+int(min(math.Ceil(left/max(wait, 1e-9)), 1e6)))
	o.Debt += b * min(left/max(took, 1e-9), 1)
}
