package agent

import (
	"github.com/evenkeel/evenkeel/cluster"
)

// Policy turns reports into the micro-batches of the next round.
//
// A Policy belongs to one run and one goroutine. Decide gets the report of the round
// before (nil before the first), which nodes are present, and the plan of the round before,
// its Collect reset to the cluster's, and writes the next one into it; every
// implementation here keeps every memory limit and meets the global batch.
type Policy interface {
	Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error
}
