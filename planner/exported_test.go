package planner

import "context"

// Exhaust is the least seconds of an iteration below a limit of all plans of a small job, which it shows to the tests of other packages.
func (j *Job) Exhaust(batch int, limit float64) (seconds float64, complete bool) {
	x := j.model.Exhaust(context.Background(), batch, limit)
	return x.Seconds, x.Complete
}
