package runlog

import (
	"fmt"
	"slices"
	"strings"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
)

// Live is the source of logs of real jobs; those of the simulator name none.
const Live = "live"

// Start is a start of a live job's process group: the ranks of the rounds that follow, as the
// controller was told of them.
type Start struct {
	Generation  int             `json:"generation"` // from 1, rising by 1
	Workload    string          `json:"workload"`
	GlobalBatch int             `json:"global_batch"`
	Collect     cluster.Collect `json:"collect"`
	Profiles    string          `json:"profiles,omitempty"` // as in the header; "": no rank has one
	EqualSteps  int             `json:"equal_steps,omitzero"`
	Nodes       []StartNode     `json:"nodes"` // in rank order
}

// StartNode is a rank.
type StartNode struct {
	Name     string        `json:"name"`
	Device   string        `json:"device"`
	Profiled bool          `json:"profiled,omitempty"` // the controller knew its profile
	Limit    int           `json:"limit"`              // largest micro-batch, >= 1
	Least    int           `json:"least,omitempty"`
	Sizes    []int         `json:"sizes,omitempty"` // all micro-batches, rising
	TFLOPS   float64       `json:"tflops,omitempty"`
	Power    cluster.Power `json:"power,omitzero"`
}

// NewStart describes the cluster of a generation.
func NewStart(generation int, c *cluster.Cluster) *Start {
	s := &Start{Generation: generation, Workload: c.Workload, GlobalBatch: c.GlobalBatch, Collect: c.Collect, EqualSteps: c.EqualSteps()}
	if slices.ContainsFunc(c.Nodes, func(n cluster.Node) bool { return n.Profile != nil }) {
		s.Profiles = profiles(c)
	}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		s.Nodes = append(s.Nodes, StartNode{n.Name, n.Device, n.Profile != nil, n.Limit, n.Least, n.Shapes, n.TFLOPS, n.Power})
	}
	return s
}

// cluster builds what a start describes.
func (s *Start) cluster() (*cluster.Cluster, error) {
	catalogue := new(profile.Catalogue)
	if s.Profiles != "" {
		if err := catalogue.AddReader("profiles", strings.NewReader(s.Profiles)); err != nil {
			return nil, err
		}
	}
	if len(s.Nodes) == 0 || len(s.Nodes) > cluster.MaxNodes || s.GlobalBatch < 1 || s.GlobalBatch > cluster.MaxGlobalBatch {
		return nil, fmt.Errorf("%d nodes, global batch %d; there must be 1 to %d nodes, and a batch of 1 to %d", len(s.Nodes), s.GlobalBatch, cluster.MaxNodes, cluster.MaxGlobalBatch)
	}
	c := &cluster.Cluster{Workload: s.Workload, GlobalBatch: s.GlobalBatch, Collect: s.Collect}
	for i, n := range s.Nodes {
		rising := slices.IsSorted(n.Sizes) && len(slices.Compact(slices.Clone(n.Sizes))) == len(n.Sizes) && (len(n.Sizes) == 0 || n.Sizes[0] > 0)
		if n.Name == "" || n.Limit < 1 || n.Least < 0 || !rising {
			return nil, fmt.Errorf("nodes[%d]: name %q, limit %d, least %d, sizes %v cannot be", i, n.Name, n.Limit, n.Least, n.Sizes)
		}
		var p *profile.Profile
		if n.Profiled {
			var err error
			if p, err = catalogue.Lookup(n.Device, s.Workload); err != nil {
				return nil, fmt.Errorf("nodes[%d]: %w", i, err)
			}
		}
		c.Nodes = append(c.Nodes, cluster.Node{Name: n.Name, Device: n.Device, Profile: p, Limit: n.Limit, Least: n.Least, Shapes: n.Sizes, TFLOPS: n.TFLOPS, Power: n.Power})
	}
	if err := setEqualSteps(c, s.EqualSteps); err != nil {
		return nil, err
	}
	if err := c.CheckCapacity(nil); err != nil {
		return nil, err
	}
	return c, nil
}

// setEqualSteps sets a number of equal micro-steps that a log has.
func setEqualSteps(c *cluster.Cluster, steps int) error {
	if steps < 0 || steps > cluster.MaxMicroSteps {
		return fmt.Errorf("equal_steps: is %d; it must lie in 0..%d", steps, cluster.MaxMicroSteps)
	}
	c.SetEqualSteps(steps)
	return nil
}

// Start writes a start of the process group.
func (w *Writer) Start(s *Start) error {
	return w.write(struct {
		Start *Start `json:"start"`
	}{s})
}

// start checks a start of the process group, whose cluster becomes the reader's.
func (r *Reader) start(s *Start) error {
	if r.Header.Source != Live {
		return r.bad("start: only logs with source %q have any", Live)
	}
	if s.Generation != r.generation+1 {
		return r.bad("start.generation: is %d, %d was expected", s.Generation, r.generation+1)
	}
	c, err := s.cluster()
	if err != nil {
		return r.bad("start: %w", err)
	}
	r.generation, r.round, r.Cluster = s.Generation, -1, c
	return nil
}
