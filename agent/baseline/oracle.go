package baseline

import (
	"math"
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
	allocate := func(slowdown func(i int) float64) (float64, error) {
		for i := range o.perf {
			known := slowdown(i)
			if o.config.Noise {
				known *= truth.Factor[i]
			}
			o.perf[i].Overhead = o.base[i].Overhead + truth.Pause[i]
			o.perf[i].PerSample = o.base[i].PerSample * known * (1 + o.config.Margin*truth.Noise[i])
		}
		return o.alloc.Allocate(o.cluster, present, o.perf, plan.Sizes)
	}
	finish, err := allocate(func(i int) float64 {
		if o.config.Lag > 0 {
			return o.last[i]
		}
		return truth.Slowdown[i]
	})
	copy(o.last, truth.Slowdown)
	if o.config.Noise && truth.Coming != nil && err == nil {
		finish, err = foresee(finish, func(finish float64) (float64, error) {
			return allocate(func(i int) float64 { return truth.Coming(i, finish-o.perf[i].Overhead) })
		})
	}
	plan.Perf, plan.Finish = o.perf, finish
	return err
}

// foresee returns the earliest finish that comes true: allocated by the nodes' means until then, the round ends by then. These
// means are exact for nodes that finish together, and what can be done until a moment only grows with it; so no sizes finish
// earlier, and since a round begun later never ends earlier, no policy that waits for all finishes a run before one that takes them.
func foresee(guess float64, allocated func(finish float64) (float64, error)) (float64, error) {
	low, high, at := 0.0, math.Inf(1), guess
	for range 32 {
		finish, err := allocated(at)
		if err != nil {
			return 0, err
		}
		if finish <= at {
			high = at
		} else {
			low = at
		}
		at = min((low+high)/2, 2*at)
	}
	if math.IsInf(high, 1) {
		high = at
	}
	return allocated(high)
}

// Omniscient tells agent.Control that the policy decides by itself who takes part.
func (*oracle) Omniscient() {}

// TruthSource knows the nodes' true state. The simulator does.
type TruthSource interface {
	Truth() cluster.Truth
}
