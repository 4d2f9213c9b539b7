package export

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"evenkeel/cluster"
)

// What happens to the last micro-step before a deadline.
const (
	cut   = "cut"   // it is made smaller, so that it ends in time
	whole = "whole" // it is left out: all micro-steps are full
)

// Deadline says when the ranks stop accumulating gradients. Each rank then hands in what it has, weighted by its samples. The
// shares are the samples that the ranks are expected to have.
type Deadline struct {
	Seconds    float64 `json:"seconds"`           // from the round's beginning to the arrival of the gradients, > 0
	Auto       bool    `json:"auto"`              // the trainer adjusts it so that a round has the global batch on average
	Reserve    float64 `json:"reserve"`           // share of the time left that the last micro-step keeps free, [0, 1)
	Overtime   float64 `json:"overtime,omitzero"` // longest micro-step after the deadline, while another rank is late, as a share of it, [0, 1]
	MicroSteps string  `json:"micro_steps"`       // "cut": the last one is cut to end in time; "whole": full ones only
}

// NodeDeadline is what a rank needs to stop in time.
type NodeDeadline struct {
	Seconds          float64 `json:"seconds"`            // of work: the deadline less the time of the rank's network, > 0
	MicroStepSeconds float64 `json:"micro_step_seconds"` // predicted for a full micro-step, > 0
	Least            int     `json:"least"`              // smallest micro-batch that the rank takes, >= 1
	Sizes            []int   `json:"sizes,omitempty"`    // all micro-batches that it takes, rising to micro_batch; none: any from Least
}

// setDeadline adds the deadline of the cluster's round rule. perf gives the predicted finish
// time, from which a deadline may follow.
func (s *Sizes) setDeadline(c *cluster.Cluster, perf []cluster.Performance) {
	r := &c.Collect
	if !r.Timed() {
		return
	}
	seconds := r.Deadline.Seconds()
	if seconds == 0 {
		for i, n := range s.Nodes {
			if n.Share > 0 {
				seconds = max(seconds, c.Nodes[i].Finish(perf[i], n.Share))
			}
		}
		if r.DeadlineShare > 0 {
			seconds *= r.DeadlineShare
		}
	}
	s.Deadline = &Deadline{Seconds: seconds, Auto: r.AutoDeadline, Reserve: r.Reserve, Overtime: r.Overtime, MicroSteps: cut}
	if r.Whole {
		s.Deadline.MicroSteps = whole
	}
	for i := range s.Nodes {
		n, own := &s.Nodes[i], &c.Nodes[i]
		if n.Share == 0 {
			continue
		}
		n.Deadline = &NodeDeadline{Seconds: seconds - own.Network, MicroStepSeconds: perf[i].PerSample * own.Cost(n.MicroBatch), Least: min(own.LeastShare(), n.MicroBatch)}
		for _, b := range own.Shapes {
			if b <= n.MicroBatch {
				n.Deadline.Sizes = append(n.Deadline.Sizes, b)
			}
		}
	}
}

// checkDeadline is the part of Validate about the deadline.
func (s *Sizes) checkDeadline(bad func(path, format string, args ...any)) {
	d := s.Deadline
	if d != nil {
		switch {
		case !positive(d.Seconds):
			bad("deadline.seconds", "is %v; it must lie above 0", d.Seconds)
		case !(d.Reserve >= 0 && d.Reserve < 1):
			bad("deadline.reserve", "is %v; it must lie in 0..1, 1 excluded", d.Reserve)
		case !(d.Overtime >= 0 && d.Overtime <= 1):
			bad("deadline.overtime", "is %v; it must lie in 0..1", d.Overtime)
		case d.MicroSteps != cut && d.MicroSteps != whole:
			bad("deadline.micro_steps", "is %.40q; it must be %s or %s", d.MicroSteps, cut, whole)
		}
	}
	for i := range s.Nodes {
		n, path := &s.Nodes[i], fmt.Sprintf("nodes[%d].deadline", i)
		if (n.Deadline != nil) != (d != nil && n.Share > 0) {
			bad(path, "must be given for every rank if the sizes have a deadline, and otherwise left out")
			continue
		}
		if n.Deadline != nil {
			n.Deadline.check(path, n, d, bad)
		}
	}
}

func (d *NodeDeadline) check(path string, n *Node, of *Deadline, bad func(path, format string, args ...any)) {
	switch {
	case !positive(d.Seconds) || d.Seconds > of.Seconds:
		bad(path+".seconds", "is %v; it must lie above 0 and be at most deadline.seconds, %v", d.Seconds, of.Seconds)
	case !positive(d.MicroStepSeconds):
		bad(path+".micro_step_seconds", "is %v; it must lie above 0", d.MicroStepSeconds)
	case d.Least < 1 || d.Least > n.MicroBatch:
		bad(path+".least", "is %d; it must lie in 1..%d, micro_batch", d.Least, n.MicroBatch)
	case len(d.Sizes) > 0 && (d.Sizes[0] != d.Least || d.Sizes[len(d.Sizes)-1] != n.MicroBatch ||
		!slices.IsSorted(d.Sizes) || len(slices.Compact(slices.Clone(d.Sizes))) < len(d.Sizes)):
		bad(path+".sizes", "must rise from least, %d, to micro_batch, %d", d.Least, n.MicroBatch)
	}
}

func positive(v float64) bool { return v > 0 && !math.IsInf(v, 1) }

// variables returns the environment variables about the deadline.
func (d *NodeDeadline) variables(of *Deadline) []variable {
	sizes := make([]string, len(d.Sizes))
	for i, b := range d.Sizes {
		sizes[i] = strconv.Itoa(b)
	}
	return []variable{
		{"EVENKEEL_DEADLINE_SECONDS", decimal(d.Seconds)},
		{"EVENKEEL_DEADLINE_RESERVE", decimal(of.Reserve)},
		{"EVENKEEL_DEADLINE_MICRO_STEPS", of.MicroSteps},
		{"EVENKEEL_MICRO_STEP_SECONDS", decimal(d.MicroStepSeconds)},
		{"EVENKEEL_LEAST_MICRO_BATCH", strconv.Itoa(d.Least)},
		{"EVENKEEL_MICRO_BATCHES", word(strings.Join(sizes, " "))},
	}
}
