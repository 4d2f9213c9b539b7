// Package trace holds measured times of workers, round by round, for the simulator to
// replay. A trace is a CSV file with a header and a row for each worker and round:
//
//	job,worker,round,seconds
//	1,0,1,0.476
//	1,1,1,0.509
//
// [Read] takes the names of the columns and ignores others; a log of one worker's steps, or of one job's, needs round and seconds
// only. Rows may come in any order, and
// rounds may be missing: a time holds until the worker's next one.
//
// The simulator replays factors: a time divided by the median time of its job. So the unit does not matter, and
// constant differences between the workers of a job remain.
package trace

import (
	"math"
	"slices"
	"sort"
)

// Bounds of a factor: beyond them it is clipped.
const (
	LeastFactor = 0.01
	MostFactor  = 100
)

// Trace is the jobs of a file, in the order in which they first appear.
type Trace struct {
	Source string // the text that was read
	Jobs   []Job
}

// Job is workers that were measured together.
type Job struct {
	Name        string // "": the file has no column for it
	First, Last int    // the rounds over which every worker of the job has a time
	Workers     []Worker
}

// Worker is the factors of one worker.
type Worker struct {
	Name    string
	rounds  []int // increasing
	factors []float64
}

// At is the factor in a round: that of the last row at or before it, or of the first row.
func (w *Worker) At(round float64) float64 {
	k := sort.Search(len(w.rounds), func(k int) bool { return float64(w.rounds[k]) > round })
	return w.factors[max(k-1, 0)]
}

// Turn maps a position, in rounds from the job's first one on, to a round of the job:
// forwards to its last round, then backwards to its first, and so on.
func (j *Job) Turn(position float64) float64 {
	span := float64(j.Last - j.First)
	if span == 0 {
		return float64(j.First)
	}
	if position = math.Mod(position, 2*span); position > span {
		position = 2*span - position
	}
	return float64(j.First) + position
}

// set makes the factors of rows sorted by round.
func (w *Worker) set(rows []row, middle float64) {
	w.rounds, w.factors = make([]int, len(rows)), make([]float64, len(rows))
	for k, r := range rows {
		w.rounds[k], w.factors[k] = r.round, min(max(r.time/middle, LeastFactor), MostFactor)
	}
}

// median sorts the values.
func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return values[(n-1)/2]/2 + values[n/2]/2
}
