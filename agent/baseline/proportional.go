package baseline

import (
	"math"

	"evenkeel/agent"
	"evenkeel/cluster"
)

// proportional is OmniLearn's control (Tyagi & Sharma, TPDS 2025): c = b*mean(t)/t,
// unchanged while |c-b|/c stays below the dead band. It knows no profile and starts
// uniform, as published.
type proportional struct {
	cluster  *cluster.Cluster
	period   int     // rounds between changes
	deadBand float64 // relative
	weights  []float64
	elapsed  []float64 // seconds since the last change, summed
	counts   []int
	rounds   int
	alloc    cluster.Allocator
}

// NewProportional returns proportional control, which changes sizes every period rounds.
// Its authors use one epoch and a dead band of 0.2; every round and 0 do best in most
// scenarios.
func NewProportional(c *cluster.Cluster, period int, deadBand float64) agent.Policy {
	n := len(c.Nodes)
	p := &proportional{cluster: c, period: period, deadBand: deadBand, weights: make([]float64, n), elapsed: make([]float64, n), counts: make([]int, n)}
	// In samples, like later weights: a node that joins late, or is not measured at once,
	// keeps an even share.
	for i := range p.weights {
		p.weights[i] = float64(c.GlobalBatch) / float64(n)
	}
	return p
}

func (p *proportional) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	if report != nil {
		p.rounds++
		for i := range report.Nodes {
			if r := &report.Nodes[i]; r.Measured() {
				// A late gradient's time belongs to another size; scale it to the present one.
				p.elapsed[i] += r.Seconds * float64(max(plan.Sizes[i], 1)) / float64(r.Size)
				p.counts[i]++
			}
		}
		if p.rounds%p.period == 0 {
			p.change(plan.Sizes)
		}
	}
	return p.alloc.Proportional(p.cluster, present, p.weights, plan.Sizes)
}

func (p *proportional) change(sizes []int) {
	mean, known := 0.0, 0
	for i := range p.elapsed {
		if p.counts[i] > 0 {
			p.elapsed[i] /= float64(p.counts[i])
			mean += p.elapsed[i]
			known++
		}
	}
	mean /= math.Max(float64(known), 1)
	for i := range p.elapsed {
		if p.counts[i] > 0 && sizes[i] > 0 {
			b := float64(sizes[i])
			p.weights[i] = b * mean / p.elapsed[i]
			if math.Abs(p.weights[i]-b) < p.deadBand*p.weights[i] {
				p.weights[i] = b
			}
		}
		p.elapsed[i], p.counts[i] = 0, 0
	}
}
