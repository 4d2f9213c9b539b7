package forward

import (
	"fmt"
	"slices"

	"github.com/evenkeel/evenkeel/cluster"
)

// Pairs makes processors of a cluster's nodes: nodes of one device in pairs, as the slower half of a pair decides when it is
// done. It returns the examples of each pair's inputs, so that all pairs take the same time; each is the mean in the
// mean.
func Pairs(c *cluster.Cluster, mean int) ([]int, error) {
	order := make([]int, len(c.Nodes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch x, y := c.Nodes[a].Device, c.Nodes[b].Device; {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	if len(order)%2 != 0 {
		return nil, fmt.Errorf("%w: %d nodes do not go in pairs", ErrConfig, len(order))
	}
	nominal := c.Nominal()
	pairs := &cluster.Cluster{Workload: c.Workload, GlobalBatch: mean * len(order) / 2}
	var perf []cluster.Performance
	for i := 0; i < len(order); i += 2 {
		slow := order[i]
		if other := order[i+1]; nominal[other].PerSample > nominal[slow].PerSample {
			slow = other
		}
		node := c.Nodes[slow]
		node.Limit = max(min(c.Nodes[order[i]].Limit, c.Nodes[order[i+1]].Limit)/2, 1) // of two inputs
		pairs.Nodes = append(pairs.Nodes, node)
		perf = append(perf, nominal[slow])
	}
	sizes := make([]int, len(perf))
	var alloc cluster.Allocator
	if _, err := alloc.Allocate(pairs, nil, perf, sizes); err != nil {
		return nil, fmt.Errorf("forward: %w", err)
	}
	return sizes, nil
}
