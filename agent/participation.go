package agent

import (
	"github.com/evenkeel/evenkeel/cluster"
)

const (
	lossesOut  = 2    // losses in a row after which a node is left out
	firstTrial = 8    // rounds until a node that is left out is tried; twice as many after every trial that fails
	lastTrial  = 1024 // most rounds between two trials, unless they cost too much
	freeTrial  = 0.05 // of a round: what a trial may cost to be repeated at once
	trialCost  = 100  // rounds over which each round's time spent on a trial is spread, as far as lastTrial allows
	leastCost  = 30   // the same, in any case
)

// Why says for what reason a node has no share.
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

// participation decides who may take part: a node whose gradients did not come is left out,
// as is one to which the allocation gives nothing, and each is tried again after a growing
// number of rounds, with its least share.
type participation struct {
	nodes   []partaker
	allowed []bool
	probes  []bool
	round   int
	alloc   cluster.Allocator
}

type partaker struct {
	why   Why
	lost  int  // losses in a row
	wait  int  // rounds from one trial to the next
	next  int  // round of the next trial
	tried int  // round of the trial whose report is not in; 0: none
	since int  // round in which it fell silent
	known bool // its time was measured
}

func newParticipation(nodes int) *participation {
	return &participation{nodes: make([]partaker, nodes), allowed: make([]bool, nodes), probes: make([]bool, nodes)}
}

// observe takes in what became of the shares that were settled in a round, p.round or an older
// one, and predicted to take finish seconds, 0 if unknown.
func (p *participation) observe(report *cluster.Report, round int, finish float64) {
	for i := range report.Nodes {
		n, r := &p.nodes[i], &report.Nodes[i]
		trial := n.onTrial(round)
		if n.tried <= round {
			n.tried = 0
		}
		switch r.Status {
		case cluster.In:
			n.lost, n.known = 0, true
			if n.why == Silent {
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
		// What the round lost by waiting for this node, in rounds.
		over := 0.0
		if slow := r.Seconds; finish > 0 {
			if r.Status == cluster.Lost {
				slow = report.Wait.Seconds()
			}
			over = slow/finish - 1
		}
		// Most hangs pass with a restart, so a node gets a second chance; one that never was
		// heard of, and held up the others, does not.
		out := n.lost >= lossesOut || n.lost > 0 && !n.known && over >= 1
		if trial && n.why != TakesPart || out {
			// What was lost is spread over many rounds.
			if n.postpone(p.round, spread(over)); r.Status == cluster.In && over < freeTrial {
				n.wait, n.next = 0, p.round+1 // nobody waited: the policy may need a second look
			}
		}
		if out {
			n.why, n.since = Silent, p.round
		}
	}
}

// spread is how many rounds there should be from one trial to the next, where a trial costs
// the time of over rounds.
func spread(over float64) int {
	over = min(max(over, 0), 1e6)
	return int(max(min(trialCost*over, lastTrial), leastCost*over))
}

// postpone sets the next trial, not before so many rounds have gone by.
func (n *partaker) postpone(round, least int) {
	n.wait = max(min(max(2*n.wait, firstTrial), lastTrial), least)
	n.next = round + n.wait
}

// onTrial says whether a round tries the node.
func (n *partaker) onTrial(round int) bool { return n.tried > 0 && n.tried == round }

// among returns who of those present may be planned for in the coming round.
func (p *participation) among(present []bool) []bool {
	p.round++
	for i, here := range present {
		p.allowed[i] = here && p.nodes[i].why != Silent
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
			continue
		case n.why == Silent:
		case sizes[i] > 0:
			*n = partaker{lost: n.lost, known: n.known}
			continue
		case n.why != TooSlow:
			n.why = TooSlow
			over := 0.0
			if plan.Perf != nil && plan.Finish > 0 {
				over = c.Nodes[i].Finish(plan.Perf[i], c.Nodes[i].LeastShare())/plan.Finish - 1
			}
			n.postpone(p.round, spread(over))
		}
		if p.round >= n.next && n.tried == 0 {
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
