package baseline

import (
	"slices"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/cluster"
)

// Oracle configures a policy that knows the true rates: a bound, not a competitor.
type Oracle struct {
	Lag    int     // age of its knowledge in rounds: 0 for the state oracle, 1 for the lag-1 oracle
	Once   bool    // it knows only the first round: the static oracle
	Margin float64 // safety margin, in true standard deviations of each node's noise
	Noise  bool    // it knows the noise of the coming round too: hindsight
}

type oracle struct {
	config  Oracle
	cluster *cluster.Cluster
	truth   TruthSource
	base    []cluster.Performance
	perf    []cluster.Performance
	last    []float64
	asked   bool
	sound   []bool // who will hand in something
	alloc   cluster.Allocator
}

// NewOracle returns the oracle. It knows the true rates but not the noise of a round,
// unless it is the one of hindsight.
// In the first round the lag-1 oracle knows only the profiles.
func NewOracle(c *cluster.Cluster, truth TruthSource, config Oracle) agent.Policy {
	c = c.Revealed()
	o := &oracle{config: config, cluster: c, truth: truth, base: make([]cluster.Performance, len(c.Nodes)), perf: c.Nominal(), last: make([]float64, len(c.Nodes))}
	copy(o.base, o.perf)
	for i := range o.last {
		o.last[i] = 1
	}
	return o
}

func (o *oracle) Decide(_ *cluster.Report, present []bool, plan *cluster.Plan) error {
	truth := o.truth.Truth()
	for i := range o.perf {
		if o.config.Once && o.asked {
			break
		}
		known := truth.Slowdown[i]
		if o.config.Lag > 0 {
			known = o.last[i]
		}
		if o.config.Noise {
			known *= truth.Factor[i]
		}
		o.perf[i].PerSample = o.base[i].PerSample * known * (1 + o.config.Margin*truth.Noise[i])
		o.last[i] = truth.Slowdown[i]
	}
	o.asked = true
	finish, err := o.alloc.Allocate(o.cluster, o.speaking(truth.Mute, present), o.perf, plan.Sizes)
	plan.Perf, plan.Finish = o.perf, finish
	return err
}

// speaking are those present that will hand in something, or all if nobody does.
func (o *oracle) speaking(mute, present []bool) []bool {
	if !slices.Contains(mute, true) {
		return present
	}
	o.sound = append(o.sound[:0], mute...)
	for i, silent := range mute {
		o.sound[i] = !silent && (present == nil || present[i])
	}
	if !slices.Contains(o.sound, true) {
		return present
	}
	return o.sound
}

// Omniscient implements agent.Omniscient.
func (*oracle) Omniscient() {}

// TruthSource knows the nodes' true state. The simulator does.
type TruthSource interface {
	Truth() cluster.Truth
}

// partaking is a policy under another rule of who takes part.
type partaking struct {
	agent.Policy
	rule agent.Partaking
}

// WithPartaking returns the policy under a rule of who takes part.
func WithPartaking(p agent.Policy, rule agent.Partaking) agent.Policy { return partaking{p, rule} }

// Partaking returns the constants by which the controller decides who takes part.
func (p partaking) Partaking() agent.Partaking { return p.rule }

// usable is the slowdown below which Returns takes a node back.
const usable = 5

// Returns is a rule that knows when a node that was left out would be of use again, and tries it
// then alone: a bound. It does not know beforehand when a node will fall silent.
func Returns(truth TruthSource) agent.Partaking {
	rule := agent.DefaultPartaking
	rule.Losses = 1 // a loss leaves it out
	rule.Back = func(node int) bool {
		t := truth.Truth()
		return !t.Mute[node] && t.Slowdown[node] < usable
	}
	return rule
}
