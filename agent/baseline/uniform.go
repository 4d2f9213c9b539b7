package baseline

import (
	"evenkeel/agent"
	"evenkeel/cluster"
)

// uniform gives every node the same size, as trainers do without a tuner.
type uniform struct {
	cluster *cluster.Cluster
	alloc   cluster.Allocator
}

// NewUniform returns the policy that gives every node the same size.
func NewUniform(c *cluster.Cluster) agent.Policy { return &uniform{cluster: c} }

func (p *uniform) Decide(_ *cluster.Report, present []bool, plan *cluster.Plan) error {
	return p.alloc.Uniform(p.cluster, present, plan.Sizes)
}
