package baseline

import (
	"math"

	"github.com/evenkeel/evenkeel/cluster"
)

// noiseScale estimates the gradient noise scale, in samples, as AdaptDL does: from
// gradients of few and of many samples it separates the square of the true gradient
// from the variance of one sample's (McCandlish et al. 2018, appendix A.1), and smooths
// the two by themselves. Both are relative to the square of a round's aggregate, as
// norms are reported. A gradient's cosine with the aggregate adds nothing: its product
// with the norm is 1 in the mean, whatever the scale.
type noiseScale struct {
	square, variance float64
}

// noiseKept is what one gradient leaves of the averages (AdaptDL's 0.999).
const noiseKept = 0.999

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
	// The averages start from nothing: only their ratio is used.
	kept := math.Pow(noiseKept, count)
	s.square = kept*s.square + (1-kept)*square/count
	s.variance = kept*s.variance + (1-kept)*variance/count
}

// samples is the scale, infinite where nothing but noise is seen; false while nothing is
// known. Gradients without any noise tell nothing either: something does not measure them.
func (s *noiseScale) samples() (float64, bool) {
	switch {
	case s.variance <= 1e-9*s.square:
		return 0, false
	case s.square <= 0:
		return math.Inf(1), true
	}
	return s.variance / s.square, true
}

// worth is what n samples in one update are worth, in samples of very small updates.
func (s *noiseScale) worth(n float64) float64 {
	if scale, known := s.samples(); known {
		return n / (1 + n/scale)
	}
	return n
}
