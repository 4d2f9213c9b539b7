package main

import (
	"math"
	"slices"
)

// stage is a stage of a plan.
type stage struct{ from, to, tensor, replicas int }

// run is a way to run nodes from..to-1: on a shape, where the stage and those behind have replicas for so many micro-batches
// of each of its own.
type run struct {
	from, to, shape, micros int
	seconds                 float64
}

// exact is the least seconds of a sample, and its plan; none: +Inf. As only the slowest stage counts, it halves the interval
// of the time in question: under a time, dynamic programming finds the fewest devices for the last nodes and each number of
// replicas.
func (c *costs) exact() (seconds float64, best []stage) {
	runs := c.runs()
	low, high := 0.0, math.Inf(1)
	for limit := high; ; limit = (low + high) / 2 {
		if v, stages := c.under(runs, limit); stages != nil {
			high, best = v, stages
		} else if math.IsInf(high, 1) {
			return high, nil
		} else {
			low = limit
		}
		if high-low <= 1e-12*high {
			return high, best
		}
	}
}

// runs are all, by their first node from the last.
func (c *costs) runs() []run {
	n, most := len(c.Nodes), min(c.Batch, c.devices)
	var all []run
	for from := n - 1; from >= 0; from-- {
		for to := from + 1; to <= n; to++ {
			for i, shape := range c.shapes {
				for y := 1; (y-1)*shape[1] < most; y++ {
					v, _, ok := c.stage(from, to, c.degree[i], shape[1], y)
					if !ok {
						break
					}
					all = append(all, run{from, to, i, y, v})
				}
			}
		}
	}
	return all
}

// under is a plan of the fewest devices whose stages all take at most limit; none: nil.
func (c *costs) under(runs []run, limit float64) (seconds float64, stages []stage) {
	n, most := len(c.Nodes), min(c.Batch, c.devices)
	fewest, first := make([][]int, n+1), make([][]int, n+1) // devices, and the run of the first stage, by replicas
	for i := range fewest {
		fewest[i], first[i] = slices.Repeat([]int{math.MaxInt32}, most+1), make([]int, most+1)
	}
	fewest[n][0] = 0
	for i, r := range runs {
		if r.seconds > limit {
			continue
		}
		shape := c.shapes[r.shape]
		d := shape[1]
		here, behind := fewest[r.from], fewest[r.to]
		for s := max(d, (r.micros-1)*d+1); s <= min(r.micros*d, most); s++ {
			if v := behind[s-d] + shape[0]; v < here[s] && v <= c.devices {
				here[s], first[r.from][s] = v, i
			}
		}
	}
	s := slices.IndexFunc(fewest[0], func(v int) bool { return v <= c.devices })
	if s < 0 {
		return 0, nil
	}
	for at := 0; at < n; {
		r := runs[first[at][s]]
		d := c.shapes[r.shape][1]
		seconds = max(seconds, r.seconds)
		stages = append(stages, stage{at, r.to, c.shapes[r.shape][0] / d, d})
		at, s = r.to, s-d
	}
	return seconds, stages
}
