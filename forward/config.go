package forward

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/evenkeel/evenkeel/internal/badinput"
)

// ErrConfig is returned for an invalid configuration.
var ErrConfig = badinput.New("forward: invalid run")

// maxProcessors is how many processors a run may have: a commit names its pairs in 64 bits.
const maxProcessors = 128

// Config is shared by all processors of a run. Two runs with the same one, the same network and the same data give
// the same weights, bit for bit.
type Config struct {
	Processors   int     `json:"processors"`    // even, 2 to maxProcessors
	Directions   int     `json:"directions"`    // per step, 1 to half the processors, each shared by as many pairs
	Kind         Kind    `json:"kind"`          // of the directions
	Key          uint64  `json:"key"`           // of all random numbers
	Steps        int     `json:"steps"`         // 1 to 2^31
	Epsilon      float64 `json:"epsilon"`       // how far a direction is tried, above 2^-20
	LearningRate float64 `json:"learning_rate"` // of the first step
	Schedule     string  `json:"schedule"`      // constant, linear or cosine, to 0 at the last step
	Examples     []int   `json:"examples"`      // per pair: of each of its two inputs
	// Momentum is the share of a step's update that the next repeats, 0 to 0.99: earlier directions are made again
	// from the log, until less than 5% is left of them.
	Momentum float64 `json:"momentum"`
	// Clip is the largest slope along a direction that counts; 0: any.
	Clip float64 `json:"clip"`
	// Normalize divides slopes by the standard deviation of the step's losses (FZOO, Dang et al. 2025), so that one
	// learning rate serves flat and steep stretches. A step whose losses have a variance of 1e-12 or less is not divided:
	// what is left of it there is rounding.
	Normalize bool `json:"normalize"`
}

// Validate reports everything that is wrong.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Processors < 2 || c.Processors%2 != 0 || c.Processors > maxProcessors {
		bad("processors is %d; an even number from 2 to %d, as they work in pairs", c.Processors, maxProcessors)
	}
	pairs := c.Processors / 2
	if c.Directions < 1 || c.Directions > pairs || pairs%max(c.Directions, 1) != 0 {
		bad("directions is %d; a number that divides the %d pairs", c.Directions, pairs)
	}
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

// direction is the one that a pair tries.
func (c *Config) direction(pair int) int { return pair * c.Directions / (c.Processors / 2) }

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

// Timeout is how long a processor waits for another before it proposes to go on without.
const Timeout = 2 * time.Second
