package planner

import (
	"context"

	"github.com/evenkeel/evenkeel/planner/costmodel"
)

// Exhaust is the least seconds of an iteration below a limit of all plans of a small job, which it shows to the tests of other packages.
func (j *Job) Exhaust(batch int, limit float64) (seconds float64, complete bool) {
	work := costmodel.ExhaustWork
	x := j.model.Exhaust(context.Background(), batch, limit, &work)
	return x.Seconds, x.Complete
}
