package baseline

import (
	"math"

	"evenkeel/agent"
	"evenkeel/cluster"
	"evenkeel/cluster/gradient"
)

// batchGoodput chooses the global batch too, as AdaptDL does (Qiao et al., "Pollux", OSDI
// 2021; github.com/petuum/adaptdl): of 50 geometrically spaced sizes B the one with the
// highest efficiency(B) x B / T(B), taken when it promises more than 5%. Deviations: T is
// the finish time of water-filling for B on its own model of every node, not a fitted
// step time of equal replicas, so that predicted rounds wait for all; B may also fall below
// the named batch, which is AdaptDL's lower bound; gradients do not accumulate over several
// passes; the choice is made every so many rounds instead of every epoch; the noise scale is
// the agent's own estimate (gradient.NoiseScale).
type batchGoodput struct {
	*waterFill
	period      int
	least, most int // samples
	batch       int // chosen last, as far as memory goes
	noise       gradient.NoiseScale
	rounds      int
	sizes       []int
}

const (
	goodputSizes = 50
	goodputPays  = 1.05
)

// NewGoodput returns the rule that chooses a global batch every period rounds: within the
// bounds of the cluster's Choices, else between a quarter of its global batch and four times
// that.
func NewGoodput(c *cluster.Cluster, period int, fill WaterFill) agent.Policy {
	own := *c // its global batch changes
	p := &batchGoodput{
		waterFill: newWaterFill(&own, fill), period: period, sizes: make([]int, len(c.Nodes)),
		least: c.Choices.LeastBatch, most: c.Choices.MostBatch, batch: c.GlobalBatch,
	}
	if p.most == 0 {
		p.least, p.most = max(c.GlobalBatch/4, 1), 4*c.GlobalBatch
	}
	return p
}

func (p *batchGoodput) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	if report != nil {
		p.noise.Add(report)
		p.observe(report)
		p.rounds++
	}
	nodes, hold := 0, 0
	for i := range p.cluster.Nodes {
		if present == nil || present[i] {
			nodes++
			hold += p.cluster.Nodes[i].MostShare(p.most)
		}
	}
	least, most := max(p.least, nodes), min(p.most, hold)
	if least <= most { // else the allocation returns the error
		if _, known := p.noise.Samples(); known && p.rounds%p.period == 0 {
			p.choose(present, least, most)
		}
		p.cluster.GlobalBatch = min(max(p.batch, least), most)
	}
	_, err := p.alloc.Allocate(p.cluster, present, p.perf, plan.Sizes)
	return err
}

// choose sets the batch, between least and most samples.
func (p *batchGoodput) choose(present []bool, least, most int) {
	top := goodputPays * p.predict(present, min(max(p.batch, least), most))
	last := 0
	for k := range goodputSizes {
		size := int(math.Round(float64(least) * math.Pow(float64(most)/float64(least), float64(k)/(goodputSizes-1))))
		if size == last {
			continue
		}
		last = size
		if g := p.predict(present, size); g > top {
			p.batch, top = size, g
		}
	}
}

// predict is the goodput of a batch of size samples, up to a factor.
func (p *batchGoodput) predict(present []bool, size int) float64 {
	p.cluster.GlobalBatch = size
	finish, err := p.alloc.Allocate(p.cluster, present, p.perf, p.sizes)
	if err != nil {
		return 0
	}
	return worth(&p.noise, float64(size)) / finish
}

// worth returns the value of an update with n samples, in samples of very small updates.
func worth(noise *gradient.NoiseScale, n float64) float64 {
	if scale, known := noise.Samples(); known {
		return n / (1 + n/scale)
	}
	return n
}
