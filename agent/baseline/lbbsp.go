package baseline

import (
	"evenkeel/agent"
	"evenkeel/cluster"
)

// lbbsp is LB-BSP (Chen et al., SoCC 2020): a moving average of every node's speed in
// samples per second, and batches proportional to it.
type lbbsp struct {
	cluster *cluster.Cluster
	gain    float64
	speed   []float64 // samples per second; 0: not measured yet
	weights []float64
	alloc   cluster.Allocator
}

// NewLBBSP returns LB-BSP with its gain in (0, 1].
func NewLBBSP(c *cluster.Cluster, gain float64) agent.Policy {
	return &lbbsp{cluster: c, gain: gain, speed: make([]float64, len(c.Nodes)), weights: make([]float64, len(c.Nodes))}
}

func (p *lbbsp) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	if report == nil {
		return p.alloc.Uniform(p.cluster, present, plan.Sizes)
	}
	sum, known := 0.0, 0
	for i := range report.Nodes {
		if r := &report.Nodes[i]; r.Measured() {
			v := float64(r.Size) / r.Seconds
			if p.speed[i] == 0 {
				p.speed[i] = v
			}
			p.speed[i] += p.gain * (v - p.speed[i])
		}
		if p.speed[i] > 0 {
			sum += p.speed[i]
			known++
		}
	}
	if known == 0 {
		return p.alloc.Uniform(p.cluster, present, plan.Sizes)
	}
	for i, v := range p.speed {
		if p.weights[i] = v; v == 0 {
			p.weights[i] = sum / float64(known) // until it is measured
		}
	}
	return p.alloc.Proportional(p.cluster, present, p.weights, plan.Sizes)
}
