package planner

import (
	"context"

	"evenkeel/planner/bound"
)

// LowerBound shows the tests of other packages the bound where a plan of so many seconds is known.
func (j *Job) LowerBound(batch int, best float64) float64 {
	return bound.Lower(context.Background(), j.model, batch, best)
}
