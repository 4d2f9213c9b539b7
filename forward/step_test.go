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
		for schedule, want := range map[string]float64{"constant": 3, "cosine": 1.5 * (1 + math.Cos(math.Pi*x))} {
			c := Config{LearningRate: 3, Schedule: schedule, Steps: steps}
			if got := c.rate(step); math.Abs(got-want) > 1e-12 {
				t.Fatalf("%s at step %d: %v, want %v", schedule, step, got, want)
			}
		}
	}
}

// moved returns by how much a commit moves each of 64 weights.
func moved(c *Config, step uint32, commit Commit) []int32 {
	w := &Weights{tensors: []Tensor{{Name: "w", Shape: []int{64}}}, data: [][]int32{make([]int32, 64)}}
	r := Replica{Chain: Chain{Header: &Header{Config: *c}}, Weights: w}
	r.apply(step, commit)
	return w.data[0]
}

// An increment moves every weight by as much, up or down, along a direction that belongs to the step.
func TestIncrements(t *testing.T) {
	c, k := testConfig(4, 2, 100), int32(1<<20)
	first, next := moved(c, 0, Commit{Increments: []int32{k, 0}}), moved(c, 1, Commit{Increments: []int32{k, 0}})
	other, both := moved(c, 0, Commit{Increments: []int32{0, k}}), moved(c, 0, Commit{Increments: []int32{k, k}})
	for i, x := range first {
		if x != k && x != -k || both[i] != x+other[i] {
			t.Fatalf("weight %d moved by %d, by %d along the other direction, and by %d along both", i, x, other[i], both[i])
		}
	}
	if slices.Equal(first, next) || slices.Equal(first, other) {
		t.Error("two steps or two directions are one")
	}
}

// A late pair moves the weights along the direction that it tried, by the increment for each half.
func TestLatePairsMoveAlongTheirOwnDirection(t *testing.T) {
	c := testConfig(4, 2, 100)
	want := moved(c, 3, Commit{Increments: []int32{0, 1 << 20}}) // pair 1 has direction 1
	if got := moved(c, 8, Commit{Increments: []int32{0, 0}, Late: []Late{{Pair: 1, Age: 5, Increment: 1 << 19}}}); !slices.Equal(got, want) {
		t.Errorf("moved by %d, want %d", got, want)
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
	c.Estimator, c.Examples = Each, []int{9, 9, 9}
	for pair := range c.Examples {
		if got := c.examples(7, pair, 40); len(got) != 18 || !slices.Equal(got, c.examples(7, 0, 40)) {
			t.Errorf("pair %d has %v, pair 0 %v", pair, got, c.examples(7, 0, 40))
		}
	}
	if next := c.examples(8, 2, 4000); slices.Equal(next, c.examples(7, 2, 4000)) {
		t.Error("two steps share examples")
	}
}
