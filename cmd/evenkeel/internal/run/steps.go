package run

import (
	"fmt"
	"math"

	"evenkeel/agent"
	"evenkeel/cluster"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/runlog"
)

// inSteps writes a share as the micro-steps that it is made of: 24 = 3x8, 47 = 2x16+15, 46 = 1x16+2x15.
func inSteps(n *cluster.Node, share int) string {
	if n.Steps(share) < 2 {
		return fmt.Sprint(share)
	}
	large, size, small, rest := n.Parts(share)
	s := fmt.Sprintf("%d = %dx%d", share, large, size)
	switch {
	case small > 1:
		s += fmt.Sprintf("+%dx%d", small, rest)
	case small == 1:
		s += fmt.Sprintf("+%d", rest)
	}
	return s
}

// leftOut says why the controller gives a node that is there no share; "" for the others.
func (w *watch) leftOut(i int) string {
	if w.control == nil {
		return ""
	}
	if why := w.control.LeftOut(i); why == agent.TooSlow || why == agent.Silent || why == agent.NoMemory {
		return why.String()
	}
	return ""
}

// silent are the nodes that the controller leaves out because nothing came of them.
func (s *setup) silent(control *agent.Control) []string {
	var names []string
	for i := range s.cluster.Nodes {
		if control.LeftOut(i) == agent.Silent {
			names = append(names, s.cluster.Nodes[i].Name)
		}
	}
	return names
}

// leftOuts are all nodes that are there without a share in the newest round, for the log.
func (w *watch) leftOuts() []runlog.LeftOut {
	var out []runlog.LeftOut
	for i := range w.setup.cluster.Nodes {
		if why := w.leftOut(i); why != "" {
			out = append(out, runlog.LeftOut{Node: i, Why: why})
		}
	}
	return out
}

// status is the status of a node's gradient, or why the node has no share.
func (w *watch) status(i int, p paint) string {
	r := &w.round.Report.Nodes[i]
	if why := w.leftOut(i); why != "" && r.Status == cluster.Absent {
		return p.warn(why)
	}
	return status(r, p)
}

// due is the newest round's deadline, and how many samples were handed in by then, of how
// many; "" without a deadline.
func (w *watch) due() string {
	c := &w.round.Plan.Collect
	if !c.Timed() {
		return ""
	}
	return fmt.Sprintf("deadline %s   handed in %d of %d samples", cli.Seconds(c.Deadline.Seconds()), w.round.Report.Accepted, total(w.round.Plan.Sizes))
}

func total(sizes []int) int {
	sum := 0
	for _, b := range sizes {
		sum += b
	}
	return sum
}

// handedIn are the samples of a node's gradient that the newest round accepted.
func (w *watch) handedIn(i int) string {
	r := &w.round.Report.Nodes[i]
	if r.Status == cluster.Absent {
		return ""
	}
	return fmt.Sprint(r.Samples)
}

// outside names the nodes that have no share at the end, and why; nil: none.
func (w *watch) outside() []string {
	var lines []string
	for _, why := range []agent.Why{agent.TooSlow, agent.Silent, agent.NoMemory} {
		var names []string
		for i := range w.setup.cluster.Nodes {
			if w.leftOut(i) == why.String() {
				names = append(names, w.setup.cluster.Nodes[i].Name)
			}
		}
		if len(names) > 0 {
			lines = append(lines, fmt.Sprintf("Left out at the end: %s: %s.", some(names), map[agent.Why]string{
				agent.TooSlow: "the others finish sooner without it", agent.Silent: "no gradient came",
				agent.NoMemory: "memory does not hold the smallest micro-batch",
			}[why]))
		}
	}
	return lines
}

// farOff is how far the mean samples of a round may be off the global batch, as a share, before the summary advises deadline: auto.
const farOff = 0.1

// samplesOfRounds is a line about the samples of a round under deadlines.
func (w *watch) samplesOfRounds() []string {
	if !w.setup.cluster.Collect.Timed() {
		return nil
	}
	rounds := w.history.rounds
	c := w.setup.cluster
	mean := float64(rounds[len(rounds)-1].accepted) / float64(len(rounds))
	line := fmt.Sprintf("Rounds end at a deadline: %.1f samples were handed in per round in the mean, the global batch is %d.", mean, c.GlobalBatch)
	if !c.Collect.AutoDeadline && math.Abs(mean/float64(c.GlobalBatch)-1) > farOff {
		line += " With deadline: auto it is met."
	}
	return []string{line}
}
