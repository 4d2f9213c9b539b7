package baseline

import (
	"errors"
	"math"
	"slices"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/cluster"
)

// replan divides a round into whole micro-steps, as many for each node as make the slowest
// finish soonest, and keeps them until a node's speed has shifted: what systems do that deal
// micro-batches to data-parallel groups. They are Falcon (Wu et al., arXiv 2410.12588; USENIX
// ATC 2025 as Greyhound), whose mitigation plan hands the groups' measured times to a solver of
// integer micro-batches once the iteration is 10% slower than its best, and Malleus (Li et al.,
// arXiv 2410.13333, SIGMOD 2025), which plans data, layers and pipelines anew when the rates of
// stragglers shift. Of Malleus only the abstract was read: by how much rates must shift there is not known here. Deviations:
//
//   - Only data is moved; there is one rank to a node, no pipeline.
//   - A shift is a node's mean time over a window against the time it was planned for, beyond a
//     threshold, either way. Falcon finds it by Bayesian change points of the iteration's time and
//     then measures each rank; here ranks are measured in every round.
//   - Falcon weighs a change's cost against the time lost so far. Here a change costs nothing.
//   - Nodes' micro-batches differ, so whole ones may not sum to the global batch. Then a node's
//     last is smaller.
type replan struct {
	cluster   *cluster.Cluster
	threshold float64
	nodes     []replanned
	nominal   []cluster.Performance
	perf      []cluster.Performance
	sizes     []int // the plan in force; nil: none
	present   []bool
	finish    float64
	alloc     cluster.Allocator
}

// replanned is what the rule knows of a node.
type replanned struct {
	recent  []float64 // slowdowns of its last rounds; the oldest is replaced
	next    int
	planned float64 // slowdown that the plan counts on
}

// NewReplan returns the rule: a node's speed has shifted when its mean time over window rounds
// differs from the plan's by more than the threshold, a share of it.
func NewReplan(c *cluster.Cluster, window int, threshold float64) agent.Policy {
	p := &replan{cluster: c, threshold: threshold, nodes: make([]replanned, len(c.Nodes)), nominal: c.Nominal(), perf: c.Nominal()}
	for i := range p.nodes {
		p.nodes[i] = replanned{recent: make([]float64, 0, window), planned: 1}
	}
	return p
}

func (p *replan) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	if p.observe(report) || p.sizes == nil || !slices.Equal(p.present, present) || !p.fits() {
		if err := p.plan(present); err != nil {
			p.sizes = nil
			return err
		}
	}
	copy(plan.Sizes, p.sizes)
	plan.Perf, plan.Finish = p.perf, p.finish
	return nil
}

// observe takes in a round and reports whether a node's speed has shifted.
func (p *replan) observe(report *cluster.Report) bool {
	shifted := false
	if report == nil {
		return shifted
	}
	for i := range report.Nodes {
		n, r := &p.nodes[i], &report.Nodes[i]
		if !r.Measured() {
			continue
		}
		slow := p.cluster.Nodes[i].Slowness(p.nominal[i], r)
		if len(n.recent) < cap(n.recent) {
			n.recent = append(n.recent, slow)
		} else {
			n.recent[n.next] = slow
			n.next = (n.next + 1) % len(n.recent)
		}
		shifted = shifted || math.Abs(n.mean()/n.planned-1) > p.threshold
	}
	return shifted
}

// mean is the node's slowdown over the window.
func (n *replanned) mean() float64 {
	sum := 0.0
	for _, s := range n.recent {
		sum += s
	}
	return sum / float64(len(n.recent))
}

// fits reports whether the shares in force are still ones that the nodes take.
func (p *replan) fits() bool {
	for i, b := range p.sizes {
		if !p.cluster.Nodes[i].Takes(b) {
			return false
		}
	}
	return true
}

// plan divides the batch anew, by the newest means.
func (p *replan) plan(present []bool) error {
	whole := *p.cluster
	whole.Nodes = slices.Clone(p.cluster.Nodes)
	for i := range whole.Nodes {
		n := &whole.Nodes[i]
		n.Shapes = []int{n.Full()}
		if own := &p.nodes[i]; len(own.recent) > 0 {
			own.planned = own.mean()
		}
		p.perf[i] = n.Slowed(p.nominal[i], p.nodes[i].planned)
	}
	sizes := make([]int, len(whole.Nodes))
	finish, err := p.alloc.Allocate(&whole, present, p.perf, sizes)
	if errors.Is(err, cluster.ErrCapacity) {
		finish, err = p.alloc.Allocate(p.cluster, present, p.perf, sizes)
	}
	if err != nil {
		return err
	}
	p.sizes, p.finish, p.present = sizes, finish, slices.Clone(present)
	return nil
}
