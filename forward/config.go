package forward

import (
	"errors"
	"fmt"
	"math"
)

// maxProcessors is how many processors a run may have: a commit names its pairs in 64 bits.
const maxProcessors = 128

// Config is shared by all processors of a run. Two runs with the same one, the same network and the same data give
// the same weights, bit for bit.
type Config struct {
	Processors   int       `json:"processors"` // even, 2 to maxProcessors
	Estimator    Estimator `json:"estimator,omitempty"`
	Directions   int       `json:"directions"`    // per step: of Paired 1 to half the processors, each shared by as many pairs; of Each all processors
	Kind         Kind      `json:"kind"`          // of the directions
	Key          uint64    `json:"key"`           // of all random numbers
	Steps        int       `json:"steps"`         // 1 to 2^31
	Epsilon      float64   `json:"epsilon"`       // how far a direction is tried, above 2^-20
	LearningRate float64   `json:"learning_rate"` // of the first step
	Schedule     string    `json:"schedule"`      // constant, linear or cosine, to 0 at the last step
	Examples     []int     `json:"examples"`      // per pair: of each of its two inputs
	Shared       bool      `json:"shared"`        // all pairs are given the same examples in a step, as FZOO does (Dang et al. 2025)
	// Momentum is the share of a step's update that the next repeats, 0 to 0.99: earlier directions are made again
	// from the log, until less than 5% is left of them.
	Momentum float64 `json:"momentum"`
	// Clip is the largest slope along a direction that counts, with Normalize in units of their root mean square; 0: any.
	Clip float64 `json:"clip"`
	// Normalize divides by the running root mean square of the pairs' own half differences, so that one learning rate serves
	// flat and steep stretches. Losses of different examples are not compared: their spread is not the perturbation's.
	Normalize bool `json:"normalize"`
	// Guard halves the rate after a block of steps whose losses are above those of the best one by more than chance.
	Guard bool `json:"guard"`
}

// Estimator is the way in which a step estimates slopes.
type Estimator string

// Estimators.
const (
	// Paired, and the zero value: a pair tries one direction and its opposite, on examples of its own unless they are shared (the patent's form).
	Paired Estimator = "pairs"
	// Each: every processor tries a direction of its own, all on the same examples, and its loss counts against the mean of all: as FZOO (Dang et al. 2025), without
	// its pass without a trial. Twice the directions for the same number of forward passes.
	Each Estimator = "each"
)

// Validate reports everything that is wrong.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Processors < 2 || c.Processors%2 != 0 || c.Processors > maxProcessors {
		bad("processors is %d; an even number from 2 to %d, as they work in pairs", c.Processors, maxProcessors)
	}
	pairs := c.Processors / 2
	c.checkDirections(pairs, bad)
	if c.Kind != Rademacher && c.Kind != Gaussian {
		bad("kind is %q; %s or %s", c.Kind, Rademacher, Gaussian)
	}
	if c.Steps < 1 || c.Steps > 1<<31 {
		bad("steps is %d; 1 to %d", c.Steps, 1<<31)
	}
	if !(c.Epsilon > 1.0/(1<<20) && c.Epsilon <= 1) {
		bad("epsilon is %v; above %v, at most 1", c.Epsilon, 1.0/(1<<20))
	}
	if !(c.LearningRate > 0 && c.LearningRate <= 100) {
		bad("learning_rate is %v; above 0, at most 100", c.LearningRate)
	}
	if c.Schedule != "constant" && c.Schedule != "linear" && c.Schedule != "cosine" {
		bad("schedule is %q; constant, linear or cosine", c.Schedule)
	}
	c.checkStep(pairs, bad)
	if len(errs) > 0 {
		return fmt.Errorf("%w: %w", ErrConfig, errors.Join(errs...))
	}
	return nil
}

// checkDirections checks who tries what.
func (c *Config) checkDirections(pairs int, bad func(format string, args ...any)) {
	switch c.Estimator {
	case Paired, "":
		if c.Directions < 1 || c.Directions > pairs || pairs%max(c.Directions, 1) != 0 {
			bad("directions is %d; a number that divides the %d pairs", c.Directions, pairs)
		}
	case Each:
		if c.Directions != c.Processors {
			bad("directions is %d; with estimator %s one for each of %d processors", c.Directions, Each, c.Processors)
		}
		if !c.Shared {
			bad("shared is false; with estimator %s all must have the same examples", Each)
		}
		for p, n := range c.Examples {
			if n != c.Examples[0] {
				bad("examples[%d] is %d, examples[0] %d; with estimator %s all must be equal", p, n, c.Examples[0], Each)
				break
			}
		}
	default:
		bad("estimator is %q; %s or %s", c.Estimator, Paired, Each)
	}
}

// checkStep checks what goes into a step and what becomes of its losses.
func (c *Config) checkStep(pairs int, bad func(format string, args ...any)) {
	if len(c.Examples) != pairs {
		bad("examples holds %d numbers for %d pairs", len(c.Examples), pairs)
	}
	for p, n := range c.Examples {
		if n < 1 || n > 1<<20 {
			bad("examples[%d] is %d; 1 to %d", p, n, 1<<20)
			break // the others are likely to be the same
		}
	}
	if !(c.Momentum >= 0 && c.Momentum <= 0.99) {
		bad("momentum is %v; 0 to 0.99", c.Momentum)
	}
	if !(c.Clip >= 0) || math.IsInf(c.Clip, 0) {
		bad("clip is %v; 0 or more", c.Clip)
	}
}

// DefaultRate is a learning rate for so many weights, which begin FromKey or FromFile. With Normalize a direction moves every weight by the same, so the loss's
// curvature along it grows with their number; the fourth root was stable for networks of 5,000 to 5,000,000 weights of three kinds (experiments/forward). Pretrained
// weights take half (experiments/forward/torch).
func (c *Config) DefaultRate(weights int, initial string) float64 {
	rate := 0.0025
	if c.Normalize {
		rate = 0.125 / math.Sqrt(math.Sqrt(float64(weights)))
	}
	if initial == FromFile {
		rate /= 2
	}
	return math.Sqrt(float64(c.Directions)) * rate
}

// direction is the one that a processor tries.
func (c *Config) direction(rank int) int {
	if c.Estimator == Each {
		return rank
	}
	return rank / 2 * c.Directions / (c.Processors / 2)
}

// sign is that of a processor's trial.
func (c *Config) sign(rank int) int64 {
	if c.Estimator == Each {
		return 1
	}
	return int64(1 - 2*(rank%2))
}

// terms is how many moves of its own a step has at most.
func (c *Config) terms() int {
	if c.Estimator == Each {
		return c.Processors
	}
	return c.Processors / 2
}

// allPairs has a bit for each pair.
func (c *Config) allPairs() uint64 { return uint64(1)<<(c.Processors/2-1)<<1 - 1 }

// rate is the learning rate of a step.
func (c *Config) rate(step int) float64 {
	done := float64(step) / float64(c.Steps)
	switch c.Schedule {
	case "linear":
		return c.LearningRate * (1 - done)
	case "cosine":
		return c.LearningRate * float64(0.5*(1+cosine(done)))
	}
	return c.LearningRate
}

// cosine is that of pi x, x from 0 to 1, by its series. Unlike math.Cos it has no product that goes into a sum, which some
// builds round once and others twice: all must get the same bits.
func cosine(x float64) float64 {
	if x > 0.5 {
		return -cosine(1 - x)
	}
	x *= math.Pi
	square, y := x*x, 1.0
	for k := 22.0; k > 0; k -= 2 {
		y = 1 - square*y/(k*(k-1))
	}
	return y
}

// memory is the number of earlier steps that momentum repeats.
func (c *Config) memory() int {
	n := 0
	for share := c.Momentum; share >= 0.05; share *= c.Momentum {
		n++
	}
	return n
}
