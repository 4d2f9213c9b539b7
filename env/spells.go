package env

// spells is what is known of a node's spells of slowness: how slow it is in one, for how long, and the clues that tell when the
// next one begins.
type spells struct {
	rounds  int     // slow rounds in a row until now; 0: no spell is under way
	omen    int     // rounds in a row in which the node was a little slower
	counted bool    // the spell under way is no spike
	began   bool    // the newest round showed its second round, or that it was over after one
	member  float64 // share of the spells of many nodes together in which it took part, moving average
	count   float64 // spells that count
	excess  float64 // slowdown over the level in a spell, - 1
	length  float64 // seconds of a spell

	since   float64 // when the spell under way began, on the tracker's clock
	lost    float64 // seconds lost in it
	first   float64 // seconds lost in its first round
	seconds float64 // of its first round
	sum     float64 // of its slowdowns over the level, but for the first round's
	most    float64 // largest of them
	last    float64 // newest of them
	begun   float64 // when the last spell that counts began
	near    clue    // from the last spell of its leader
	leader  int     // node whose spells come before; -1: none is known
	own     clue    // from the node's last spell
}

const (
	leastExcess = 0.2  // of a slow round over the level
	countsFrom  = 0.5  // rounds that a spell of one round must cost to count
	signAt      = 1.5  // deviations over the level, from which a node is a little slower
	leastSign   = 0.04 // over the level
)

// see takes in a round that took so many seconds from start on, over times the node's level. It reports whether a spell turns out
// to be no spike, and whether one is over, for which end is to be called.
func (s *spells) see(over, deviation, start, seconds, unit float64) (begins, ends bool) {
	if over < 1+max(leastExcess, jumpAt*deviation) {
		if over-1 > max(signAt*deviation, leastSign) {
			s.omen++
		} else {
			s.omen = 0
		}
		begins, ends = s.rounds == 1 && s.lost > countsFrom*unit, s.rounds > 0
		s.counted = s.counted || begins
		return begins, ends
	}
	lost := seconds * (1 - 1/over)
	s.rounds++
	s.lost += lost
	s.most, s.last, s.omen = max(s.most, over), over, 0
	switch s.rounds {
	case 1: // it began somewhere in the time that was not lost
		s.first, s.seconds, s.sum = lost, seconds, 0
		s.since = start + (seconds-lost)/2
	case 2: // the first round was slow for as long as explains what it lost
		s.since += (s.seconds+s.first)/2 - min(s.first/(1-1/over), s.seconds)
		fallthrough
	default:
		s.sum += over
	}
	begins = s.rounds == 2
	s.counted = s.counted || begins
	return begins, false
}

// end remembers the spell that is over, if it counts.
func (s *spells) end() (counts bool) {
	if counts = s.counted; counts {
		over := s.most
		if s.rounds > 3 { // the last round was slow in part
			over = (s.sum - s.last) / float64(s.rounds-2)
		} else if s.rounds < 3 { // the smaller the share, the more a standstill shows
			over = max(over, 1+0.9*s.excess)
		}
		rate := max(0.3, 1/s.count)
		s.excess += rate * (over - 1 - s.excess)
		s.length += rate * (s.lost/(1-1/over) - s.length)
	}
	s.rounds, s.counted, s.lost, s.most = 0, false, 0, 0
	return counts
}
