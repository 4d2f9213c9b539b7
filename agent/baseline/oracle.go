package baseline

import (
	"slices"

	"evenkeel/agent"
	"evenkeel/cluster"
)

// Oracle configures a policy that knows the true rates. It is a bound, not a competitor.
type Oracle struct {
	Lag    int     // age of its knowledge in rounds: 0 (state oracle) or 1 (lag-1 oracle)
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
	alloc   cluster.Allocator
}

// NewOracle returns the oracle. It knows the true rates, and with config.Noise the noise of
// the round. In the first round the lag-1 oracle knows only the profiles.
func NewOracle(c *cluster.Cluster, truth TruthSource, config Oracle) agent.Policy {
	c = c.Revealed()
	return &oracle{
		config: config, cluster: c, truth: truth, base: c.Nominal(), perf: c.Nominal(),
		last: slices.Repeat([]float64{1}, len(c.Nodes)),
	}
}

func (o *oracle) Decide(_ *cluster.Report, present []bool, plan *cluster.Plan) error {
	truth := o.truth.Truth()
	for i := range o.perf {
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
	finish, err := o.alloc.Allocate(o.cluster, present, o.perf, plan.Sizes)
	plan.Perf, plan.Finish = o.perf, finish
	return err
}

// Omniscient tells agent.Control that the policy decides by itself who takes part.
func (*oracle) Omniscient() {}

// TruthSource knows the nodes' true state. The simulator does.
type TruthSource interface {
	Truth() cluster.Truth
}
