package forward

import (
	"math"
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/train"
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
	before := slices.Clone(s.w.data[0])
	s.apply(step, increments, nil)
	after := slices.Clone(s.w.data[0])
	for i := range after {
		after[i] -= before[i]
	}
	return after
}

func testState(c *Config) *state {
	const entries = 64
	return &state{config: c, w: &Weights{params: []train.Param{{Name: "w", Shape: []int{entries}}}, data: [][]int32{make([]int32, entries)}, shift: []uint{0}}}
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

// Every pair draws its own examples in every step, all as often, by the generator of the format page.
func TestExamples(t *testing.T) {
	c := testConfig(6, 3, 50)
	c.Examples = []int{5, 2, 9}
	const of = 40
	counts, seen := make([]float64, of), map[string]bool{}
	for step := range 400 {
		for pair := range 3 {
			got := c.examples(step, pair, of)
			if len(got) != 2*c.Examples[pair] {
				t.Fatalf("%d examples for two inputs of %d", len(got), c.Examples[pair])
			}
			for i, n := range got {
				word := philox([4]uint32{uint32(i / 4), uint32(pair), uint32(step), 1<<32 - 2}, [2]uint32{uint32(c.Key), uint32(c.Key >> 32)})[i%4]
				if want := int(float64(word) / (1 << 32) * of); n != want {
					t.Fatalf("step %d, pair %d, example %d is %d, want %d", step, pair, i, n, want)
				}
				counts[n]++
			}
			if len(got) >= 10 {
				key := string(rune(got[0])) + string(rune(got[1])) + string(rune(got[2])) + string(rune(got[3])) + string(rune(got[4])) + string(rune(got[5])) + string(rune(got[6]))
				if seen[key] {
					t.Errorf("step %d, pair %d: the same examples again", step, pair)
				}
				seen[key] = true
			}
		}
	}
	total, chi := 400.0*32, 0.0
	for _, n := range counts {
		chi += (n - total/of) * (n - total/of) / (total / of)
	}
	if chi > 80 { // 39 degrees of freedom: 1 in 10,000
		t.Errorf("some examples come more often than others: %v", counts)
	}
}

// A pair is waited for as long as it takes part; when it fails, no longer, and again once both halves were heard.
func TestWhoIsWaitedFor(t *testing.T) {
	c := testConfig(6, 3, 50)
	var r round
	last := c.allPairs()
	step := uint32(0)
	send := func(at uint32, ranks ...uint16) (pairs uint64, done bool) {
		t.Helper()
		for _, rank := range ranks {
			if done {
				t.Fatalf("decided before rank %d", rank)
			}
			pairs, done = r.take(Frame{Step: at, Rank: rank})
		}
		return pairs, done
	}
	begin := func() { r.begin(c, step, last) }
	end := func(pairs uint64) { last, step = pairs, step+1 }

	begin()
	if pairs, done := send(step, 3, 0, 1, 4, 5, 2); !done || pairs != 0b111 {
		t.Fatalf("pairs %b, %v; want all", pairs, done)
	}
	end(0b111)
	begin()
	if _, done := send(step, 0, 1, 4, 5, 2); done {
		t.Fatal("decided without rank 3")
	}
	// Rank 3 is dead. A proposal that names pairs that are not there changes nothing, nor one without pairs.
	for _, bad := range []uint64{0, 1 << 1, 1<<0 | 1<<1, 1 << 7} {
		if _, done := r.take(Frame{Step: step, Commit: true, Pairs: bad}); done {
			t.Fatalf("decided by a proposal of pairs %b", bad)
		}
	}
	if pairs, done := r.take(Frame{Step: step, Commit: true, Pairs: 0b101}); !done || pairs != 0b101 {
		t.Fatal("not decided by a proposal")
	}
	end(0b101)
	for range 3 { // nobody waits for pair 1, whose other half still sends
		begin()
		if pairs, done := send(step, 2, 0, 5, 4, 1); !done || pairs != 0b101 {
			t.Fatalf("step %d: pairs %b, %v; want 101 as soon as they are there", step, pairs, done)
		}
		end(0b101)
	}
	// It is heard again, of a step long over: the next step waits for it.
	begin()
	if _, done := send(0, 3); done {
		t.Fatal("a frame of an old step decided this one")
	}
	if pairs, done := send(step, 0, 1, 2, 4, 5); !done || pairs != 0b101 {
		t.Fatal("waited for within the step in which it came back")
	}
	end(0b101)
	begin()
	if pairs, done := send(step, 0, 1, 4, 5, 2, 3); !done || pairs != 0b111 {
		t.Fatalf("pairs %b, %v after the return", pairs, done)
	}
	end(0b111)
	// A frame of a thousand steps ago, of a step to come or from a proposal is no sign of life.
	for _, f := range []Frame{{Step: 3000 - 1025, Rank: 3}, {Step: 3001, Rank: 3}, {Step: 2999, Rank: 3, Commit: true, Pairs: 1}} {
		var r round
		r.begin(c, 2999, 0b111)
		r.begin(c, 3000, 0b101)
		r.take(Frame{Step: 3000, Rank: 2})
		r.take(f)
		r.begin(c, 3001, 0b101)
		if r.expected != 0b101 {
			t.Errorf("%+v: waited for pairs %b", f, r.expected)
		}
	}
	for _, f := range []Frame{{Step: 3000 - 1024, Rank: 3}, {Step: 2999, Rank: 3}} {
		var r round
		r.begin(c, 2999, 0b111)
		r.begin(c, 3000, 0b101)
		r.take(Frame{Step: 3000, Rank: 2})
		r.take(f)
		r.begin(c, 3001, 0b101)
		if r.expected != 0b111 {
			t.Errorf("%+v: waited for pairs %b", f, r.expected)
		}
	}
	// More pairs than were waited for may be there: all count.
	r = round{}
	r.begin(c, 5000, 0b001)
	if pairs, done := send(5000, 2, 3, 0, 1); !done || pairs != 0b011 {
		t.Errorf("pairs %b, %v", pairs, done)
	}
	// A second frame of a rank, and one of a rank that is none, change nothing.
	r.begin(c, 6000, 0b001)
	r.take(Frame{Step: 6000, Rank: 0, Losses: [2]float32{1, 1}})
	r.take(Frame{Step: 6000, Rank: 0, Losses: [2]float32{9, 9}})
	r.take(Frame{Step: 6000, Rank: 6})
	if r.losses[0][0] != 1 || r.seen[6] {
		t.Errorf("losses %v", r.losses[0])
	}
}
