package sim

import (
	"time"

	"github.com/evenkeel/evenkeel/cluster"
)

// energy books what every node drew in the round that ends now. A node works from the
// opening until its newest event, without a gap: work of an older round that comes in
// is followed at once by this round's. One that still has work has worked throughout,
// and so has one that was given up. A node that hangs is taken to spin until it is noticed.
//
// It does not rest on NodeReport.Idle, which leaves out what a lost node is without work.
func (s *Simulator) energy(end time.Duration) {
	for i := range s.report.Nodes {
		r := &s.report.Nodes[i]
		if r.Status == cluster.Absent {
			continue
		}
		until := end
		if !s.jobs[i].busy {
			until = min(s.queue.at[i], end)
		}
		r.Joules = s.cluster.Nodes[i].Power.Joules((until - s.report.Start).Seconds(), s.report.Wait.Seconds())
	}
}
