package agent

import (
	"math"

	"evenkeel/cluster"
)

// When a node that is too slow is tried again, in rounds, and what a trial may cost.
const (
	firstTrial  = 2    // rounds until the first trial
	trialGrowth = 3.0  // growth of the waiting time after a failed trial
	lastTrial   = 1024 // longest waiting time, unless trials cost too much
	trialSpread = 30   // least waiting time after a trial, over the trial's cost
	freeTrial   = 0.05 // cost, in rounds, below which a trial is repeated at once
)

// Why is the reason for which a node has no share.
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

// participation decides which nodes may take part. It leaves out nodes whose gradient did not come and nodes to which the
// allocation gives nothing, and tries them again after some rounds, with their least share.
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
	tried int     // round of a trial without a report yet; 0: none
	since int     // round in which it fell silent
	known bool    // one of its gradients was accepted
	cost  float64 // of its last loss or trial, in rounds
	took  float64 // seconds of its newest measurement; 0: none since it was silent
	steps float64 // micro-steps of this measurement, if there were several
	gone  bool    // it is silent, and has been absent since
}

func newParticipation(nodes int) *participation {
	return &participation{nodes: make([]partaker, nodes), past: make([]past, nodes), allowed: make([]bool, nodes), probes: make([]bool, nodes)}
}

// observe processes the report of a round, p.round or an older one, whose shares were predicted to take finish seconds; 0:
// unknown.
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
				continue // it got this share before it was known to be silent
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

// beyond returns the time lost by waiting for a node, in rounds of finish seconds; 0 if finish is not known.
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

// trial returns the expected time of the node's least share. If the newest measurement had several micro-steps, it is at most
// their mean time, because those of the least share have the smallest size. A line fitted to one size, or to rounds
// that all ended at a deadline, may predict much more.
func (n *partaker) trial(node *cluster.Node, perf cluster.Performance) float64 {
	seconds := node.Finish(perf, node.LeastShare())
	if n.steps > 1 {
		seconds = min(seconds, node.Network+max(n.took-node.Network, 0)*float64(node.Steps(node.LeastShare()))/n.steps)
	}
	return seconds
}

// postpone sets the next trial of a node that is too slow. A trial costs the time of over rounds.
func (p *participation) postpone(n *partaker, over float64) {
	grown := int(math.Ceil(trialGrowth * float64(n.wait)))
	spread := int(trialSpread * min(max(over, 0), 1e6))
	n.wait = max(min(max(grown, firstTrial), lastTrial), spread)
	n.next = p.round + n.wait
}

// onTrial says whether the node is on trial in a round.
func (n *partaker) onTrial(round int) bool { return n.tried > 0 && n.tried == round }

// among returns the nodes present that may get a share in the coming round.
func (p *participation) among(c *cluster.Cluster, present []bool) []bool {
	p.round++
	sound := false // a node that is back is left out
	for i, here := range present {
		if n := &p.nodes[i]; here && n.gone {
			p.restarted(i)
		}
		p.allowed[i] = here && p.nodes[i].why != Silent
		sound = sound || here && p.nodes[i].flaps()
	}
	if sound && c.CheckCapacity(p.allowed) != nil { // an unreliable node is better than too small a batch
		for i, here := range present {
			if n := &p.nodes[i]; here && n.flaps() {
				p.allowed[i], *n = true, partaker{known: true}
			}
		}
	}
	return p.allowed
}

// settle processes the plan for the allowed nodes, and gives the nodes that are due for a trial their least share, taken from
// the others.
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

// probe marks the nodes whose pace is hardly known: those without an accepted gradient, and those on trial.
func (p *participation) probe(plan *cluster.Plan) {
	for i := range p.nodes {
		p.probes[i] = !p.nodes[i].known || p.nodes[i].onTrial(p.round)
	}
	plan.Probe = p.probes
}
