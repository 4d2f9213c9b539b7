package forward

import (
	"math"
	"slices"
	"testing"
)

// Both ends of what a run may be.
func TestConfigLimits(t *testing.T) {
	good := func() *Config { return testConfig(8, 2, 10) }
	for name, change := range map[string]func(c *Config){
		"as it is": func(*Config) {}, "128 processors": func(c *Config) { *c = *testConfig(128, 64, 1) },
		"the last step": func(c *Config) { c.Steps = 1 << 31 }, "epsilon 1": func(c *Config) { c.Epsilon = 1 }, "a small epsilon": func(c *Config) { c.Epsilon = 1e-6 },
		"rate 100": func(c *Config) { c.LearningRate = 100 }, "momentum": func(c *Config) { c.Momentum = 0.99 }, "clip": func(c *Config) { c.Clip = 1e9 },
		"each": func(c *Config) { c.Estimator, c.Directions, c.Shared, c.Examples = Each, 8, true, []int{5, 5, 5, 5} }, "paired": func(c *Config) { c.Estimator = Paired },
		"many examples": func(c *Config) { c.Examples[0] = 1 << 20 },
	} {
		c := good()
		if change(c); c.Validate() != nil {
			t.Errorf("%s: %v", name, c.Validate())
		}
	}
	for name, change := range map[string]func(c *Config){
		"130 processors": func(c *Config) { *c = *testConfig(130, 65, 1) }, "7 processors": func(c *Config) { c.Processors = 7 }, "no processors": func(c *Config) { c.Processors = 0 },
		"estimator": func(c *Config) { c.Estimator = "all" }, "each, own examples": func(c *Config) { c.Estimator, c.Directions, c.Examples = Each, 8, []int{5, 5, 5, 5} },
		"each, unequal": func(c *Config) { c.Estimator, c.Directions, c.Shared = Each, 8, true }, "each, a direction for two": func(c *Config) { c.Estimator, c.Directions, c.Shared, c.Examples = Each, 4, true, []int{5, 5, 5, 5} },
		"3 directions": func(c *Config) { c.Directions = 3 }, "8 directions": func(c *Config) { c.Directions = 8 },
		"no steps": func(c *Config) { c.Steps = 0 }, "steps": func(c *Config) { c.Steps = 1<<31 + 1 }, "epsilon": func(c *Config) { c.Epsilon = 1.01 },
		"tiny epsilon": func(c *Config) { c.Epsilon = 1.0 / (1 << 20) }, "rate 0": func(c *Config) { c.LearningRate = 0 }, "rate": func(c *Config) { c.LearningRate = 100.1 },
		"momentum": func(c *Config) { c.Momentum = 0.995 }, "clip": func(c *Config) { c.Clip = math.Inf(1) }, "fewer examples": func(c *Config) { c.Examples = c.Examples[:3] },
		"an example too many": func(c *Config) { c.Examples[2] = 1<<20 + 1 }, "a pair without": func(c *Config) { c.Examples[3] = 0 },
	} {
		c := good()
		if change(c); c.Validate() == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// A pair's direction follows from its number: neighbours share one.
func TestPairsShareDirections(t *testing.T) {
	c := testConfig(12, 3, 1)
	var got []int
	for p := range 6 {
		if got = append(got, c.direction(2*p)); c.direction(2*p+1) != got[p] || c.sign(2*p) != 1 || c.sign(2*p+1) != -1 {
			t.Errorf("pair %d", p)
		}
	}
	if want := []int{0, 0, 1, 1, 2, 2}; !slices.Equal(got, want) {
		t.Errorf("directions %d, want %d", got, want)
	}
	for processors, want := range map[int]uint64{2: 1, 8: 15, 128: math.MaxUint64} {
		if got := testConfig(processors, 1, 1).allPairs(); got != want {
			t.Errorf("%d processors: pairs %x, want %x", processors, got, want)
		}
	}
}

// By hand, for 65,536 weights, whose fourth root is 16: 1/8 over it, times the root of the directions; half where weights come from a file.
func TestDefaultRate(t *testing.T) {
	c := &Config{Directions: 4, Normalize: true}
	if a, b := c.DefaultRate(1<<16, FromKey), c.DefaultRate(1<<16, FromFile); a != 1.0/64 || b != 1.0/128 {
		t.Errorf("rates %v and %v, want 1/64 and 1/128", a, b)
	}
	c.Normalize = false
	if a, b := c.DefaultRate(7, FromKey), c.DefaultRate(7, FromFile); a != 0.005 || b != 0.0025 {
		t.Errorf("rates %v and %v, want 0.005 and 0.0025", a, b)
	}
}
