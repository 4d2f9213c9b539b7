package cluster

import "context"

// Plan is what a policy decides for a round.
type Plan struct {
	Sizes   []int   // micro-batch per node, in node order; 0 for an absent one
	Collect Collect // how the round collects gradients
}

// Runner carries out rounds: the simulator now, live workers behind the same seam.
// A Runner is not safe for concurrent use. The report stays valid until the next
// call of Round.
type Runner interface {
	// Present says which nodes take work in the next round.
	Present() []bool
	// Round hands out the plan's sizes (ignored where a node is not present), collects
	// gradients by its rule and reports.
	Round(ctx context.Context, plan Plan) (*Report, error)
}

// Credit is what a sample counts whose gradient was computed on a model that has been
// updated behind times since: 1/(1+behind), as staleness-aware training weights it
// (Zhang, Gupta, Lian and Liu, IJCAI 2016, divide the learning rate by the staleness).
func Credit(behind int) float64 { return 1 / float64(1+behind) }
