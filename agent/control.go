package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"evenkeel/cluster"
	"evenkeel/cluster/memory"
	"evenkeel/env"
	"evenkeel/internal/badinput"
)

// Control runs a policy on a cluster, round by round. It is the loop of the method, the
// same for the simulator and for live workers. Where a node runs out of memory it lowers the
// node's Limit in Cluster (package cluster/memory); another run then needs a cluster of its own.
type Control struct {
	Cluster *cluster.Cluster `state:"-"`
	Runner  cluster.Runner   `state:"-"`
	Policy  Policy           `state:"-"`
	Clock   func() time.Time `state:"-"` // measures decisions; nil: they are not measured
	// Behind is how many plans a report may be behind the newest one: a real job uses sizes some rounds after they were
	// decided. 0: every report belongs to the newest plan, as with a Runner.
	Behind int

	plan     cluster.Plan
	handed   []handed // the newest Behind + 1 plans, by number; none without Behind
	report   *cluster.Report
	parts    *participation
	memory   *memory.Learner
	deadline deadline
	sieve    env.Sieve
	away     *Beliefs // about nodes that earlier controls had; nil: none
}

// Round is what one round of control did.
type Round struct {
	Plan     cluster.Plan    // as carried out; its sizes are valid until the next round
	Report   *cluster.Report // valid until the next round
	Decision time.Duration   // time that Next took; 0 without a clock
}

// Round runs one round: it calls Next, then the Runner.
func (c *Control) Round(ctx context.Context) (Round, error) {
	var begun time.Time
	if c.Clock != nil {
		begun = c.Clock()
	}
	plan, err := c.Next(c.report, c.Runner.Present())
	if err != nil {
		return Round{}, err
	}
	r := Round{Plan: plan}
	if c.Clock != nil {
		r.Decision = c.Clock().Sub(begun)
	}
	if c.report, err = c.Runner.Round(ctx, plan); err != nil {
		return Round{}, fmt.Errorf("agent: %w", err)
	}
	r.Report = c.report
	return r, nil
}

// Next processes the report of a round, nil before the first, and plans the next round for the nodes present. It does no
// I/O: programs that react to events call it instead of Round. Report.Plan names the plan that a report belongs to. The
// plan's sizes are valid until the next call.
//
// If the remaining nodes cannot make up the global batch, each gets an equal share as far as its memory allows: a smaller
// round is better than none. Nodes that the policy leaves out, and nodes whose gradients did not come, are tried again after
// some rounds. How many follows from the cost and the possible gain of a trial.
func (c *Control) Next(report *cluster.Report, all []bool) (cluster.Plan, error) {
	c.begin()
	if report != nil {
		var err error
		if report, err = c.observe(report); err != nil {
			return cluster.Plan{}, err
		}
	}
	c.plan.Collect, c.plan.Perf, c.plan.Finish = c.Cluster.Collect, nil, 0
	present := c.memory.Mask(all)
	if slices.Contains(all, true) && !slices.Contains(present, true) {
		return cluster.Plan{}, badinput.New("agent: no node that is there holds its smallest micro-batch in memory; lower micro_batch.least or the list, or give more memory")
	}
	if err := c.decide(report, present); err != nil {
		return cluster.Plan{}, fmt.Errorf("agent: decide: %w", err)
	}
	for i, b := range c.plan.Sizes { // the policy may not know the learnt limit
		if n := &c.Cluster.Nodes[i]; c.memory.Learnt(i) > 0 && !n.Takes(b) {
			c.plan.Sizes[i] = n.MostShare(max(b, n.LeastShare()))
		}
	}
	c.deadline.set(c.Cluster, &c.plan)
	c.parts.probe(&c.plan)
	c.plan.Number++
	c.keep()
	return c.plan, nil
}

// observe processes a report. It returns the report for the policy; nil if nothing in it is usable.
func (c *Control) observe(report *cluster.Report) (*cluster.Report, error) {
	newest := report.Plan == 0 || report.Plan == c.plan.Number
	ran := &handed{plan: c.plan, steps: c.plan.Sizes, round: c.parts.round}
	if !newest {
		if ran = c.behind(report.Plan); ran == nil {
			return nil, badinput.Errorf("agent: round %d ran plan %d; the newest is %d, and %d before it are kept", report.Round, report.Plan, c.plan.Number, c.Behind)
		}
	}
	beyond := ran.plan.Beyond()
	if report = c.sieve.Clean(c.Cluster, report, ran.plan.Sizes, beyond); report == nil {
		return nil, nil
	}
	c.deadline.observe(report, &ran.plan)
	c.parts.observe(report, ran.round, ran.plan.Finish)
	c.memory.Observe(report, ran.steps, newest && beyond)
	if newest {
		return report, nil
	}
	late := *report
	late.Predicted = ran.plan.Finish
	return &late, nil
}

// decide plans the round for the nodes present.
func (c *Control) decide(report *cluster.Report, present []bool) error {
	_, knows := c.Policy.(interface{ Omniscient() }) // an oracle decides by itself who takes part
	allowed := present
	if !knows {
		if allowed = c.parts.among(c.Cluster, present); !slices.Contains(allowed, true) {
			allowed = present // nobody else is left
		}
	}
	switch err := c.Policy.Decide(report, allowed, &c.plan); {
	case errors.Is(err, cluster.ErrCapacity):
		nodes := count(allowed)
		for i := range c.plan.Sizes {
			c.plan.Sizes[i] = 0
			if n := &c.Cluster.Nodes[i]; allowed[i] {
				c.plan.Sizes[i] = n.MostShare(max(c.Cluster.GlobalBatch/nodes, n.LeastShare()))
			}
		}
	case err != nil:
		return err
	}
	if !knows {
		c.parts.settle(c.Cluster, present, &c.plan)
	}
	return nil
}

// count returns the number of nodes present.
func count(present []bool) int {
	n := 0
	for _, here := range present {
		if here {
			n++
		}
	}
	return n
}

// SettleLimits undoes memory limits that are still being tried. Call it at the end of a run.
func (c *Control) SettleLimits() {
	if c.memory != nil {
		c.memory.Settle()
	}
}

// Absurd returns the counts of impossible values in the reports so far. Only Frozen times were believed.
func (c *Control) Absurd() env.Absurd { return c.sieve.Counts }

// LeftOut says why a node has no share in the newest round.
func (c *Control) LeftOut(node int) Why {
	if c.parts == nil || c.plan.Sizes[node] > 0 {
		return TakesPart
	}
	if c.memory.Out(node) {
		return NoMemory
	}
	return c.parts.nodes[node].why
}

// Bound sets the limit of a node's micro-batch, at least its smallest. Call it after the first Next.
func (c *Control) Bound(node, limit int) { c.memory.Bound(node, limit) }

// Policy turns reports into the shares of the next round.
//
// A Policy belongs to one run and one goroutine. Decide takes the report of the previous
// round (nil before the first) and the nodes that are present. plan is the previous round's
// with its Collect reset to the cluster's; Decide writes the next plan into it. Every
// implementation here keeps every memory limit and meets the global batch.
type Policy interface {
	Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error
}

// handed is a plan that was handed out. A late report is compared with it.
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
	h.plan.Sizes, h.plan.Perf, h.plan.Probe = sizes, nil, nil // the newest plan reuses the memory of the last two
	for i, b := range sizes {
		n := &c.Cluster.Nodes[i]
		step := n.Full()
		if !c.plan.Beyond() {
			step = n.MicroBatch(b)
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

// begin creates what a control needs for its first plan.
func (c *Control) begin() {
	if c.plan.Sizes == nil {
		c.plan.Sizes = make([]int, len(c.Cluster.Nodes))
		c.parts = newParticipation(len(c.Cluster.Nodes))
		c.memory = memory.New(c.Cluster)
	}
}
