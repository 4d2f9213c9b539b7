package learn

import (
	"errors"
	"fmt"
)

// Config says how to learn. The zero value learns with the defaults that are given with each field.
type Config struct {
	// Batch is the number of groups in an update, at least 1. Zero means 64: half of that learns more per second
	// but less reliably, twice that takes twice the time for little gain (CartPole, chain).
	Batch int `json:"batch"`
	// Group is the number of rows in a group, as in the replay. Zero means 8; 1 for an ordinary DQN.
	Group int `json:"group"`
	// NStep is the number of steps whose rewards are taken before the bootstrap, 1 to 1,000. Zero means 3, as in
	// Rainbow: faster credit at little bias.
	NStep int `json:"n_step"`
	// Gamma is the discount of a reward one step later, above 0 and below 1. Zero means 0.95, a horizon of some
	// 20 steps.
	Gamma float64 `json:"gamma"`
	// Tau is the share by which the target network follows after every update, above 0 to 1. Zero means 0.005,
	// a lag of some 200 updates.
	Tau float64 `json:"tau"`
	// LearningRate is Adam's step size at the start, above 0. Zero means 5e-4.
	LearningRate float64 `json:"learning_rate"`
	// DecayUpdates is the number of updates over which the rate falls linearly to FinalRate x LearningRate, where
	// it stays. Zero means that the rate is constant.
	DecayUpdates int `json:"decay_updates"`
	// FinalRate is the share of LearningRate that is left after DecayUpdates, 0 to 1. Zero means that the rate
	// falls to nothing, which lets the last weights settle.
	FinalRate float64 `json:"final_rate"`
}

// withDefaults fills in what zero means.
func (c Config) withDefaults() Config {
	def := func(v *float64, d float64) {
		if *v == 0 {
			*v = d
		}
	}
	count := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	count(&c.Batch, 64)
	count(&c.Group, 8)
	count(&c.NStep, 3)
	def(&c.Gamma, 0.95)
	def(&c.Tau, 0.005)
	def(&c.LearningRate, 5e-4)
	return c
}

// validate reports everything that is wrong with the configuration, or nil.
func (c Config) validate() error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	count := func(name string, v, most int) {
		if v < 0 || v > most {
			add("learner.%s is %d, must be between 1 and %d, or 0 for the default", name, v, most)
		}
	}
	number := func(name, bound string, v float64) {
		if !(v >= 0 && v <= 1) || bound == "below" && v == 1 {
			add("learner.%s is %v, must be above 0 and %s 1, or 0 for the default", name, v, bound)
		}
	}
	count("batch", c.Batch, 1<<16)
	count("group", c.Group, 1<<16)
	count("n_step", c.NStep, 1000)
	number("gamma", "below", c.Gamma)
	number("tau", "at most", c.Tau)
	number("learning_rate", "at most", c.LearningRate)
	number("final_rate", "at most", c.FinalRate)
	if c.DecayUpdates < 0 {
		add("learner.decay_updates is %d, must be positive, or 0 for a constant rate", c.DecayUpdates)
	}
	if d := c.withDefaults(); len(errs) == 0 && d.Batch*d.Group > 1<<20 {
		add("learner.batch x learner.group is %d rows, at most %d are supported", d.Batch*d.Group, 1<<20)
	}
	return errors.Join(errs...)
}

// rate is the learning rate of the update after the given number of updates.
func (c Config) rate(updates int) float64 {
	if c.DecayUpdates == 0 {
		return c.LearningRate
	}
	left := 1 - min(float64(updates)/float64(c.DecayUpdates), 1)
	return c.LearningRate * (c.FinalRate + float64((1-c.FinalRate)*left))
}
