package forward

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
)

// maxProcessors is how many processors a run may have: a commit names its pairs in 64 bits.
const maxProcessors = 128

// Config holds the settings that determine a run's weights. Two runs with the same Config, network, first weights and data,
// in which the same pairs count in the same steps, give the same weights, bit for bit.
type Config struct {
	Processors int       `json:"processors"` // even, 2 to maxProcessors
	Estimator  Estimator `json:"estimator"`
	// Directions is the number tried in a step. With Paired it divides the number of pairs, and neighbouring pairs share a
	// direction; 1 is the patent's form. With Each it is the number of processors.
	Directions   int     `json:"directions"`
	Key          uint64  `json:"key"`           // seed of all random numbers
	Steps        int     `json:"steps"`         // 1 to 2^31
	Epsilon      float64 `json:"epsilon"`       // how far a trial moves a weight: above 2^-20, at most 1
	LearningRate float64 `json:"learning_rate"` // of the first step, above 0; DefaultRate proposes one
	Schedule     string  `json:"schedule"`      // Constant or Cosine
	Examples     []int   `json:"examples"`      // by pair: examples in each of its two inputs; with Each all equal
	// Clip bounds a slope's magnitude, in units of the slopes' root mean square; 0: no bound.
	Clip float64 `json:"clip"`
	// Guard halves the rate after a block of steps whose losses are above those of the best block by more than chance.
	Guard bool `json:"guard"`
}

// Estimator is the way in which a step estimates slopes; the package comment explains both.
type Estimator string

// Estimators.
const (
	// Paired: the two ranks of a pair try one direction and its opposite, on examples of their own.
	Paired Estimator = "pairs"
	// Each: every rank tries a direction of its own, all on the same examples: twice as many directions for as many
	// forward passes.
	Each Estimator = "each"
)

// Schedules of the learning rate.
const (
	Constant = "constant"
	Cosine   = "cosine" // falls to 0 at the last step
)

// UnmarshalJSON reads the fields of the header's config. It refuses unknown ones, since they could change the weights.
func (c *Config) UnmarshalJSON(text []byte) error {
	type plain Config
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode((*plain)(c)); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	return nil
}

// Validate reports everything that is wrong. Errors wrap ErrConfig.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Processors < 2 || c.Processors%2 != 0 || c.Processors > maxProcessors {
		bad("processors is %d; an even number from 2 to %d, as they work in pairs", c.Processors, maxProcessors)
	}
	pairs := c.Processors / 2
	c.checkDirections(pairs, bad)
	if c.Steps < 1 || c.Steps > 1<<31 {
		bad("steps is %d; 1 to %d", c.Steps, 1<<31)
	}
	if !(c.Epsilon > 1.0/(1<<20) && c.Epsilon <= 1) {
		bad("epsilon is %v; above %v, at most 1", c.Epsilon, 1.0/(1<<20))
	}
	if !(c.LearningRate > 0 && c.LearningRate <= 100) {
		bad("learning_rate is %v; above 0, at most 100", c.LearningRate)
	}
	if c.Schedule != Constant && c.Schedule != Cosine {
		bad("schedule is %q; %s or %s", c.Schedule, Constant, Cosine)
	}
	if len(c.Examples) != pairs {
		bad("examples holds %d numbers for %d pairs", len(c.Examples), pairs)
	}
	for p, n := range c.Examples {
		if n < 1 || n > 1<<20 {
			bad("examples[%d] is %d; 1 to %d", p, n, 1<<20)
			break // one message is enough
		}
	}
	if !(c.Clip >= 0) || math.IsInf(c.Clip, 0) {
		bad("clip is %v; 0 or more", c.Clip)
	}
	if len(errs) > 0 {
		return fmt.Errorf("%w: %w", ErrConfig, errors.Join(errs...))
	}
	return nil
}

// checkDirections checks what depends on the estimator.
func (c *Config) checkDirections(pairs int, bad func(format string, args ...any)) {
	switch c.Estimator {
	case Paired:
		if c.Directions < 1 || c.Directions > pairs || pairs%max(c.Directions, 1) != 0 {
			bad("directions is %d; a number that divides the %d pairs", c.Directions, pairs)
		}
	case Each:
		if c.Directions != c.Processors {
			bad("directions is %d; with estimator %s one for each of %d processors", c.Directions, Each, c.Processors)
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

// DefaultRate proposes a learning rate for a number of weights. A trial moves every
// weight by the same amount, so the curvature of the loss along a direction grows with their number; the fourth root was
// stable for networks of 5,000 to 5,000,000 weights (docs/decisions/0051-a-direction-each.md).
// Slopes from few examples are mostly those examples' noise, which a step's length does not show.
func (c *Config) DefaultRate(weights int) float64 {
	rate := 0.125 / math.Sqrt(math.Sqrt(float64(weights)))
	few := math.Pow(min(1, float64(slices.Min(c.Examples))/8), 0.75)
	return math.Sqrt(float64(c.Directions)) * rate * few
}

// direction returns the number of the direction that a rank tries.
func (c *Config) direction(rank int) int {
	if c.Estimator == Each {
		return rank
	}
	return rank / 2 * c.Directions / (c.Processors / 2)
}

// sign returns -1 for ranks that try the opposite of their direction, else 1.
func (c *Config) sign(rank int) int {
	if c.Estimator != Each && rank%2 == 1 {
		return -1
	}
	return 1
}

// trial returns the move by which a rank tries its direction in a step.
func (c *Config) trial(step uint32, rank int) term {
	t := term{step: step, direction: uint32(c.direction(rank)), plus: toUnits(c.Epsilon)}
	if c.sign(rank) < 0 {
		t.plus, t.minus = t.minus, t.plus
	}
	return t
}

// allPairs returns a bit for each pair.
func (c *Config) allPairs() uint64 { return uint64(1)<<(c.Processors/2-1)<<1 - 1 }

// rate returns the learning rate of a step.
func (c *Config) rate(step int) float64 {
	if c.Schedule == Constant {
		return c.LearningRate
	}
	return c.LearningRate * float64(0.5*(1+cosine(float64(step)/float64(c.Steps))))
}

// cosine returns the cosine of pi x, x from 0 to 1, by its series. All builds must get the same bits, so unlike math.Cos it
// adds no product to a sum, which some builds round once and others twice.
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
