// Package fleet makes clusters for experiments.
package fleet

import (
	"fmt"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
)

// Mixed is a cluster of so many nodes, of these devices in turn, with so many samples a node.
func Mixed(workload string, nodes, samples int, devices ...string) (*cluster.Cluster, error) {
	c := &cluster.Cluster{Workload: workload, GlobalBatch: samples * nodes}
	for i := range nodes {
		d := devices[i%len(devices)]
		p, err := profile.Embedded().Lookup(d, workload)
		if err != nil {
			return nil, err
		}
		c.Nodes = append(c.Nodes, cluster.Node{Name: fmt.Sprintf("%s-%d", d, i), Device: d, Profile: p, Limit: profile.NoLimit})
	}
	return c, nil
}

// InMicroSteps gives the nodes of a cluster memory for a part of a share only: 4, 8, 16 or 32 micro-steps
// by the profiles, by device; first says with which of these the first device begins. It leaves
// the deadline to the policy.
func InMicroSteps(c *cluster.Cluster, first int) error {
	return InSteps(c, func(device int) int { return 4 << ((device + first) % 4) })
}

// InSteps is InMicroSteps with so many micro-steps for the devices with a number, in order of appearance.
func InSteps(c *cluster.Cluster, of func(device int) int) error {
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
		steps := of(devices[n.Device])
		n.Limit = max((sizes[i]+steps-1)/steps, 1)
	}
	c.Collect.AutoDeadline, c.Collect.Reserve, c.Collect.Overtime = true, cluster.DefaultReserve, cluster.DefaultOvertime
	return nil
}
