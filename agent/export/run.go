package export

import (
	"slices"

	"evenkeel/cluster"
)

// Run is the end of a policy's run, or where one would begin.
type Run struct {
	Cluster     *cluster.Cluster
	GlobalBatch int                   // as the policy chose it, or the cluster's
	NoiseScale  float64               // gradient noise scale in samples; 0: unknown
	Sizes       []int                 // of the last round; nil: there was none
	Performance []cluster.Performance // in force at the end
	Equal       bool                  // all ranks are to make the same number of micro-steps, also where the cluster is not so; a deadline is left out
}

// tooSlow is why an allocation gives a node nothing.
const tooSlow = "too slow"

// FromRun returns the sizes for a trainer, which has all nodes even if some were absent at
// the end of the run: the last round's if every node took part in it, else the allocation
// over all nodes by the same performance parameters. That leaves a node out if the others
// finish sooner without it; LeftOut says so.
//
// If the cluster's round rule has a deadline, the result has it too. An automatic one is the predicted finish time of the shares.
//
// If scaling, one of Scalings, is given, or the policy chose the global batch, the result has
// the factor of the learning rate; without scaling it follows Sqrt. An error of the allocation
// wraps cluster.ErrCapacity if the nodes cannot hold the global batch.
func FromRun(r Run, scaling string) (Sizes, error) {
	c := *r.Cluster
	c.GlobalBatch = r.GlobalBatch
	sizes := r.Sizes
	if r.Equal && c.EqualSteps() == 0 {
		steps, err := cluster.BestEqualSteps(&c, r.Performance)
		if err != nil {
			return Sizes{}, err
		}
		c, sizes = *c.Own(), nil
		c.SetEqualSteps(steps)
		c.Collect = c.Collect.WithoutDeadline()
	}
	if len(sizes) == 0 || slices.Min(sizes) <= 0 || total(sizes) != c.GlobalBatch {
		sizes = make([]int, len(c.Nodes))
		if _, err := cluster.Allocate(&c, nil, r.Performance, sizes); err != nil {
			return Sizes{}, err
		}
	}
	out := New(&c, sizes)
	for i := range out.Nodes {
		if out.Nodes[i].Share == 0 {
			out.Nodes[i].LeftOut = tooSlow
		}
	}
	out.setDeadline(&c, r.Performance)
	out.even(&c)
	if scaling == "" && c.Choices.MostBatch > 0 {
		scaling = Sqrt
	}
	if scaling == "" {
		return out, nil
	}
	if err := out.ScaleLearningRate(scaling, r.Cluster.GlobalBatch, r.NoiseScale); err != nil {
		return Sizes{}, err
	}
	return out, nil
}

// even makes the micro-steps of a share no larger than needed: of about the same size.
func (s *Sizes) even(c *cluster.Cluster) {
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Share > 0 && n.Deadline == nil && len(c.Nodes[i].Shapes) == 0 {
			n.MicroBatch = (n.Share + n.MicroSteps - 1) / n.MicroSteps
		}
	}
}

// FromPlan returns the sizes of a plan of a job that a service tunes, in the given generation. Its deadline is
// the plan's, which the service moves. leftOut says why a node has no share.
func FromPlan(c *cluster.Cluster, generation int, plan cluster.Plan, leftOut func(node int) string) Sizes {
	own := *c
	own.Collect, own.GlobalBatch = plan.Collect, total(plan.Sizes)
	own.Collect.AutoDeadline, own.Collect.DeadlineShare = false, 0
	s := New(&own, plan.Sizes)
	s.Generation, s.Plan = generation, plan.Number
	for i := range s.Nodes {
		if s.Nodes[i].Share == 0 {
			s.Nodes[i].LeftOut = leftOut(i)
		}
	}
	perf := plan.Perf
	if perf == nil {
		perf = c.Nominal()
	}
	s.setDeadline(&own, perf)
	return s
}

// ChosenBatch returns the global batch that a policy chose within the bounds of c's Choices,
// given its sizes. They sum to less if the nodes present could not hold the batch.
func ChosenBatch(c *cluster.Cluster, sizes []int) int {
	return min(max(total(sizes), c.Choices.LeastBatch, len(c.Nodes)), c.Choices.MostBatch)
}

func total(sizes []int) int {
	sum := 0
	for _, b := range sizes {
		sum += b
	}
	return sum
}
