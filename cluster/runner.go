package cluster

import (
	"context"
	"slices"
	"time"
)

// Plan is what a policy decides for a round.
type Plan struct {
	Number  int     // rises by 1 from plan to plan, from 1; 0: they are not numbered
	Sizes   []int   // share of the round per node in samples, in node order; 0: it takes no part
	Collect Collect // how the round collects gradients
	// Perf are the parameters that the sizes follow from. Under a deadline a node assumes them
	// for its first micro-step. nil: the profiles.
	Perf []Performance
	// Probe says which nodes' pace is hardly known. Under a deadline their first micro-step is
	// their smallest, so that no node waits for a large one. nil: none.
	Probe  []bool
	Finish float64 // predicted finish time of the sizes in seconds; 0: not known
}

// Own returns a copy that shares no memory with the plan.
func (p Plan) Own() Plan {
	p.Sizes, p.Perf, p.Probe = slices.Clone(p.Sizes), slices.Clone(p.Perf), slices.Clone(p.Probe)
	return p
}

// Beyond says whether nodes go beyond their shares in the round: until a deadline.
func (p *Plan) Beyond() bool { return p.Collect.Deadline > 0 }

// Runner carries out rounds: the simulator, or a trainer of your own. A Runner is not
// safe for concurrent use. The report stays valid until the next call of Round.
type Runner interface {
	// Present says which nodes take work in the next round.
	Present() []bool
	// Round hands out the plan's sizes (ignored where a node is not present), collects
	// gradients by its rule and reports.
	Round(ctx context.Context, plan Plan) (*Report, error)
}

// Status is the state of a node when the round closed.
type Status uint8

const (
	Absent  Status = iota // took no part
	In                    // a gradient of it was accepted
	Late                  // still computing: its time is only known to exceed Seconds
	Refused               // delivered, but too stale to be taken
	Lost                  // failed, ran out of memory, or was silent until the timeout
)

func (s Status) String() string {
	return [...]string{"absent", "in", "late", "refused", "lost"}[s]
}

// Report is what a round shows to a policy and writes to the run log.
type Report struct {
	Round    int           `json:"round"`
	Plan     int           `json:"plan,omitzero"` // number of the plan that the round ran; 0: the newest
	Start    time.Duration `json:"start_ns"`      // since the start of the run
	Wait     time.Duration `json:"wait_ns"`       // total wait: opening to closing of the round
	Accepted int           `json:"accepted"`      // samples in accepted gradients
	Counted  float64       `json:"counted"`       // the same, each sample with its Credit
	Nodes    []NodeReport  `json:"nodes"`         // in node order
	// Predicted is the predicted finish time, in seconds, of a plan that is not the newest; 0: the plan is the newest.
	Predicted float64 `json:"-"`
}

// NodeReport is one node's part of a Report.
type NodeReport struct {
	Status  Status  `json:"status"`
	Size    int     `json:"size"`            // samples that Seconds belongs to
	Steps   int     `json:"steps,omitempty"` // micro-steps that Size was computed in, where there were several
	Seconds float64 `json:"seconds"`         // hand-out to arrival; for a late node so far; 0 if nothing is known
	Input   float64 `json:"input,omitempty"` // of these seconds, those that its own data took beyond its compute
	Link    float64 `json:"link,omitempty"`  // seconds that its link takes for a message; 0: not measured
	Samples int     `json:"samples"`         // accepted in this round
	Aged    int     `json:"aged"`            // of these, computed on an older model
	Age     float64 `json:"age"`             // seconds between the newest gradient and the model it was computed on
	Behind  int     `json:"behind"`          // updates between them
	Idle    float64 `json:"idle"`            // seconds without work between hand-out and the end of the round
	// Busy is how long, in seconds, the node had been at the work of BusySize samples that
	// was still under way when the round closed; both 0: it was idle.
	Busy     float64 `json:"busy"`
	BusySize int     `json:"busy_size"`
	Norm     float64 `json:"norm"`  // of the newest gradient, over the aggregate's; 0: unknown
	Agree    float64 `json:"agree"` // cosine of the newest gradient and the aggregate
	OOM      bool    `json:"oom,omitempty"`
	TooLarge int     `json:"too_large,omitzero"` // micro-step that memory did not hold; 0: the plan's largest
	Pause    float64 `json:"pause,omitempty"`    // seconds that it will stand still before its work of the next round, as it says; its Seconds then include them
	Joules   float64 `json:"joules,omitempty"`   // drawn in this round; 0 where the node's power is unknown
}

// Measured reports whether Seconds is a whole measurement of Size samples, rather
// than a bound.
func (n *NodeReport) Measured() bool {
	return n.Seconds > 0 && n.Size > 0 && (n.Status == In || n.Status == Refused)
}

// Credit is the weight of a sample whose gradient was computed on a model that has been
// updated behind times since: 1/(1+behind), as in staleness-aware training
// (Zhang, Gupta, Lian and Liu, IJCAI 2016, divide the learning rate by the staleness).
func Credit(behind int) float64 { return 1 / float64(1+behind) }

// Efficiency is the statistical efficiency of a round that counted n samples, over one of the
// global batch, at a gradient noise scale in samples (0: unknown): (scale+B)/(scale+n), as in Pollux (Qiao et al., OSDI 2021).
func Efficiency(scale, globalBatch, n float64) float64 {
	if scale == 0 {
		return 1
	}
	return (scale + globalBatch) / (scale + n)
}
