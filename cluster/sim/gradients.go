package sim

import (
	"math"
	"math/rand/v2"

	"evenkeel/cluster"
)

// gradientStream is the stream of the generator that draws the noise of norms, far from the streams of the nodes.
const gradientStream = 1 << 45

// gradients adds the norms and cosines of a round's gradients to its report.
func (s *Simulator) gradients(report *cluster.Report) {
	scale, noise := s.Scale(), s.conditions.Scale.Norms
	var rng *rand.Rand
	if noise > 0 && scale > 0 {
		rng = rand.New(rand.NewPCG(s.seed, gradientStream+uint64(s.round)))
	}
	for i := range report.Nodes {
		n := &report.Nodes[i]
		if n.Status != cluster.In && n.Status != cluster.Refused {
			continue
		}
		n.Norm, n.Agree = gradient(scale, n.Size, report.Accepted)
		if rng != nil {
			// The square of the log-normal factor has the mean 1. The inner product with the
			// aggregate stays.
			n.Norm *= math.Exp(noise*rng.NormFloat64() - noise*noise)
			n.Agree = min(1/n.Norm, 1)
		}
	}
}

// Scale is the gradient noise scale in samples; 0 when the conditions have none.
func (s *Simulator) Scale() float64 {
	c := s.conditions.Scale
	if c.Start == 0 {
		return 0
	}
	batch := float64(s.cluster.GlobalBatch)
	part := min(s.seen/(batch*c.Rounds), 1)
	return batch * c.Start * math.Pow(c.End/c.Start, part)
}

// Efficiency is the statistical efficiency of a round that counted n samples (cluster.Efficiency).
func (s *Simulator) Efficiency(n float64) float64 {
	return cluster.Efficiency(s.Scale(), float64(s.cluster.GlobalBatch), n)
}

// gradient is the expected norm of a gradient over size samples relative to that of the
// aggregate of accepted samples, and their cosine, at the given noise scale.
func gradient(scale float64, size, accepted int) (norm, agree float64) {
	if scale == 0 {
		return 1, 1
	}
	own := math.Sqrt(1 + scale/float64(size))
	all := math.Sqrt(1 + scale/float64(max(accepted, size)))
	return own / all, all / own
}
