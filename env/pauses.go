package env

import (
	"math"
	"slices"

	"evenkeel/cluster"
)

// pauses are what nodes announce before they stand still for a while, to save or evaluate, and what came of it.
type pauses struct {
	nodes []pause        // none: nothing was ever announced
	kept  float64        // what pauses took over what was announced, moving average over all nodes
	some  bool           `state:"-"` // the newest report has some, and clean is that report without them
	clean cluster.Report `state:"-"`
}

// pause is one node's.
type pause struct {
	announced float64 // seconds, for the coming round
	due       float64 // the same, for the newest round
	took      float64 // seconds that it took in the newest round
	kept      float64 // what pauses took over what was announced, moving average
	count     float64 // pauses in it
}

const (
	keptRate     = 0.3 // of a node's moving average
	fleetRate    = 0.5 // of that over all nodes
	mostKept     = 2.0
	leastKept    = 0.3 // below which announcements are ignored
	longestPause = 3.0 // predicted rounds, from which on a pause makes no difference
)

// unpaused takes in which pauses were announced, and whether those before came. It returns the report without the latter, so that
// they say nothing of a node's pace.
func (t *Tracker) unpaused(report *cluster.Report) *cluster.Report {
	s := &t.pauses
	if s.some = false; s.nodes == nil {
		if !slices.ContainsFunc(report.Nodes, func(r cluster.NodeReport) bool { return r.Pause > 0 }) {
			return report
		}
		s.nodes, s.kept = make([]pause, len(t.nodes)), 1
	}
	sum, count := 0.0, 0.0
	for i := range s.nodes {
		p, r := &s.nodes[i], &report.Nodes[i]
		p.due, p.announced, p.took = p.announced, r.Pause, 0
		if p.due == 0 {
			continue
		}
		if p.count++; p.count == 1 {
			p.kept = s.kept
		}
		came := 0.0 // of a node without a share, nobody knows; it would never show that its pauses do not come
		if r.Measured() {
			p.took, came = t.nodes[i].paused(&t.cluster.Nodes[i], r, p.due, p.kept >= leastKept)
			sum, count = sum+came, count+1
		}
		p.kept += max(keptRate, 1/(1+p.count)) * (came - p.kept)
		if p.took > 0 {
			if !s.some {
				s.some = true
				nodes := append(s.clean.Nodes[:0], report.Nodes...)
				s.clean = *report
				s.clean.Nodes = nodes
			}
			s.clean.Nodes[i].Seconds -= p.took
		}
	}
	if count > 0 {
		s.kept += fleetRate * (sum/count - s.kept)
	}
	return s.without(report)
}

// without is the newest report without pauses.
func (s *pauses) without(report *cluster.Report) *cluster.Report {
	if s.some {
		return &s.clean
	}
	return report
}

// paused says how many seconds of a measurement were a pause announced for due seconds, and how much that is over what was
// announced. Where it is not clear, the measurement says nothing of the pace, unless there is more.
func (n *track) paused(node *cluster.Node, r *cluster.NodeReport, due float64, trusted bool) (took, came float64) {
	usual := node.Finish(node.Slowed(n.base, n.slowdown), r.Size)
	over, noise := r.Seconds-usual, min(jumpAt*n.deviation(), 0.5)*usual
	switch {
	case over < noise && (!trusted || over < due/2):
		return 0, 0
	case !trusted:
		return 0, min(over/due, 1)
	case math.Abs(over-due) < noise:
		return due, 1
	}
	return min(over, due), min(over/due, mostKept)
}

// room is how many seconds the pause announced for the coming round is likely to take, where rounds take finish seconds.
func (s *pauses) room(i int, finish float64) float64 {
	kept := s.keeps(i)
	if kept < leastKept {
		return 0
	}
	return kept * min(s.nodes[i].announced, longestPause*finish)
}

// keeps is how much of what node i announces comes, as far as is known.
func (s *pauses) keeps(i int) float64 {
	if p := &s.nodes[i]; p.count > 0 {
		return p.kept
	}
	return s.kept
}
