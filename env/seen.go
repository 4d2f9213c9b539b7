package env

import "evenkeel/cluster"

// seen is what was last seen of a node.
type seen struct {
	newest   [4]float64 // measured slowdowns, newest first
	count    float64    // measurements
	seconds  float64    // the newest measurement, of size samples
	work     float64    // of the newest measurement, as its node's line counts samples
	size     int        // of the newest measurement, or of a late share
	fresh    bool       // measured in the last round
	late     bool       // known only to exceed a bound in the last round
	busy     float64    // seconds so far at busySize samples still under way
	busySize int        // 0: none
	share    float64    // arrival over the round's wait
	age      float64    // of the gradient over the round's wait
}

// see processes a node's part of the report of a round of wait seconds, except for a measurement.
func (s *seen) see(r *cluster.NodeReport, wait float64) {
	s.fresh, s.late = false, false
	s.busy, s.busySize = r.Busy, r.BusySize
	s.share, s.age = min(r.Seconds/wait, 2), min(r.Age/wait, 4)
	if !r.Measured() && r.Status == cluster.Late && r.Size > 0 {
		s.late, s.size = true, r.Size
	}
}

// silent is how long a node that was lost in a round of wait seconds had been at work. Call
// it before see.
func (s *seen) silent(wait float64) float64 {
	if s.busySize == 0 {
		return wait
	}
	return s.busy + wait
}

// add notes a measured slowdown.
func (s *seen) add(m float64, r *cluster.NodeReport) {
	s.size, s.seconds, s.fresh = r.Size, r.Seconds, true
	copy(s.newest[1:], s.newest[:3])
	s.newest[0] = m
	if s.count == 0 {
		s.newest = [4]float64{m, m, m, m}
	}
	s.count++
}

// believable is the newest measured slowdown. If it is below the level and the gain is large, the larger of the last two
// counts, up to the level: if a fast measurement is noise, all nodes wait.
func (s *seen) believable(gain, level float64) float64 {
	const much = 0.25
	m := s.newest[0]
	if gain > much && m < level {
		m = min(max(m, s.newest[1]), level)
	}
	return m
}
