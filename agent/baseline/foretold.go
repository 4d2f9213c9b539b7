package baseline

import (
	"math"
	"slices"

	"evenkeel/agent"
	"evenkeel/cluster"
)

// Foretold configures water-filling with change detection, and a rule of thumb that foretells a node's slow spells. One that is
// foretold for the coming round has the slowdown of the spell before.
type Foretold struct {
	WaterFill
	Window float64 `json:"window,omitempty"` // a spell is foretold a median lag after the last event, this share of the lag and a round sooner or later; not if in the median of up to five lags more is off; 0: no
	Before bool    `json:"before,omitempty"` // the event is a spell of the node before it in the rack, or on the host where no racks are known; otherwise the node's own
	Sign   float64 `json:"sign,omitempty"`   // a spell is foretold after two rounds in a row that are so many deviations slow; 0: no
}

// foretold is the rule at work. The average leaves out spells.
type foretold struct {
	*waterFill
	config Foretold
	nodes  []foreseen
	now    float64 // seconds of all rounds
	last   float64 // seconds of the newest
	ready  []cluster.Performance
}

// foreseen is what is known of a node's spells.
type foreseen struct {
	level float64   // slowdown outside spells, moving average
	slow  float64   // slowdown over the level in the newest spell; 0: there was none
	in    int       // slow rounds in a row
	begin float64   // of them, seconds
	over  float64   // largest slowdown over the level in them
	event float64   // from which the next one is foretold, seconds
	lags  []float64 // newest times from an event to the spell, seconds
	signs int       // rounds in a row a little slow
}

const (
	spellFrom = 1.2 // over the level
	levelRate = 0.05
	keptLags  = 5
)

// NewForetold returns the rule for c.
func NewForetold(c *cluster.Cluster, config Foretold) agent.Policy {
	return &foretold{waterFill: newWaterFill(c, config.WaterFill), config: config, nodes: make([]foreseen, len(c.Nodes)), ready: make([]cluster.Performance, len(c.Nodes))}
}

func (p *foretold) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	p.observe(report)
	if report != nil {
		p.last = report.Wait.Seconds()
		p.now += p.last
		for i := range p.nodes {
			if r := &report.Nodes[i]; r.Measured() {
				p.see(i, p.cluster.Nodes[i].Slowness(p.waterFill.nodes[i].base, r))
			}
		}
	}
	for i := range p.nodes {
		p.ready[i] = p.perf[i]
		if n := &p.nodes[i]; n.slow > 0 && n.in == 0 && (p.due(n) || p.config.Sign > 0 && n.signs >= 2) {
			p.ready[i] = p.cluster.Nodes[i].Slowed(p.waterFill.nodes[i].base, n.level*n.slow)
		}
	}
	finish, err := p.alloc.Allocate(p.cluster, present, p.ready, plan.Sizes)
	plan.Perf, plan.Finish = p.ready, finish
	return err
}

// see takes in a measured slowdown of node i.
func (p *foretold) see(i int, slowdown float64) {
	n := &p.nodes[i]
	over := slowdown / max(n.level, 1e-9)
	switch {
	case n.level == 0:
		n.level = slowdown
	case over < spellFrom:
		n.in = 0
		n.level += levelRate * (slowdown - n.level)
	case n.in == 0:
		n.in, n.begin, n.over = 1, p.now, over
	default:
		n.over = max(n.over, over)
		n.slow = n.over
		if n.in++; n.in == 2 { // no spike
			p.begins(i)
		}
	}
	n.signs++
	if over >= spellFrom || over-1 < p.config.Sign*math.Sqrt(p.waterFill.nodes[i].variance) {
		n.signs = 0
	}
}

// begins takes in a spell of node i.
func (p *foretold) begins(i int) {
	n := &p.nodes[i]
	if n.event > 0 {
		n.lags = append(n.lags[max(len(n.lags)+1-keptLags, 0):], n.begin-n.event)
		n.event = 0
	}
	if !p.config.Before {
		n.event = n.begin
	} else if i+1 < len(p.nodes) && p.cluster.Nodes[i].Near(&p.cluster.Nodes[i+1]) {
		p.nodes[i+1].event = n.begin
	}
}

// due says whether a spell of the node is foretold for the coming round.
func (p *foretold) due(n *foreseen) bool {
	if p.config.Window == 0 || n.event == 0 || len(n.lags) < 2 {
		return false
	}
	lag, off := median(n.lags), make([]float64, len(n.lags))
	for k, l := range n.lags {
		off[k] = math.Abs(l - lag)
	}
	return median(off) <= p.config.Window*lag && math.Abs(n.event+lag-p.now) < p.config.Window*lag+p.last
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
