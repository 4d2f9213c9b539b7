package agent

import (
	"math"

	"evenkeel/cluster"
)

const (
	batchEvery = 10   // rounds between two choices of the global batch; each of the first ten rounds chooses
	batchPays  = 0.02 // least predicted gain of goodput for which it changes
	batchSizes = 40   // tried, geometrically spaced between the bounds
	batchNodes = 1024 // largest number of nodes for predictions of finish times; more nodes change little
)

// batcher chooses the global batch by goodput, as Pollux does (Qiao et al., OSDI 2021):
// the size B with the highest efficiency(B) x B / T(B). T is the finish time of the allocation by the current performance
// parameters; the efficiency follows from the gradient noise scale, relative to the batch that the user named. Unlike in
// Pollux, T is that of a mixed cluster, and a gain of 2% is enough, because moving samples costs almost nothing.
type batcher struct {
	choices   cluster.Choices
	reference float64 // samples
	part      cluster.Cluster
	perf      []cluster.Performance
	sizes     []int
	alloc     cluster.Allocator
	rounds    int
}

// newBatcher returns nil where the batch is fixed.
func newBatcher(c *cluster.Cluster) *batcher {
	if c.Choices.MostBatch == 0 {
		return nil
	}
	return &batcher{choices: c.Choices, reference: float64(c.GlobalBatch)}
}

// choose returns the global batch for the nodes present, given the noise scale in samples.
func (b *batcher) choose(c *cluster.Cluster, present []bool, perf []cluster.Performance, scale float64) int {
	if b.rounds++; b.rounds%batchEvery != 0 && b.rounds > batchEvery || scale <= 0 {
		return c.GlobalBatch
	}
	b.part.Nodes, b.perf = b.part.Nodes[:0], b.perf[:0]
	nodes := 0
	stride := 1 + (len(c.Nodes)-1)/batchNodes
	for i := range c.Nodes {
		if present == nil || present[i] {
			if nodes++; nodes%stride == 0 {
				b.part.Nodes, b.perf = append(b.part.Nodes, c.Nodes[i]), append(b.perf, perf[i])
			}
		}
	}
	if len(b.part.Nodes) == 0 {
		return c.GlobalBatch
	}
	b.sizes = append(b.sizes[:0], make([]int, len(b.part.Nodes))...)
	goodput := func(batch int) float64 {
		b.part.GlobalBatch = max(int(math.Round(float64(batch)*float64(len(b.part.Nodes))/float64(nodes))), len(b.part.Nodes))
		finish, err := b.alloc.Allocate(&b.part, nil, b.perf, b.sizes)
		if err != nil {
			return 0 // more than the memory holds
		}
		return float64(batch) * (scale + b.reference) / (scale + float64(batch)) / finish
	}
	best, most := c.GlobalBatch, goodput(c.GlobalBatch)*(1+batchPays)
	least := max(b.choices.LeastBatch, len(c.Nodes)) // absent nodes may come back
	for k := range batchSizes {
		part := float64(k) / float64(batchSizes-1)
		size := int(math.Round(float64(least) * math.Pow(float64(b.choices.MostBatch)/float64(least), part)))
		if size > b.choices.MostBatch {
			break // fewer fit than there are nodes
		}
		if g := goodput(size); g > most {
			best, most = size, g
		}
	}
	return best
}
