package agent

import (
	"cmp"
	"math"

	"evenkeel/cluster"
)

// Prior expectations: a number of events per number of rounds; and limits.
const (
	priorEvents  = 0.2
	priorSound   = 200  // rounds of participation in which priorEvents nodes fall silent
	priorSilent  = 20   // rounds of silence in which priorEvents nodes come back
	fleetCounts  = 3    // weight of the fleet's rate in the rate of a node, in silences
	longestWait  = 1024 // rounds between trials, except for a node without an accepted gradient
	flappingWait = 600  // rounds for which a node that falls silent too often is left out
	waitGrowth   = 1.2  // ratio of successive waiting times that patience compares
	leastCost    = 0.05 // of a loss, in rounds
	neverHeard   = 30   // least waiting time of a node without an accepted gradient, over the cost of its loss
)

// silences counts how often a node, or the fleet, fell silent and came back.
type silences struct {
	fell, back float64
	in, out    float64 // rounds in which it took part, and in which it was left out as silent
}

// past is the history of a node.
type past struct {
	silences
	share float64 // of the global batch, the last time that it took part; 0: it never did
	cost  float64 // of its last loss, in rounds
}

// worth returns the cost of a loss of node i, in rounds of its share.
func (p *participation) worth(i int) float64 {
	h := &p.past[i]
	share := cmp.Or(h.share, 1/float64(len(p.past)))
	return max(h.cost, leastCost) / share
}

// falls returns the rate per round at which node i falls silent, shrunk towards the fleet's rate.
func (p *participation) falls(i int) float64 {
	fleet := (p.fleet.fell + priorEvents) / (p.fleet.in + priorSound)
	return (p.past[i].fell + fleetCounts) / (p.past[i].in + fleetCounts/fleet)
}

// returns returns the rate per round at which silent nodes of the fleet come back.
func (p *participation) returns() float64 {
	return (p.fleet.back + priorEvents) / (p.fleet.out + priorSilent)
}

// patience returns the number of rounds between trials that minimises the cost of a silence. Silent nodes come back at the
// given rate per round, and a failed trial costs worth rounds of the node's share. With trials every t rounds, a trial
// finds the node back with the chance f = 1 - exp(-rate t). So 1/f - 1 trials fail on average, and the node takes part again
// after t/f rounds.
func patience(worth, rate float64) int {
	best, least := 1, math.Inf(1)
	for t := 1; t <= longestWait; t = max(t+1, int(waitGrowth*float64(t))) {
		f := -math.Expm1(-rate * float64(t))
		if cost := worth*(1-f)/f + float64(t)/f; cost < least {
			best, least = t, cost
		}
	}
	return best
}

// waited returns the time that a round lost by waiting for nodes that handed in nothing, relative to the time of the slowest
// other node. If no node handed in anything, it is relative to finish, the round's predicted time.
func waited(report *cluster.Report, finish float64) float64 {
	slowest := 0.0
	for i := range report.Nodes {
		if r := &report.Nodes[i]; r.Status == cluster.In {
			slowest = max(slowest, r.Seconds)
		}
	}
	slowest = cmp.Or(slowest, finish)
	if slowest <= 0 {
		return 0
	}
	return max(report.Wait.Seconds()/slowest-1, 0)
}

// lose notes that node i handed in nothing. The node is left out until its next trial.
func (p *participation) lose(i int, cost float64) {
	n, h := &p.nodes[i], &p.past[i]
	h.cost = cost
	n.cost = cost
	if n.why != Silent || n.lost == 1 { // else it was silent before
		h.fell++
		p.fleet.fell++
		n.why, n.since = Silent, p.round
	}
	wait := patience(p.worth(i), p.returns())
	if !n.known { // such a node probably cannot take part soon
		wait = max(wait, int(min(neverHeard*cost, 1e6)))
	}
	n.delay(p.round, wait)
}

// find notes that node i, which was left out as silent, has handed in something. It takes part again, unless it falls silent
// so often that its work between two losses is worth less than a loss.
func (p *participation) find(i int) {
	n := &p.nodes[i]
	if p.worth(i)*p.falls(i) > 1 {
		n.delay(p.round, flappingWait)
		return
	}
	*n = partaker{known: true}
}

// restarted notes that node i, which was silent and then absent, is present again. A restart ends most hangs, so the node
// takes part again, but only once until its next gradient.
func (p *participation) restarted(i int) {
	n := &p.nodes[i]
	if n.gone = false; n.lost != 1 || !n.known {
		return
	}
	if p.find(i); n.why == Silent {
		n.lost = 0 // it flaps
	} else {
		n.lost = 1
	}
}

// flaps says whether the node is back, but left out because it falls silent too often.
func (n *partaker) flaps() bool { return n.why == Silent && n.lost == 0 }

// delay sets the next trial.
func (n *partaker) delay(round, wait int) { n.wait, n.next = wait, round+wait }

// count counts a round in which node i took part, or was left out as silent.
func (p *participation) count(i int, in bool) {
	h := &p.past[i]
	if in {
		h.in++
		p.fleet.in++
		return
	}
	h.out++
	p.fleet.out++
}
