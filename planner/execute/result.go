package execute

// Result is the outcome of a run.
type Result struct {
	Losses []float64 `json:"losses"` // of each iteration, the mean over its batch before the update
	// Seconds are those of each iteration on the server, from its first operation to the next one's.
	Seconds []float64 `json:"seconds"`
	// Median is theirs without the first iteration, where there are more.
	Median float64 `json:"seconds_per_iteration"`
	// Predicted is the simulation of the schedule with what the stages took for a micro-batch just before the run; Plan
	// is the prediction in the plan, for its own devices, 0 where it has none.
	Predicted float64    `json:"predicted_seconds"`
	Plan      float64    `json:"plan_seconds,omitempty"`
	Stages    []Measured `json:"stages"` // none of clients where the run was interrupted hard
}

// finish works out the median.
func (r *Result) finish() {
	seconds := append([]float64(nil), r.Seconds...)
	if len(seconds) > 1 {
		seconds = seconds[1:]
	}
	r.Median = median(seconds)
}
