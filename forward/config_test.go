package forward

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Both ends of what a run may be.
func TestConfigLimits(t *testing.T) {
	good := func() *Config { return testConfig(8, 2, 10) }
	for name, change := range map[string]func(c *Config){
		"as it is": func(*Config) {}, "128 processors": func(c *Config) { *c = *testConfig(128, 64, 1) },
		"the last step": func(c *Config) { c.Steps = 1 << 31 }, "epsilon 1": func(c *Config) { c.Epsilon = 1 }, "a small epsilon": func(c *Config) { c.Epsilon = 1e-6 },
		"rate 100": func(c *Config) { c.LearningRate = 100 }, "clip": func(c *Config) { c.Clip = 1e9 },
		"each": func(c *Config) { c.Estimator, c.Directions, c.Examples = Each, 8, []int{5, 5, 5, 5} }, "paired": func(c *Config) { c.Estimator = Paired },
		"many examples": func(c *Config) { c.Examples[0] = 1 << 20 },
	} {
		c := good()
		if change(c); c.Validate() != nil {
			t.Errorf("%s: %v", name, c.Validate())
		}
	}
	for name, change := range map[string]func(c *Config){
		"130 processors": func(c *Config) { *c = *testConfig(130, 65, 1) }, "7 processors": func(c *Config) { c.Processors = 7 }, "no processors": func(c *Config) { c.Processors = 0 },
		"estimator":     func(c *Config) { c.Estimator = "all" },
		"each, unequal": func(c *Config) { c.Estimator, c.Directions = Each, 8 }, "each, a direction for two": func(c *Config) { c.Estimator, c.Directions, c.Examples = Each, 4, []int{5, 5, 5, 5} },
		"3 directions": func(c *Config) { c.Directions = 3 }, "8 directions": func(c *Config) { c.Directions = 8 },
		"no steps": func(c *Config) { c.Steps = 0 }, "steps": func(c *Config) { c.Steps = 1<<31 + 1 }, "epsilon": func(c *Config) { c.Epsilon = 1.01 },
		"tiny epsilon": func(c *Config) { c.Epsilon = 1.0 / (1 << 20) }, "rate 0": func(c *Config) { c.LearningRate = 0 }, "rate": func(c *Config) { c.LearningRate = 100.1 },
		"clip": func(c *Config) { c.Clip = math.Inf(1) }, "fewer examples": func(c *Config) { c.Examples = c.Examples[:3] },
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
		if got = append(got, c.direction(2*p)); c.direction(2*p+1) != got[p] {
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

// By hand, for 65,536 weights, whose fourth root is 16: 1/8 over it, times the root of the directions, and (1/8)^(3/4) with 1 example, as 8 are enough.
func TestDefaultRate(t *testing.T) {
	c := &Config{Directions: 4, Examples: []int{16, 8}}
	if got := c.DefaultRate(1 << 16); got != 1.0/64 {
		t.Errorf("%v, want 1/64", got)
	}
	c.Examples[0] = 1
	if got := c.DefaultRate(1 << 16); math.Abs(got-1.0/64/math.Pow(2, 2.25)) > 1e-12 { // 8^(3/4)
		t.Errorf("with 1 example %v", got)
	}
}

// Ranks try their directions by the same amount: with Paired the odd rank of a pair against the even rank's, with Each every rank along its own.
func TestTrials(t *testing.T) {
	paired := testConfig(4, 2, 10)
	paired.Epsilon = 0.25
	each := *paired
	each.Estimator, each.Directions = Each, 4
	for rank, want := range []term{{step: 7, plus: 1 << 22}, {step: 7, minus: 1 << 22}, {step: 7, direction: 1, plus: 1 << 22}, {step: 7, direction: 1, minus: 1 << 22}} {
		if got := paired.trial(7, rank); got != want {
			t.Errorf("paired, rank %d: %+v, want %+v", rank, got, want)
		}
		if got, want := each.trial(7, rank), (term{step: 7, direction: uint32(rank), plus: 1 << 22}); got != want {
			t.Errorf("each, rank %d: %+v, want %+v", rank, got, want)
		}
	}
}

// A header keeps all fields of a config, and refuses those that would decide about weights by rules that this program does not have.
func TestConfigInJSON(t *testing.T) {
	each := testConfig(4, 4, 10)
	each.Estimator, each.Examples, each.Clip, each.Guard = Each, []int{2, 2}, 3, true
	for _, c := range []*Config{testConfig(8, 2, 10), each} {
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var back Config
		if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(&back, c) {
			t.Errorf("%s: %+v, want %+v (%v)", text, back, c, err)
		}
		other := strings.Replace(string(text), `"guard"`, `"guards"`, 1)
		if err := json.Unmarshal([]byte(other), &back); other == string(text) || err == nil || !strings.Contains(err.Error(), "config: ") {
			t.Errorf("%s: %v", other, err)
		}
	}
}
