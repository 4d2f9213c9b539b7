package agent

import "github.com/evenkeel/evenkeel/cluster"

// handed is a plan that was handed out; a report that comes late is judged by it.
type handed struct {
	plan  cluster.Plan // its sizes are a copy
	steps []int        // largest micro-step of each node in it
	round int          // of participation
}

// keep notes the newest plan.
func (c *Control) keep() {
	if c.Behind == 0 {
		return
	}
	if c.handed == nil {
		c.handed = make([]handed, c.Behind+1)
	}
	h := &c.handed[c.plan.Number%len(c.handed)]
	sizes := append(h.plan.Sizes[:0], c.plan.Sizes...)
	h.plan, h.steps, h.round = c.plan, h.steps[:0], c.parts.round
	h.plan.Sizes, h.plan.Perf, h.plan.Probe = sizes, nil, nil // the last two are the newest plan's working memory
	for i, b := range sizes {
		step := c.Cluster.Nodes[i].Full()
		if !c.plan.Beyond() {
			step = min(step, b)
		}
		h.steps = append(h.steps, step)
	}
}

// behind returns the plan with a number, nil if it is not kept.
func (c *Control) behind(number int) *handed {
	if len(c.handed) == 0 || number < 1 {
		return nil
	}
	if h := &c.handed[number%len(c.handed)]; h.plan.Number == number {
		return h
	}
	return nil
}
