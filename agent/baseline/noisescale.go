package baseline

import (
	"math"

	"github.com/evenkeel/evenkeel/cluster"
)

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
