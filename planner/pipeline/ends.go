package pipeline

import "math"

// Ends appends to dst the seconds from the start of an iteration to the end of each stage's last pass under 1F1B. They equal
// those of Simulate without overlap, up to rounding. Once all stages end later by the same time from one micro-batch to the
// next, all further micro-batches take that time, and Ends skips them: (max, +) linear systems are periodic (Baccelli, Cohen,
// Olsder and Quadrat, Synchronization and Linearity, 1992).
//
// A stage that begins with a forward passes runs backward pass k and then forward pass a + k. The stage before it begins with
// one more forward pass, so its last forward pass by then is the one whose output is received.
func Ends(dst []float64, stages []Timing, microBatches int) ([]float64, error) {
	if err := check(stages, microBatches); err != nil {
		return nil, err
	}
	p, m := len(stages), microBatches
	send := func(i int) float64 { // seconds over the boundary after a stage
		if i < 0 || i == p-1 {
			return 0
		}
		return stages[i].SendNext
	}
	at := len(dst)
	dst = append(dst, make([]float64, p)...)
	free := dst[at:]                         // when a stage has sent the output of its last pass
	work := make([]float64, 2*p+min(p, m))   // one allocation
	forward, before := work[:p], work[p:2*p] // end of the last forward pass, and a micro-batch before
	arrived := work[2*p:]                    // of the forward passes that a stage begins with
	ahead := func(i int) int { return InFlight(i, p, m) }
	for i, s := range stages {
		for n := range ahead(i) {
			forward[i] = max(arrived[n], free[i]) + send(i-1) + s.Forward
			free[i], arrived[n] = forward[i]+send(i), forward[i]
		}
	}
	for k := 0; k < m; k++ {
		copy(before, forward)
		gradient := 0.0
		for i := p - 1; i >= 0; i-- {
			s := &stages[i]
			gradient = max(gradient, free[i]) + send(i) + s.Backward
			free[i] = gradient + send(i-1)
			if k == m-1 {
				free[i] = gradient
			}
			if ahead(i)+k < m {
				arrival := 0.0
				if i > 0 {
					arrival = forward[i-1]
				}
				forward[i] = max(arrival, free[i]) + send(i-1) + s.Forward
				free[i] = forward[i] + send(i)
			}
		}
		if left := m - p - 1 - k; left > 0 && together(before, forward) {
			shift := float64(left) * (forward[0] - before[0])
			for i := range forward {
				forward[i], free[i] = forward[i]+shift, free[i]+shift
			}
			k += left
		}
	}
	return dst, nil
}

// together says whether all times grew by the same amount, up to rounding.
func together(before, after []float64) bool {
	shift := after[0] - before[0]
	for i, v := range after {
		if math.Abs(v-before[i]-shift) > 1e-13*v {
			return false
		}
	}
	return true
}
