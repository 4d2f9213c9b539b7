package forward

import (
	"cmp"
	"fmt"
	"slices"

	"evenkeel/cluster"
)

// Pairs assigns ranks to a cluster's nodes. A pair is done when its slower half is, so Pairs sorts nodes by device and speed
// and pairs neighbours. It returns the node of each rank, and by pair the examples in each of its two inputs, such that all
// pairs take about the same time; mean is their mean.
func Pairs(c *cluster.Cluster, mean int) (ranks, examples []int, err error) {
	ranks = make([]int, len(c.Nodes))
	for i := range ranks {
		ranks[i] = i
	}
	if len(ranks)%2 != 0 {
		return nil, nil, fmt.Errorf("%w: %d nodes cannot form pairs", ErrConfig, len(ranks))
	}
	nominal := c.Nominal()
	slices.SortStableFunc(ranks, func(a, b int) int {
		return cmp.Or(cmp.Compare(c.Nodes[a].Device, c.Nodes[b].Device), cmp.Compare(nominal[a].PerSample, nominal[b].PerSample))
	})
	pairs := &cluster.Cluster{Workload: c.Workload, GlobalBatch: mean * len(ranks) / 2}
	var perf []cluster.Performance
	for i := 0; i < len(ranks); i += 2 {
		slow, other := ranks[i], ranks[i+1]
		if nominal[other].PerSample > nominal[slow].PerSample {
			slow = other
		}
		node := c.Nodes[slow]
		node.Limit = max(min(c.Nodes[ranks[i]].Limit, c.Nodes[ranks[i+1]].Limit)/2, 1) // of two inputs
		pairs.Nodes = append(pairs.Nodes, node)
		perf = append(perf, nominal[slow])
	}
	examples = make([]int, len(perf))
	var alloc cluster.Allocator
	if _, err := alloc.AllocateOnce(pairs, perf, examples); err != nil {
		return nil, nil, fmt.Errorf("forward: %w", err)
	}
	return ranks, examples, nil
}
