package agent

import (
	"math"

	"github.com/evenkeel/evenkeel/cluster"
)

// Partaking are the constants of the rule that decides who takes part. A policy brings its own by a method Partaking.
type Partaking struct {
	// Losses is how many losses in a row leave a node out; the other constants then say when it is tried again. 0: one
	// loss leaves it out, and the time of the trial follows from the loss's cost and from how often nodes have come back;
	// the other constants then hold only for nodes that are too slow.
	Losses int
	First  int     // rounds until a node that is left out is tried
	Growth float64 // of that time after every trial that fails, at least 1
	Last   int     // most rounds between two trials, unless they cost too much
	Cost   float64 // rounds over which each round's time spent on a trial is spread, as far as Last allows
	Least  float64 // the same, in any case
	// Back is for a bound: it says whether a node that is left out would be of use in the coming round; the node is tried
	// exactly then. nil: not known.
	Back func(node int) bool
}

// DefaultPartaking is the rule for a policy without one of its own.
var DefaultPartaking = Partaking{First: 2, Growth: 3, Last: 1024, Cost: 30, Least: 30}

// partaking is a policy that brings constants of its own.
type partaking interface{ Partaking() Partaking }

const freeTrial = 0.05 // of a round: what a trial may cost to be repeated at once

// Why is the reason why a node has no share.
type Why uint8

const (
	TakesPart Why = iota
	Away          // the runner does not have it
	TooSlow       // the others are done sooner without it
	Silent        // its last gradients did not come
	NoMemory      // its memory does not hold the smallest micro-batch that it takes
)

func (w Why) String() string {
	return [...]string{"takes part", "away", "too slow", "silent", "out of memory"}[w]
}

// participation decides who may take part: a node whose gradient did not come is left out,
// as is one to which the allocation gives nothing, and each is tried again after some rounds, with its
// least share.
type participation struct {
	nodes   []partaker
	past    []past
	fleet   silences
	allowed []bool
	probes  []bool
	round   int
	alloc   cluster.Allocator
	rule    Partaking `state:"-"`
}

type partaker struct {
	why   Why
	lost  int     // losses in a row
	wait  int     // rounds from one trial to the next
	next  int     // round of the next trial
	tried int     // round of the trial whose report is not in; 0: none
	since int     // round in which it fell silent
	known bool    // its time was measured
	cost  float64 // of its last loss or trial, in rounds
	took  float64 // seconds of its newest measurement; 0: none since it was silent
	steps float64 // micro-steps of that, where there were several
	gone  bool    // it is silent, and the runner did not have it since
}

func newParticipation(nodes int, rule Partaking) *participation {
	return &participation{rule: rule, nodes: make([]partaker, nodes), past: make([]past, nodes), allowed: make([]bool, nodes), probes: make([]bool, nodes)}
}

// observe takes in what became of the shares that were settled in a round, p.round or an older
// one, and predicted to take finish seconds, 0 if unknown.
func (p *participation) observe(report *cluster.Report, round int, finish float64) {
	for i := range report.Nodes {
		n, r := &p.nodes[i], &report.Nodes[i]
		trial, before := n.onTrial(round), n.lost
		if n.tried <= round {
			n.tried = 0
		}
		switch r.Status {
		case cluster.In:
			n.lost, n.known = 0, true
			if r.Measured() {
				n.took, n.steps = r.Seconds, float64(r.Steps)
			}
			if before > 0 {
				p.past[i].back++
				p.fleet.back++
			}
			switch {
			case n.why != Silent:
			case p.rule.Losses == 0:
				p.find(i)
				continue
			default:
				*n = partaker{known: true}
			}
		case cluster.Lost:
			if r.OOM {
				continue // a smaller micro-step will do: package memory
			}
			if n.why == Silent && round <= n.since {
				continue // it was handed this share before its silence showed
			}
			n.lost++
		default:
			continue
		}
		over := beyond(r, report, finish)
		if trial || r.Status == cluster.Lost {
			n.cost = max(over, 0)
		}
		if p.rule.Losses == 0 && r.Status == cluster.Lost {
			p.lose(i, waited(report, finish))
		} else {
			p.judge(n, r, trial, over)
		}
	}
}

// beyond is what the round lost by waiting for a node, in rounds of finish seconds; 0 where these are not known.
func beyond(r *cluster.NodeReport, report *cluster.Report, finish float64) float64 {
	slow := r.Seconds
	if r.Status == cluster.Lost {
		slow = report.Wait.Seconds()
	}
	if finish <= 0 {
		return 0
	}
	return slow/finish - 1
}

// judge decides by constants about a node that was tried, or was lost, for which the round waited so much longer.
func (p *participation) judge(n *partaker, r *cluster.NodeReport, trial bool, over float64) {
	// Most hangs pass with a restart, so a node gets a second chance; one that never was
	// heard of, and held up the others, does not.
	out := n.lost > 0 && (n.lost >= p.rule.Losses || !n.known && over >= 1)
	if trial && n.why != TakesPart || out {
		// What was lost is spread over many rounds.
		if p.postpone(n, over); r.Status == cluster.In && over < freeTrial {
			n.wait, n.next = 0, p.round+1 // nobody waited: the policy may need a second look
		}
	}
	if out && n.why != Silent {
		n.why, n.since = Silent, p.round
	}
}

// spread is how many rounds there should be from one trial to the next, where a trial costs
// the time of over rounds.
func (r *Partaking) spread(over float64) int {
	over = min(max(over, 0), 1e6)
	return int(max(min(r.Cost*over, float64(r.Last)), r.Least*over))
}

// trial is how long the node's least share is expected to take: no longer than a micro-step of its newest measurement,
// where that had several, as it is the smallest. A line through one size, or through rounds that all ended at a deadline, may say much more.
func (n *partaker) trial(node *cluster.Node, perf cluster.Performance) float64 {
	seconds := node.Finish(perf, node.LeastShare())
	if n.steps > 1 {
		seconds = min(seconds, node.Network+max(n.took-node.Network, 0)/n.steps)
	}
	return seconds
}

// postpone sets the next trial of a node, where that costs the time of over rounds.
func (p *participation) postpone(n *partaker, over float64) {
	r := &p.rule
	n.wait = max(min(max(int(math.Ceil(r.Growth*float64(n.wait))), r.First), r.Last), r.spread(over))
	n.next = p.round + n.wait
}

// onTrial says whether a round tries the node.
func (n *partaker) onTrial(round int) bool { return n.tried > 0 && n.tried == round }

// among returns who of those present may be planned for in the coming round.
func (p *participation) among(c *cluster.Cluster, present []bool) []bool {
	p.round++
	sound := false // some node is left out that is back
	for i, here := range present {
		if n := &p.nodes[i]; here && n.gone {
			p.restarted(i)
		}
		p.allowed[i] = here && p.nodes[i].why != Silent
		sound = sound || here && p.nodes[i].flaps()
	}
	if sound && c.CheckCapacity(p.allowed) != nil { // better one that falls silent often than too small a batch
		for i, here := range present {
			if n := &p.nodes[i]; here && n.flaps() {
				p.allowed[i], *n = true, partaker{known: true}
			}
		}
	}
	return p.allowed
}

// settle takes in the plan for the nodes that were allowed, and hands the least share to
// those that are to be tried, taken from the others.
func (p *participation) settle(c *cluster.Cluster, present []bool, plan *cluster.Plan) {
	sizes := plan.Sizes
	for i, here := range present {
		n := &p.nodes[i]
		switch {
		case !here:
			if n.why == TakesPart {
				n.why = Away
			}
			n.gone = n.why == Silent
			continue
		case n.why == Silent:
			p.count(i, false)
		case sizes[i] > 0:
			p.count(i, true)
			p.past[i].share = float64(sizes[i]) / float64(c.GlobalBatch)
			*n = partaker{lost: n.lost, known: n.known, took: n.took, steps: n.steps}
			continue
		case n.why != TooSlow:
			n.why = TooSlow
			over := 0.0
			if plan.Perf != nil && plan.Finish > 0 {
				over = n.trial(&c.Nodes[i], plan.Perf[i])/plan.Finish - 1
			}
			p.postpone(n, over)
		}
		due := p.round >= n.next
		if p.rule.Back != nil {
			due = p.rule.Back(i)
		}
		if due && n.tried == 0 {
			p.try(c, i, sizes)
		}
	}
}

// try gives node i its least share.
func (p *participation) try(c *cluster.Cluster, i int, sizes []int) {
	least := c.Nodes[i].LeastShare()
	if sizes[i] == 0 && c.Nodes[i].Takes(least) && p.alloc.TakeBack(c, sizes, least) == nil {
		sizes[i], p.nodes[i].tried = least, p.round
	}
}

// probe marks the nodes whose pace is hardly known: those never measured, and those on
// trial.
func (p *participation) probe(plan *cluster.Plan) {
	for i := range p.nodes {
		p.probes[i] = !p.nodes[i].known || p.nodes[i].onTrial(p.round)
	}
	plan.Probe = p.probes
}
