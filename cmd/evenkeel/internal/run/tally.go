package run

import (
	"fmt"

	"evenkeel/cluster"
	"evenkeel/cmd/evenkeel/internal/cli"
)

// tally counts the outcomes of the nodes' work, to explain a run in which nothing was
// accepted.
type tally struct {
	rounds, accepted         int
	late, refused, lost, oom int
	longest                  float64 // seconds of a round
}

func (t *tally) add(r *cluster.Report) {
	t.rounds++
	t.accepted += r.Accepted
	t.longest = max(t.longest, r.Wait.Seconds())
	for i := range r.Nodes {
		switch n := &r.Nodes[i]; {
		case n.OOM:
			t.oom++
		case n.Status == cluster.Late:
			t.late++
		case n.Status == cluster.Refused:
			t.refused++
		case n.Status == cluster.Lost:
			t.lost++
		}
	}
}

// failure is the likely reason why no gradient of the run was accepted, nil if some were.
func (t *tally) failure(c *cluster.Cluster) error {
	if t.rounds == 0 || t.accepted > 0 {
		return nil
	}
	why := "the nodes failed or were away in every round; see the conditions"
	timeout := c.Collect.Timeout
	switch {
	case t.oom > t.lost+t.late+t.refused:
		why = "the nodes ran out of memory"
	case timeout > 0 && t.longest >= timeout.Seconds() && t.lost+t.late > 0:
		why = fmt.Sprintf("no node finishes within collect.timeout, %s; raise it", timeout)
	case t.refused > t.lost+t.late:
		why = "every gradient was older than collect.max_staleness allows"
	}
	return fmt.Errorf("nothing was accepted in %s: %s", cli.Count(t.rounds, "round"), why)
}
