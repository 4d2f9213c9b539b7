package agent

import (
	"github.com/evenkeel/evenkeel/cluster"
)

// Policy turns reports into the micro-batches of the next round.
//
// A Policy belongs to one run and one goroutine. Decide takes the report of the previous
// round (nil before the first) and the nodes that are present. plan is the previous round's
// with its Collect reset to the cluster's; Decide writes the next plan into it. Every
// implementation here keeps every memory limit and meets the global batch.
type Policy interface {
	Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error
}
