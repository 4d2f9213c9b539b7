package export

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/internal/names"
)

// Rules by which the learning rate follows the global batch.
const (
	Linear   = "linear"
	Sqrt     = "sqrt"
	AdaScale = "adascale"
)

// maxFactor is the largest factor of a learning rate that is written.
const maxFactor = 1000

// ErrScaling says that a rule of the learning rate is unknown.
var ErrScaling = errors.New("export: unknown scaling of the learning rate")

// Scalings lists the rules of the learning rate.
func Scalings() []string { return []string{Linear, Sqrt, AdaScale} }

// LearningRateFactor is what a learning rate meant for reference samples per round is
// multiplied by where a round has batch samples. Both are at least 1; r is batch over
// reference. noiseScale is the gradient noise scale S in samples (McCandlish et al.
// 2018), finite and >= 0, which only AdaScale looks at.
//
//   - Linear: r (Goyal et al. 2017), for SGD while the batch is well below S.
//   - Sqrt: the root of r (Krizhevsky 2014; Hoffer et al. 2017), for Adam and its like
//     (Malladi et al. 2022).
//   - AdaScale: the gain (1 + S/reference) / (1 + S/batch) (Johnson et al. 2020), for
//     SGD: between 1, where the gradient has no noise, and r, where it is all noise.
//     Deviation: S is the controller's estimate of all rounds, not one of the variance
//     in the trainer.
//
// An unknown rule's error wraps ErrScaling.
func LearningRateFactor(scaling string, batch, reference int, noiseScale float64) (float64, error) {
	if batch < 1 || reference < 1 || !(noiseScale >= 0) || math.IsInf(noiseScale, 1) {
		return 0, fmt.Errorf("export: learning rate for %d samples instead of %d, noise scale %v: there must be at least 1 sample, and the scale be finite and not negative",
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
	return 0, fmt.Errorf("%w %.40q; did you mean %s? (known: %s)", ErrScaling, scaling, names.Nearest(strings.ToLower(scaling), Scalings()), strings.Join(Scalings(), ", "))
}

// ScaleLearningRate adds the factor for a learning rate that is meant for reference
// samples per round; see the function LearningRateFactor.
func (s *Sizes) ScaleLearningRate(scaling string, reference int, noiseScale float64) error {
	factor, err := LearningRateFactor(scaling, s.GlobalBatch, reference, noiseScale)
	if err != nil {
		return err
	}
	s.ReferenceBatch, s.LearningRateScaling, s.LearningRateFactor = reference, scaling, factor
	return nil
}

// checkLearningRate is Validate's part. The noise scale is not in the file, so that of
// AdaScale's factor only the bounds are known.
func (s *Sizes) checkLearningRate(bad func(path, format string, args ...any)) {
	b0, f := s.ReferenceBatch, s.LearningRateFactor
	if b0 == 0 && s.LearningRateScaling == "" && f == 0 {
		return // none is asked
	}
	before := s.GlobalBatch < 1 // told already
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
	one, _ := LearningRateFactor(s.LearningRateScaling, s.GlobalBatch, b0, 0) // sizes and rule are sound
	other := one
	if s.LearningRateScaling == AdaScale {
		other = float64(s.GlobalBatch) / float64(b0)
	}
	if f < min(one, other)*(1-1e-6) || f > max(one, other)*(1+1e-6) {
		bad("learning_rate_factor", "is %v; by %s from %d samples to %d it lies in %v..%v", f, s.LearningRateScaling, b0, s.GlobalBatch, min(one, other), max(one, other))
	}
}

// learningRate writes the fields, each by a pattern of its name and value; nothing where
// no factor is asked.
func (s *Sizes) learningRate(pattern string) string {
	if s.LearningRateScaling == "" {
		return ""
	}
	return fmt.Sprintf(pattern, "reference_batch", fmt.Sprint(s.ReferenceBatch)) +
		fmt.Sprintf(pattern, "learning_rate_scaling", quoted(s.LearningRateScaling)) +
		fmt.Sprintf(pattern, "learning_rate_factor", decimal(s.LearningRateFactor))
}
