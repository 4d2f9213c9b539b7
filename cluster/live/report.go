package live

import (
	"fmt"
	"math"
	"time"

	"evenkeel/cluster"
	"evenkeel/internal/badinput"
)

// Bounds of what a job may report.
const (
	maxSeconds = 1e6     // of a round: eleven days
	maxGap     = 1 << 20 // rounds between two reports
)

// Report is rank 0's report of a round, for all ranks.
type Report struct {
	Round       int           // from 0 in each generation, rising; some may be missing
	Plan        int           // whose sizes the round ran
	WaitSeconds float64       // time of the round on rank 0
	NormSquared float64       // of the aggregated gradient; 0: unknown
	Ranks       []*RankReport // in rank order; nil: the rank handed in nothing
}

// RankReport is one rank's part of a round.
type RankReport struct {
	Seconds      float64 `json:"seconds" minimum:"0" maximum:"1000000" doc:"Seconds of compute, without the wait for others"`
	InputSeconds float64 `json:"input_seconds,omitempty" minimum:"0" maximum:"1000000" doc:"Seconds that the rank waited for its own data beyond the compute; absent: 0"`
	LinkSeconds  float64 `json:"link_seconds,omitempty" minimum:"0" maximum:"1000000" doc:"Seconds that a message takes between this rank and the nearer of two other ranks, of the same size for all ranks; absent: not measured"`
	Samples      int     `json:"samples" minimum:"0" maximum:"1073741824" doc:"Samples in the gradient"`
	MicroSteps   int     `json:"micro_steps" minimum:"0" maximum:"1073741824" doc:"Micro-steps in which the samples were computed"`
	NormSquared  float64 `json:"norm_squared,omitempty" minimum:"0" doc:"Squared norm of the rank's own mean gradient; absent: unknown"`
	OutOfMemory  int     `json:"out_of_memory,omitempty" minimum:"0" maximum:"1073741824" doc:"Micro-batch that did not fit into memory; 0: none"`
}

// Verdict is the service's answer to a report.
type Verdict uint8

const (
	Accepted  Verdict = iota // it counts
	Duplicate                // its round was reported before
	Old                      // newer rounds were reported, or its plan is no longer known
	Early                    // of a single rank: the round has no work for it yet
)

func (v Verdict) String() string {
	return [...]string{"accepted", "duplicate", "old", "early"}[v]
}

// check reports what cannot be true in rank i's part, given the plan h.
func (h *handed) check(prefix string, i int, x *RankReport, f *badinput.Faults) {
	share, timed := h.shares[i], h.timed
	if !measure(x.Seconds, maxSeconds) {
		f.Add(prefix+"seconds", "is %v; it must lie in 0..%v", x.Seconds, float64(maxSeconds))
	}
	if !measure(x.InputSeconds, maxSeconds) {
		f.Add(prefix+"input_seconds", "is %v; it must lie in 0..%v", x.InputSeconds, float64(maxSeconds))
	}
	if !measure(x.LinkSeconds, maxSeconds) {
		f.Add(prefix+"link_seconds", "is %v; it must lie in 0..%v", x.LinkSeconds, float64(maxSeconds))
	}
	if !measure(x.NormSquared, math.MaxFloat64) {
		f.Add(prefix+"norm_squared", "is %v; it must be a number of at least 0", x.NormSquared)
	}
	most := share
	if timed && share > 0 {
		most = cluster.MaxGlobalBatch
	}
	switch {
	case x.Samples < 0 || x.Samples > most:
		f.Add(prefix+"samples", "is %d; plan %d hands rank %d a share of %d", x.Samples, h.number, i, share)
	case x.Samples > 0 && x.Seconds == 0:
		f.Add(prefix+"seconds", "is 0 for %d samples; leave the rank out (null) if its time is not known", x.Samples)
	}
	if x.MicroSteps < min(x.Samples, 1) || x.MicroSteps > x.Samples {
		f.Add(prefix+"micro_steps", "is %d; of %d samples it must lie in %d..%d", x.MicroSteps, x.Samples, min(x.Samples, 1), x.Samples)
	}
	if x.OutOfMemory < 0 || x.OutOfMemory > max(h.steps[i], share) {
		f.Add(prefix+"out_of_memory", "is %d; plan %d hands rank %d micro-batches of at most %d", x.OutOfMemory, h.number, i, max(h.steps[i], share))
	}
}

func measure(v, most float64) bool { return v >= 0 && v <= most }

// check reports what cannot be true in a report.
func (r *Report) check(h *handed) error {
	var f badinput.Faults
	if !measure(r.WaitSeconds, maxSeconds) || r.WaitSeconds == 0 {
		f.Add("wait_seconds", "is %v; it must lie above 0, up to %v", r.WaitSeconds, float64(maxSeconds))
	}
	if !measure(r.NormSquared, math.MaxFloat64) {
		f.Add("norm_squared", "is %v; it must be a number of at least 0", r.NormSquared)
	}
	for i, x := range r.Ranks {
		if x != nil {
			h.check(fmt.Sprintf("ranks[%d].", i), i, x, &f)
		}
	}
	return asError(f)
}

// fill converts a report for the controller.
func (r *Report) fill(h *handed, out *cluster.Report, start time.Duration) {
	*out = cluster.Report{Round: r.Round, Plan: r.Plan, Start: start, Wait: max(seconds(r.WaitSeconds), 1), Nodes: out.Nodes}
	for i, x := range r.Ranks {
		n := &out.Nodes[i]
		*n = cluster.NodeReport{}
		switch {
		case x == nil && h.shares[i] > 0:
			n.Status = cluster.Lost
		case x != nil && x.OutOfMemory > 0 && x.Samples == 0:
			*n = cluster.NodeReport{Status: cluster.Lost, OOM: true, TooLarge: x.OutOfMemory}
		case x != nil && x.Samples > 0:
			x.fill(n, r)
			out.Accepted += x.Samples
		}
	}
	out.Counted = float64(out.Accepted)
}

func (x *RankReport) fill(n *cluster.NodeReport, r *Report) {
	took := x.Seconds + x.InputSeconds // a share also takes as long as its data
	*n = cluster.NodeReport{
		Status: cluster.In, Size: x.Samples, Seconds: took, Input: x.InputSeconds, Link: x.LinkSeconds, Samples: x.Samples, Age: took,
		Idle: max(r.WaitSeconds-took, 0), OOM: x.OutOfMemory > 0, TooLarge: x.OutOfMemory,
	}
	if x.MicroSteps > 1 {
		n.Steps = x.MicroSteps
	}
	if n.OOM {
		n.Seconds = 0 // it includes the attempt that did not fit, whose time is unknown
	}
	n.Norm, n.Agree = gradient(x.NormSquared, r.NormSquared)
}

// gradient returns a rank's norm over the aggregate's and the cosine of the two, from their squared norms; 0 and 0 if these
// are unknown. The cosine is an estimate for ranks that sample alike: on average the inner product of a rank's gradient and
// the aggregate is the aggregate's squared norm.
func gradient(own, all float64) (norm, agree float64) {
	if norm = math.Sqrt(own / all); !(norm > 0) || math.IsInf(norm, 0) {
		return 0, 0
	}
	return norm, min(1/norm, 1)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
