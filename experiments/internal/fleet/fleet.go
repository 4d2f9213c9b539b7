// Package microsteps makes clusters whose nodes go through a share in many micro-steps.
package microsteps

import (
	"evenkeel/cluster"
	"evenkeel/cluster/profile"
)

// Limit gives the nodes of a cluster memory for a part of a share only: 4, 8, 16 or 32 micro-steps
// by the profiles, by device; first says with which of these the first device begins. It leaves
// the deadline to the policy.
func Limit(c *cluster.Cluster, first int) error {
	for i := range c.Nodes {
		c.Nodes[i].Limit = profile.NoLimit
	}
	sizes := make([]int, len(c.Nodes))
	if _, err := cluster.Allocate(c, nil, c.Nominal(), sizes); err != nil {
		return err
	}
	devices := map[string]int{}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if _, known := devices[n.Device]; !known {
			devices[n.Device] = len(devices)
		}
		steps := 4 << ((devices[n.Device] + first) % 4)
		n.Limit = max((sizes[i]+steps-1)/steps, 1)
	}
	c.Collect.AutoDeadline, c.Collect.Reserve, c.Collect.Overtime = true, cluster.DefaultReserve, cluster.DefaultOvertime
	return nil
}
