package baseline

import (
	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/cluster"
)

// static deals by weights that never change.
type static struct {
	cluster *cluster.Cluster
	weights []float64 // nil: equal
	alloc   cluster.Allocator
}

// NewUniform returns the policy that gives every node the same size, as trainers do without
// a tuner.
func NewUniform(c *cluster.Cluster) agent.Policy { return &static{cluster: c} }

// NewNameplate returns the policy that deals in proportion to the devices' data-sheet speed,
// as people do by hand.
func NewNameplate(c *cluster.Cluster) agent.Policy {
	return &static{cluster: c, weights: nameplates(c)}
}

// nameplates are the nodes' data-sheet speeds. A device without one counts as the mean
// of the others.
func nameplates(c *cluster.Cluster) []float64 {
	weights, sum, known := make([]float64, len(c.Nodes)), 0.0, 0
	for i, n := range c.Nodes {
		weights[i] = n.TFLOPS
		if n.TFLOPS > 0 {
			sum += n.TFLOPS
			known++
		}
	}
	for i := range weights {
		if weights[i] == 0 {
			weights[i] = 1
			if known > 0 {
				weights[i] = sum / float64(known)
			}
		}
	}
	return weights
}

func (p *static) Decide(_ *cluster.Report, present []bool, plan *cluster.Plan) error {
	return p.alloc.Proportional(p.cluster, present, p.weights, plan.Sizes)
}
