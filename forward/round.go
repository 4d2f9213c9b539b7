package forward

// round collects the frames of a step. It depends only on the frames in their order, which is the same for all processors, so
// all reach the same decision: docs/reference/forward-protocol.md.
type round struct {
	config *Config
	step   uint32
	prompt uint64                    // a bit for each pair that steps wait for
	due    [maxProcessors / 2]uint32 // by pair: the step that it is due for
	isDue  uint64                    // a bit for each pair that has not counted since it was due
	seen   [maxProcessors]bool       // by rank: its losses for the due step came
	losses [maxProcessors][2]float32 // by rank: these losses
	stop   bool                      // the run ends with this block
}

// begin starts the round of a step.
func (r *round) begin(step uint32) {
	r.step = step
	if step%BlockSteps == 0 {
		r.isDue = 0
	}
	for p := range r.config.Processors / 2 {
		if r.isDue>>p&1 == 0 {
			r.due[p], r.seen[2*p], r.seen[2*p+1] = step, false, false
		}
	}
	r.isDue = r.config.allPairs()
}

// whole returns a bit for each pair of which both halves have come.
func (r *round) whole() uint64 {
	pairs := uint64(0)
	for p := range r.config.Processors / 2 {
		if r.seen[2*p] && r.seen[2*p+1] {
			pairs |= 1 << p
		}
	}
	return pairs
}

// take processes a frame from a rank. used says that the frame belonged to this round; done, that the step is decided, by all
// pairs that are whole.
func (r *round) take(rank int, f Frame) (used, done bool) {
	if rank != int(f.Rank) || rank >= r.config.Processors {
		return false, false
	}
	if f.Stop {
		r.stop = true
		return true, false
	}
	if f.GoOn {
		return f.Step == r.step, f.Step == r.step && r.whole() != 0
	}
	if f.Step != r.due[rank/2] || r.seen[rank] {
		return false, false
	}
	r.seen[rank], r.losses[rank] = true, f.Losses
	whole := r.whole()
	return true, whole != 0 && r.prompt&^whole == 0
}

// arrival is a pair that counts in a step.
type arrival struct {
	pair int
	age  uint32 // steps since the pair was due
}

// close ends the round and returns the pairs that count, in ascending order. They are due for the next step.
func (r *round) close() (counted []arrival) {
	whole := r.whole()
	r.prompt &= whole
	r.isDue &^= whole
	for p := range r.config.Processors / 2 {
		if whole>>p&1 == 0 {
			continue
		}
		a := arrival{p, r.step - r.due[p]}
		counted = append(counted, a)
		if a.age <= 1 {
			r.prompt |= 1 << p
		} else {
			r.prompt &^= 1 << p
		}
	}
	return counted
}
