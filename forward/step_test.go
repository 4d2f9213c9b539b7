package forward

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// The learning rate falls to 0 at the end, as its schedule is named.
func TestSchedules(t *testing.T) {
	const steps = 1000
	for step := range steps {
		x := float64(step) / steps
		for schedule, want := range map[string]float64{"constant": 3, "linear": 3 * (1 - x), "cosine": 1.5 * (1 + math.Cos(math.Pi*x))} {
			c := Config{LearningRate: 3, Schedule: schedule, Steps: steps}
			if got := c.rate(step); math.Abs(got-want) > 1e-12 {
				t.Fatalf("%s at step %d: %v, want %v", schedule, step, got, want)
			}
		}
	}
}

// moved is by how much a step moves each of some weights.
func moved(s *state, step uint32, increments []int32) []int32 {
	return movedBy(s, step, Commit{Increments: increments})
}

func movedBy(s *state, step uint32, c Commit) []int32 {
	before := slices.Clone(s.w.data[0])
	s.apply(step, c, nil)
	after := slices.Clone(s.w.data[0])
	for i := range after {
		after[i] -= before[i]
	}
	return after
}

func testState(c *Config) *state {
	const entries = 64
	return &state{config: c, w: &Weights{tensors: []Tensor{{Name: "w", Shape: []int{entries}}}, data: [][]int32{make([]int32, entries)}}}
}

// Momentum repeats a step times m, m^2, ... until less than a twentieth is left, along the same directions.
func TestMomentum(t *testing.T) {
	for m, repeats := range map[float64]int{0: 0, 0.04: 0, 0.05: 1, 0.2: 1, 0.25: 2, 0.5: 4} {
		c := testConfig(2, 1, 100)
		c.Momentum = m
		s := testState(c)
		const k = 1 << 20
		first := moved(s, 0, []int32{k})
		for i, x := range first {
			if x != k && x != -k {
				t.Fatalf("weight %d moved by %d", i, x)
			}
		}
		share := 1.0
		for step := uint32(1); step < 10; step++ {
			share *= m
			for i, x := range moved(s, step, []int32{0}) {
				want := 0.0
				if int(step) <= repeats {
					want = share * float64(first[i])
				}
				if math.Abs(float64(x)-want) > 1 {
					t.Fatalf("momentum %v: weight %d moved by %d in step %d, want %v", m, i, x, step, want)
				}
			}
		}
	}
}

// Two steps overlap: each goes on with its own direction.
func TestMomentumOfTwoSteps(t *testing.T) {
	c := testConfig(2, 1, 100)
	c.Momentum = 0.5
	alone, both := [2]*state{testState(c), testState(c)}, testState(c)
	moves := [2][][]int32{}
	for i, s := range alone {
		for step := range uint32(6) {
			k := []int32{0}
			if int(step) == i {
				k[0] = 1 << 20
			}
			moves[i] = append(moves[i], moved(s, step, k))
		}
	}
	for step := range uint32(6) {
		k := []int32{0}
		if step < 2 {
			k[0] = 1 << 20
		}
		for i, x := range moved(both, step, k) {
			if want := moves[0][step][i] + moves[1][step][i]; x != want {
				t.Fatalf("weight %d moved by %d in step %d, want %d", i, x, step, want)
			}
		}
	}
	if slices.Equal(moves[0][0], moves[1][1]) {
		t.Error("two steps have one direction")
	}
}

// A late pair moves the weights along the direction that it tried, and momentum repeats that.
func TestLatePairsMoveAlongTheirOwnDirection(t *testing.T) {
	c := testConfig(4, 2, 100)
	c.Momentum = 0.5
	alone, s := testState(c), testState(c)
	want := moved(alone, 3, []int32{0, 1 << 20}) // pair 1 has direction 1
	again := moved(alone, 4, []int32{0, 0})
	if got := movedBy(s, 8, Commit{Increments: []int32{0, 0}, Late: []Late{{Pair: 1, Age: 5, Increment: 1 << 20}}}); !slices.Equal(got, want) {
		t.Errorf("moved by %d, want %d", got, want)
	}
	if got := moved(s, 9, []int32{0, 0}); !slices.Equal(got, again) {
		t.Errorf("momentum moved by %d, want %d", got, again)
	}
}

// m^k is rounded to a multiple of 2^-24 before it multiplies an increment: by hand, with m = 0.7.
func TestMomentumIsRoundedFirst(t *testing.T) {
	c := testConfig(2, 1, 100)
	c.Momentum = 0.7
	s := testState(c)
	const k = 1<<24 + 12345
	first := moved(s, 0, []int32{k})
	// 0.7 x 2^24 = 11744051.2, 0.7 x 0.7 x 2^24 = 8220835.8; times k, over 2^24, halves up.
	for step, want := range []int32{(k*11744051 + 1<<23) >> 24, (k*8220836 + 1<<23) >> 24} {
		for i, x := range moved(s, uint32(step+1), []int32{0}) {
			if first[i] < 0 {
				x = -x
			}
			if x != want {
				t.Fatalf("step %d: moved by %d, want %d", step+1, x, want)
			}
		}
	}
}

// In an epoch each example comes once, in an order of its own; pairs take turns, or share.
func TestExamples(t *testing.T) {
	c := testConfig(6, 3, 50)
	c.Examples = []int{5, 2, 9} // 32 in a step
	for _, of := range []int{1, 2, 40, 97} {
		var all []int
		for step := range 200 {
			for pair, n := range c.Examples {
				got := c.examples(step, pair, of)
				if len(got) != 2*n {
					t.Fatalf("%d examples for two inputs of %d", len(got), n)
				}
				all = append(all, got...)
			}
		}
		var orders []string
		for epoch := 0; (epoch+1)*of <= len(all); epoch++ {
			one := slices.Clone(all[epoch*of:][:of])
			orders = append(orders, fmt.Sprint(one))
			slices.Sort(one)
			for i, x := range one {
				if x != i {
					t.Fatalf("%d examples, epoch %d: %v", of, epoch, one)
				}
			}
		}
		if slices.Sort(orders); of > 20 && len(slices.Compact(orders)) != len(all)/of {
			t.Errorf("%d examples: epochs of one order", of)
		}
	}
	c.Shared = true
	most := c.examples(7, 2, 40)
	for pair, n := range c.Examples {
		if got := c.examples(7, pair, 40); !slices.Equal(got, most[:2*n]) {
			t.Errorf("pair %d has %v, want the first of %v", pair, got, most)
		}
	}
	if next := c.examples(8, 2, 4000); slices.Equal(next, c.examples(7, 2, 4000)) {
		t.Error("two steps share examples")
	}
}
