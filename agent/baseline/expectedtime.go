package baseline

import (
	"evenkeel/agent"
	"evenkeel/cluster"
)

// expectedTime is the rule of hivemind's progress_tracker.py: peers accumulate until together they
// have the global batch. The expected time is the number of remaining samples over the sum
// of the moving averages of their rates. Deviation: the time is set when the round opens,
// and not corrected as peers report.
type expectedTime struct {
	cluster *cluster.Cluster
	steps   Steps
	nominal []cluster.Performance
	rates   rates
	alloc   cluster.Allocator
}

// NewExpectedTime returns hivemind's rule; gain is that of the moving averages (there: 0.1).
func NewExpectedTime(c *cluster.Cluster, gain float64, steps Steps) agent.Policy {
	return &expectedTime{cluster: c, steps: steps, nominal: c.Nominal(), rates: rates{gain, make([]float64, len(c.Nodes))}}
}

func (p *expectedTime) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	p.rates.observe(report)
	if _, err := p.alloc.Allocate(p.cluster, present, p.nominal, plan.Sizes); err != nil {
		return err
	}
	p.steps.timed(plan, p.rates.expected(p.cluster, p.nominal, present, p.cluster.GlobalBatch))
	return nil
}

// rates is the samples per second of every node, as moving averages.
type rates struct {
	gain float64
	rate []float64 // 0: not measured yet
}

func (r *rates) observe(report *cluster.Report) {
	if report == nil {
		return
	}
	for i := range report.Nodes {
		if n := &report.Nodes[i]; n.Measured() {
			v := float64(n.Size) / max(n.Seconds, report.Wait.Seconds()) // idle time at the end counts
			if r.rate[i] == 0 {
				r.rate[i] = v
			}
			r.rate[i] += r.gain * (v - r.rate[i])
		}
	}
}

// expected returns the time in which the nodes present do a number of samples at these rates. A node without a measurement
// has the rate of its profile.
func (r *rates) expected(c *cluster.Cluster, nominal []cluster.Performance, present []bool, samples int) float64 {
	sum := 0.0
	for i := range c.Nodes {
		if present != nil && !present[i] {
			continue
		}
		v := r.rate[i]
		if full := min(c.Nodes[i].Full(), c.GlobalBatch); v == 0 {
			v = float64(full) / c.Nodes[i].Finish(nominal[i], full)
		}
		sum += v
	}
	return float64(samples) / max(sum, 1e-300)
}
