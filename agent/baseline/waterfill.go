package baseline

import (
	"math"

	"evenkeel/agent"
	"evenkeel/cluster"
)

// WaterFill configures the model-based rule: equal predicted finish times (Cannikin's
// OptPerf, Middleware 2024). The performance parameters follow a moving average of each
// node's slowdown against its profile.
type WaterFill struct {
	Gain   float64 `json:"gain"`             // of the newest measurement, (0, 1]
	Margin float64 `json:"margin"`           // safety margin for noise, in standard deviations of the node's residuals, >= 0
	CUSUM  float64 `json:"cusum,omitempty"`  // cumulative sum of the residuals, in standard deviations, from which the newest measurement replaces the average; 0: never
	Forget float64 `json:"forget,omitempty"` // instead fit overhead and seconds per sample by least squares with this forgetting factor; 0: keep the profile's shape
}

// waterFill is the rule at work.
type waterFill struct {
	config  WaterFill
	cluster *cluster.Cluster
	perf    []cluster.Performance
	nodes   []waterNode
	alloc   cluster.Allocator
}

type waterNode struct {
	base      cluster.Performance // at slowdown 1
	slowdown  float64
	variance  float64 // of the relative residuals
	count     float64
	high, low float64               // one-sided cumulative sums
	fit       *cluster.LeastSquares // nil: the profile's shape is kept
}

// residualRate is the rate of the moving average of the residuals' variance, the same for
// every rule.
const residualRate = 0.05

// NewWaterFill returns the rule for c.
func NewWaterFill(c *cluster.Cluster, config WaterFill) agent.Policy { return newWaterFill(c, config) }

func newWaterFill(c *cluster.Cluster, config WaterFill) *waterFill {
	p := &waterFill{config: config, cluster: c, perf: c.Nominal(), nodes: make([]waterNode, len(c.Nodes))}
	for i := range p.nodes {
		p.nodes[i] = waterNode{base: p.perf[i], slowdown: 1}
		if config.Forget > 0 || c.Nodes[i].Profile == nil {
			p.nodes[i].fit = cluster.NewLeastSquares(forgetting(config.Forget))
		}
	}
	return p
}

// forgetting returns the factor for a node without a profile, by default 0.98.
func forgetting(factor float64) float64 {
	if factor == 0 {
		return 0.98
	}
	return factor
}

func (p *waterFill) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	p.observe(report)
	finish, err := p.alloc.Allocate(p.cluster, present, p.perf, plan.Sizes)
	plan.Perf, plan.Finish = p.perf, finish
	return err
}

func (p *waterFill) observe(report *cluster.Report) {
	if report != nil {
		for i := range report.Nodes {
			p.update(i, &report.Nodes[i])
		}
	}
}

func (p *waterFill) update(i int, r *cluster.NodeReport) {
	n, node := &p.nodes[i], &p.cluster.Nodes[i]
	if !r.Measured() {
		// A late node's time has only a lower bound: believe at least that.
		if r.Status == cluster.Late && r.Size > 0 {
			n.slowdown = max(n.slowdown, node.Slowness(n.base, r))
			p.set(i)
		}
		return
	}
	if n.fit != nil && n.count == 0 {
		p.learn(i, r)
	}
	measured := node.Slowness(n.base, r)
	residual := measured/n.slowdown - 1
	n.count++
	rate := max(residualRate, 1/n.count)
	if n.count > 1 { // the first residual is the node's bias, not noise
		deviation := math.Sqrt(n.variance)
		clipped := residual
		if n.variance > 0 {
			clipped = min(max(residual, -4*deviation), 4*deviation)
		}
		n.variance += rate * (clipped*clipped - n.variance)
		n.variance = max(n.variance, 1e-6)
	}
	gain := p.config.Gain
	if n.count == 1 {
		gain = 1 // any measurement beats an average with the data sheet
	}
	if p.config.CUSUM > 0 && n.count > 1 {
		z := residual / math.Sqrt(n.variance)
		n.high, n.low = max(0, n.high+z-0.5), max(0, n.low-z-0.5)
		if n.high > p.config.CUSUM || n.low > p.config.CUSUM {
			gain, n.high, n.low = 1, 0, 0
		}
	}
	n.slowdown += gain * (measured - n.slowdown)
	// Where a line is fitted, measurements near it refine it; others only move the slowdown,
	// because a slow period says nothing about the line.
	if n.fit != nil && (p.config.Forget > 0 || n.count <= 8 || math.Abs(measured-1) <= 4*math.Sqrt(n.variance)) {
		p.learn(i, r)
	}
	p.set(i)
}

// learn adds a node's newest time to its fitted line.
func (p *waterFill) learn(i int, r *cluster.NodeReport) {
	n, node := &p.nodes[i], &p.cluster.Nodes[i]
	n.fit.Add(node.Cost(r.Size), r.Seconds)
	n.base, _ = n.fit.Performance(node.Network)
	n.base.Overhead = max(n.base.Overhead, node.Network)
	if n.count <= 8 || p.config.Forget > 0 {
		n.slowdown = 1
	}
}

// set derives the performance parameters of node i.
func (p *waterFill) set(i int) {
	n := &p.nodes[i]
	p.perf[i] = p.cluster.Nodes[i].Slowed(n.base, n.slowdown*(1+p.config.Margin*math.Sqrt(n.variance)))
}
