package export

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"evenkeel/cluster"
	"evenkeel/internal/badinput"
	"evenkeel/internal/names"
)

// Rules by which the learning rate follows the global batch.
const (
	Linear   = "linear"
	Sqrt     = "sqrt"
	AdaScale = "adascale"
)

// maxFactor is the largest factor of a learning rate.
const maxFactor = 1000

// errScaling is the error of an unknown rule of the learning rate. It is bad input.
var errScaling = badinput.New("export: unknown scaling of the learning rate")

// Scalings lists the rules of the learning rate.
func Scalings() []string { return []string{Linear, Sqrt, AdaScale} }

// LearningRateFactor returns the factor of a learning rate that is meant for reference
// samples per round if a round has batch samples. Both are at least 1; r is batch over
// reference. noiseScale is the gradient noise scale S in samples (McCandlish et al. 2018),
// finite and >= 0; only AdaScale uses it.
//
//   - Linear: r (Goyal et al. 2017), for SGD while the batch is well below S.
//   - Sqrt: the root of r (Krizhevsky 2014; Hoffer et al. 2017), for Adam and its like
//     (Malladi et al. 2022).
//   - AdaScale: the gain (1 + S/reference) / (1 + S/batch) (Johnson et al. 2020), for
//     SGD: between 1, if the gradient has no noise, and r, if it is all noise.
//     Deviation: S is the controller's estimate over all rounds, not an estimate of the
//     variance in the trainer.
//
// An unknown rule is bad input.
func LearningRateFactor(scaling string, batch, reference int, noiseScale float64) (float64, error) {
	if batch < 1 || reference < 1 || !(noiseScale >= 0) || math.IsInf(noiseScale, 1) {
		return 0, fmt.Errorf("export: learning rate for %d samples instead of %d, noise scale %v: both must be at least 1, the scale finite and not negative",
			batch, reference, noiseScale)
	}
	b, b0 := float64(batch), float64(reference)
	switch scaling {
	case Linear:
		return b / b0, nil
	case Sqrt:
		return math.Sqrt(b / b0), nil
	case AdaScale:
		return (1 + noiseScale/b0) / (1 + noiseScale/b), nil
	}
	return 0, fmt.Errorf("%w %.40q; did you mean %s? (known: %s)", errScaling, scaling, names.Nearest(strings.ToLower(scaling), Scalings()), strings.Join(Scalings(), ", "))
}

// ScaleLearningRate adds the factor for a learning rate that is meant for reference samples
// per round; see LearningRateFactor.
func (s *Sizes) ScaleLearningRate(scaling string, reference int, noiseScale float64) error {
	factor, err := LearningRateFactor(scaling, s.GlobalBatch, reference, noiseScale)
	if err != nil {
		return err
	}
	s.ReferenceBatch, s.LearningRateScaling, s.LearningRateFactor = reference, scaling, factor
	return nil
}

// checkLearningRate is the part of Validate about the learning rate. The file does not hold
// the noise scale, so AdaScale's factor is only checked against its bounds.
func (s *Sizes) checkLearningRate(bad func(path, format string, args ...any)) {
	b0, f := s.ReferenceBatch, s.LearningRateFactor
	if b0 == 0 && s.LearningRateScaling == "" && f == 0 {
		return // there is no factor
	}
	before := s.GlobalBatch < 1 // reported already
	if b0 < 1 || b0 > cluster.MaxGlobalBatch {
		bad("reference_batch", "is %d; it must lie in 1..%d samples", b0, cluster.MaxGlobalBatch)
		before = true
	}
	if !slices.Contains(Scalings(), s.LearningRateScaling) {
		bad("learning_rate_scaling", "is %.40q; it must be one of %s", s.LearningRateScaling, strings.Join(Scalings(), ", "))
		before = true
	}
	if !(f > 0 && f <= maxFactor) {
		bad("learning_rate_factor", "is %v; it must lie above 0 and be at most %d", f, maxFactor)
		before = true
	}
	if before {
		return
	}
	one, _ := LearningRateFactor(s.LearningRateScaling, s.GlobalBatch, b0, 0) // cannot fail: batches and rule are valid
	other := one
	if s.LearningRateScaling == AdaScale {
		other = float64(s.GlobalBatch) / float64(b0)
	}
	if f < min(one, other)*(1-1e-6) || f > max(one, other)*(1+1e-6) {
		bad("learning_rate_factor", "is %v; by %s from %d samples to %d it lies in %v..%v", f, s.LearningRateScaling, b0, s.GlobalBatch, min(one, other), max(one, other))
	}
}
