package baseline

import (
	"math"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/cluster"
)

// batchGoodput chooses the global batch too, as AdaptDL does (Qiao et al., "Pollux", OSDI
// 2021; github.com/petuum/adaptdl): of 50 geometrically spaced sizes B the one with the
// highest efficiency(B) x B / T(B), taken when it promises more than 5%. Deviations: T is
// the finish time of water-filling for B on its own model of every node, not a fitted
// step time of equal replicas, so that predicted rounds wait for all; B may also fall below
// the named batch, which is AdaptDL's lower bound; gradients do not accumulate over several
// passes; the choice is made every so many rounds instead of every epoch.
type batchGoodput struct {
	*waterFill
	period      int
	least, most int // samples
	batch       int // chosen last, as far as memory goes
	noise       noiseScale
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
		p.noise.add(report)
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
		if _, known := p.noise.samples(); known && p.rounds%p.period == 0 {
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
	return p.noise.worth(float64(size)) / finish
}

// noiseScale estimates the gradient noise scale, in samples, as AdaptDL does: from
// gradients of few and of many samples it separates the square of the true gradient
// from the variance of one sample's (McCandlish et al. 2018, appendix A.1), and smooths
// the two separately. Both are relative to the square of a round's aggregate, as the
// reported norms are. A gradient's cosine with the aggregate adds nothing: its product with
// the norm is 1 on average, whatever the scale.
type noiseScale struct {
	square, variance float64
}

// noiseDecay is the decay of the averages per gradient (AdaptDL's 0.999).
const noiseDecay = 0.999

func (s *noiseScale) add(report *cluster.Report) {
	square, variance, count := 0.0, 0.0, 0.0
	many := float64(report.Accepted)
	for i := range report.Nodes {
		r := &report.Nodes[i]
		few := float64(r.Size)
		if r.Status != cluster.In || r.Norm <= 0 || few < 1 || few >= many {
			continue
		}
		own := r.Norm * r.Norm
		square += (many - few*own) / (many - few)
		variance += (own - 1) / (1/few - 1/many)
		count++
	}
	if count == 0 {
		return
	}
	// The averages start at 0 without a correction: only their ratio is used.
	kept := math.Pow(noiseDecay, count)
	s.square = kept*s.square + (1-kept)*square/count
	s.variance = kept*s.variance + (1-kept)*variance/count
}

// samples returns the scale, infinite if there is nothing but noise; false while it is
// unknown. It stays unknown for gradients without any noise, which nobody really measures.
func (s *noiseScale) samples() (float64, bool) {
	switch {
	case s.variance <= 1e-9*s.square:
		return 0, false
	case s.square <= 0:
		return math.Inf(1), true
	}
	return s.variance / s.square, true
}

// worth is the value of n samples in one update, in samples of very small updates.
func (s *noiseScale) worth(n float64) float64 {
	if scale, known := s.samples(); known {
		return n / (1 + n/scale)
	}
	return n
}
