package agent

import (
	"math"

	"evenkeel/cluster"
)

// When a node that is too slow is tried again, in rounds; and what a trial may cost.
const (
	firstTrial  = 2    // until the first trial
	trialGrowth = 3.0  // of that time after every trial that fails
	lastTrial   = 1024 // most rounds between two trials, unless they cost too much
	trialSpread = 30   // rounds over which the time that a trial costs is spread
	freeTrial   = 0.05 // of a round: what a trial may cost to be repeated at once
)

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

func newParticipation(nodes int) *participation {
	return &participation{nodes: make([]partaker, nodes), past: make([]past, nodes), allowed: make([]bool, nodes), probes: make([]bool, nodes)}
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
			if n.why == Silent {
				p.find(i)
				continue
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
		switch {
		case r.Status == cluster.Lost:
			p.lose(i, waited(report, finish))
		case trial && n.why != TakesPart:
			if p.postpone(n, over); over < freeTrial {
				n.wait, n.next = 0, p.round+1 // nobody waited: the policy may need a second look
			}
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

// trial is how long the node's least share is expected to take: no longer than a micro-step of its newest measurement,
// where that had several, as it is the smallest. A line through one size, or through rounds that all ended at a deadline, may say much more.
func (n *partaker) trial(node *cluster.Node, perf cluster.Performance) float64 {
	seconds := node.Finish(perf, node.LeastShare())
	if n.steps > 1 {
		seconds = min(seconds, node.Network+max(n.took-node.Network, 0)/n.steps)
	}
	return seconds
}

// postpone sets the next trial of a node that is too slow, where a trial costs the time of over rounds.
func (p *participation) postpone(n *partaker, over float64) {
	grown := int(math.Ceil(trialGrowth * float64(n.wait)))
	spread := int(trialSpread * min(max(over, 0), 1e6))
	n.wait = max(min(max(grown, firstTrial), lastTrial), spread)
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
