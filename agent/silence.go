package agent

import (
	"math"

	"evenkeel/cluster"
)

// What is expected of a run before it has shown anything: so many events in so many rounds.
const (
	priorEvents  = 0.2
	priorSound   = 200 // rounds of a node until it falls silent, for the events
	priorSilent  = 20  // rounds of a silent node until it is back, the same
	fleetCounts  = 3   // silences that the fleet's rate counts as in a node's own
	longestWait  = 1024
	flappingWait = 600 // rounds for which a node that is back but falls silent too often stays out
	waitGrowth   = 1.2 // from one wait that is weighed to the next
	leastCost    = 0.05
	neverHeard   = 30 // times what a loss cost: rounds until a node that never handed in anything is tried again
)

// silences counts what a node, or the fleet, has shown of falling silent and coming back.
type silences struct {
	fell, back float64
	in, out    float64 // rounds in which it took part, and in which it was left out as silent
}

// past is what a node has shown.
type past struct {
	silences
	share float64 // of the global batch, the last time that it took part; 0: it did not
	cost  float64 // of its last loss, in rounds
}

// worth returns what a loss of node i costs, in rounds of its share.
func (p *participation) worth(i int) float64 {
	h := &p.past[i]
	share := h.share
	if share == 0 {
		share = 1 / float64(len(p.past))
	}
	return max(h.cost, leastCost) / share
}

// falls returns the rate at which node i falls silent, per round: its own, shrunk toward the fleet's.
func (p *participation) falls(i int) float64 {
	fleet := (p.fleet.fell + priorEvents) / (p.fleet.in + priorSound)
	return (p.past[i].fell + fleetCounts) / (p.past[i].in + fleetCounts/fleet)
}

// returns is the rate at which the fleet's silent nodes come back, per round.
func (p *participation) returns() float64 {
	return (p.fleet.back + priorEvents) / (p.fleet.out + priorSilent)
}

// patience returns the number of rounds between trials at which a silence costs least. Silent nodes come back at the given rate
// per round, and a trial that fails costs worth rounds of the node's share. With trials t rounds apart, a trial finds the node
// back with the chance f = 1 - exp(-rate t), so 1/f - 1 trials fail in the mean, and the node is in use again after t/f rounds.
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

// waited returns what a round lost by waiting for nodes that handed in nothing, in units of the time of the slowest node that
// did. finish is the round's predicted time, used where no node handed in anything.
func waited(report *cluster.Report, finish float64) float64 {
	slowest := 0.0
	for i := range report.Nodes {
		if r := &report.Nodes[i]; r.Status == cluster.In {
			slowest = max(slowest, r.Seconds)
		}
	}
	if slowest == 0 {
		slowest = finish
	}
	if slowest <= 0 {
		return 0
	}
	return max(report.Wait.Seconds()/slowest-1, 0)
}

// lose takes in that node i handed in nothing. The node is left out until its next trial.
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
	if !n.known { // what never was there is hardly back soon
		wait = max(wait, int(min(neverHeard*cost, 1e6)))
	}
	n.delay(p.round, wait)
}

// find takes in that node i, which was left out as silent, has handed in something. It takes part again, unless it
// falls silent so often that what it does until then is worth less than the loss.
func (p *participation) find(i int) {
	n := &p.nodes[i]
	if p.worth(i)*p.falls(i) > 1 {
		n.delay(p.round, flappingWait)
		return
	}
	*n = partaker{known: true}
}

// restarted takes in that the runner has node i again, which was silent and which it did not have meanwhile. Most hangs
// pass with a restart, so it takes part again, but only once until its next gradient.
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

// flaps says whether the node is back and still left out, because it falls silent too often.
func (n *partaker) flaps() bool { return n.why == Silent && n.lost == 0 }

// delay sets the next trial.
func (n *partaker) delay(round, wait int) { n.wait, n.next = wait, round+wait }

// count takes in a round in which node i took part, or was left out as silent.
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
