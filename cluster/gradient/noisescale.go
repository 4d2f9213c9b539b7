// Package gradient estimates the gradient noise scale from the norms of a round's gradients. See the Example.
package gradient

import (
	"math"

	"evenkeel/cluster"
	"evenkeel/internal/stats"
)

// NoiseScale estimates the gradient noise scale S, the batch at which the gradient's variance equals its
// square, as AdaptDL does (Qiao et al., "Pollux", OSDI 2021; McCandlish et al. 2018, appendix
// A.1): the squared norm of the gradient of b samples is |G|^2 + V/b on average, so the squares of the nodes'
// gradients and of their aggregate tell |G|^2 and V apart, and S = V/|G|^2. Each is averaged over rounds
// before the division: a ratio of noisy numbers is too large on average. Deviations: nodes have unequal
// batches, and the squares count by samples, so that the mean over n nodes of b samples in total is
// that of n equal ones, |G|^2 + n V/b; squares are relative to a round's aggregate, as the
// reported norms are; and averages forget by rounds, not by gradients.
type NoiseScale struct {
	square, variance stats.Moving // of |G|^2 and V
	rounds           float64
	most             float64 // samples; the gradient does not show beyond
}

const (
	// noiseRate is the least rate of the moving averages. Late in training a round's gradients say almost nothing about
	// |G|^2, and the scale takes thousands of rounds to double.
	noiseRate = 0.001
	noiseMost = 1e4 // largest scale, in batches of a round
	// After noiseRounds, a scale is sure if its relative standard error is at most noiseError.
	noiseRounds = 10
	noiseError  = 0.1
)

// Add processes the norms of a round's gradients. It ignores rounds with a single gradient or without known norms.
func (s *NoiseScale) Add(report *cluster.Report) {
	squares, samples, nodes := 0.0, 0.0, 0.0
	for i := range report.Nodes {
		r := &report.Nodes[i]
		if r.Status != cluster.In || !(r.Norm > 0) || math.IsInf(r.Norm, 1) || r.Size < 1 {
			continue
		}
		b := float64(r.Size)
		squares += b * r.Norm * r.Norm
		samples += b
		nodes++
	}
	all := float64(report.Accepted)
	if nodes == 0 || nodes*all <= samples*(1+1e-9) {
		return
	}
	mean, each, whole := squares/samples, nodes/samples, 1/all
	s.rounds++
	s.most = noiseMost * all
	s.square.Add((each-mean*whole)/(each-whole), s.rate())
	s.variance.Add((mean-1)/(each-whole), s.rate())
}

// rate is that of the averages' last step.
func (s *NoiseScale) rate() float64 { return max(noiseRate, 1/s.rounds) }

// Samples returns the scale in samples; false while it is unknown. It stays unknown if the
// gradients have no noise.
func (s *NoiseScale) Samples() (float64, bool) {
	if s.rounds == 0 || s.variance.Mean <= 1e-9*s.square.Mean {
		return 0, false
	}
	return min(s.variance.Mean/max(s.square.Mean, 1e-12), s.most), true
}

// Sure says whether the scale is known to about a fifth of it: two standard errors.
func (s *NoiseScale) Sure() bool {
	if scale, known := s.Samples(); !known || s.rounds < noiseRounds || scale == s.most {
		return false
	}
	error := func(a *stats.Moving) float64 { return a.Spread / (a.Mean * a.Mean) }
	rate := s.rate()
	return (error(&s.square)+error(&s.variance))*rate/(2-rate) <= noiseError*noiseError
}
