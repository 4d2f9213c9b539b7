package forward

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// sentLosses are what a pair sent: both inputs under plus and under minus, and how old they are.
type sentLosses struct {
	plus, minus [2]float32
	age         int
}

// byHand is the move of each pair in whole units, as the page of the protocol has it and without a line of decide: half
// differences, over their root mean square of all steps so far (weighed as a running mean of 32, v before the step), times examples, over
// the geometric mean of the examples of all pairs of the run and of those that count. It deletes pairs that do not count.
func byHand(c *Config, rate float64, step int, v float64, pairs map[int]sentLosses) (moves map[int]float64, loss, after float64) {
	moves = map[int]float64{}
	half := map[int]float64{}
	all, mean := 0.0, 0.0
	for p, l := range pairs {
		sum := 0.0
		for _, x := range []float32{l.plus[0], l.plus[1], l.minus[0], l.minus[1]} {
			sum += float64(x)
		}
		if math.IsNaN(sum) || math.IsInf(sum, 0) {
			delete(pairs, p)
			continue
		}
		up, down := (float64(l.plus[0])+float64(l.plus[1]))/2, (float64(l.minus[0])+float64(l.minus[1]))/2
		h, least := (up-down)/2, math.Max(v, 1e-13)
		if v > 0 && math.Abs(h) > 16*math.Sqrt(least) { // a spike
			delete(pairs, p)
			mean += 2 * least
			all++
			continue
		}
		half[p] = h
		loss += sum / 4
		mean += h * h
		all++
	}
	loss, mean = loss/float64(len(half)), mean/math.Max(all, 1)
	total, there := 0.0, 0.0
	for p, e := range c.Examples {
		total += float64(e)
		if _, counts := half[p]; counts {
			there += float64(e)
		}
	}
	switch {
	case mean == 0:
	case v == 0:
		v = mean
	case step == 1:
		v = (math.Min(v, 16*mean) + mean) / 2
	default:
		v += (mean - v) / math.Min(32, float64(step+1))
	}
	rms := math.Sqrt(math.Max(v, 1e-13))
	for p, h := range half {
		x := h / rms
		if c.Clip > 0 {
			x = math.Max(-c.Clip, math.Min(c.Clip, x))
		}
		moves[p] = -rate * x * float64(c.Examples[p]) / total * math.Sqrt(total/there) * math.Exp2(24)
	}
	return moves, loss, v
}

// The decision of a step is the formula's, whichever pairs take part and however late.
func TestDecideIsTheFormula(t *testing.T) {
	skipRaced(t)
	rapid.Check(t, func(t *rapid.T) {
		shape := rapid.SampledFrom([][2]int{{1, 1}, {2, 1}, {2, 2}, {4, 2}, {6, 3}, {64, 4}}).Draw(t, "pairs, directions")
		pairs := shape[0]
		c := &Config{Processors: 2 * pairs, Directions: shape[1], Steps: 100, Epsilon: rapid.SampledFrom([]float64{1e-3, 0.25}).Draw(t, "epsilon"),
			LearningRate: 0.01, Schedule: "cosine", Clip: rapid.SampledFrom([]float64{0, 0.5, 3}).Draw(t, "clip")}
		for range pairs {
			c.Examples = append(c.Examples, rapid.IntRange(1, 9).Draw(t, "examples"))
		}
		tuning := newTuning()
		tuning.scale = rapid.SampledFrom([]float64{1, 0.25}).Draw(t, "scale")
		v := 0.0
		spread := rapid.SampledFrom([]float64{4, 1e-3, 1e-6}).Draw(t, "spread")
		for step := range rapid.SampledFrom([]int{2, 40}).Draw(t, "steps") {
			r := round{config: c, step: uint32(step)}
			sent := map[int]sentLosses{}
			var counted []arrival
			leftOut := uint64(0)
			for p := range pairs {
				if p > 0 && rapid.IntRange(0, 3).Draw(t, "there") == 0 {
					continue
				}
				l := sentLosses{age: rapid.SampledFrom([]int{0, 0, 0, 1, 5}).Draw(t, "age")}
				for i := range 2 {
					l.plus[i], l.minus[i] = float32(2+rapid.Float64Range(0, spread).Draw(t, "plus")), float32(2+rapid.Float64Range(0, spread).Draw(t, "minus"))
				}
				if p > 0 && rapid.IntRange(0, 9).Draw(t, "broken") == 0 {
					l.minus[p%2] = []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))}[p%3]
				} else if p > 0 && rapid.IntRange(0, 9).Draw(t, "spike") == 0 {
					l.plus[p%2] = float32(math.Pow(10, float64(3*(p%9+1))))
				}
				sent[p], leftOut = l, leftOut|1<<p
				r.losses[2*p], r.losses[2*p+1] = l.plus, l.minus
				counted = append(counted, arrival{p, uint32(l.age)})
			}
			want, loss, after := byHand(c, 0.005*(1+math.Cos(math.Pi*float64(step)/100))*tuning.scale, step, v, sent)
			v = after
			for p := range sent {
				leftOut &^= 1 << p
			}
			got := r.decide(counted, &tuning)
			if math.Abs(got.Loss-loss) > 1e-9*max(1, loss) || got.LeftOut != leftOut {
				t.Fatalf("loss %v, want %v; left out %b, want %b", got.Loss, loss, got.LeftOut, leftOut)
			}
			check := func(what string, k int32, x float64) {
				x = math.Max(-math.Exp2(24)/float64(pairs), math.Min(math.Exp2(24)/float64(pairs), x))
				if math.Abs(float64(k)-x) > 0.5+1e-7*math.Abs(x)+1e-9 && math.Abs(float64(k)-x) > 1 {
					t.Fatalf("step %d, %s: %d units, want %v", step, what, k, x)
				}
			}
			along := make([]float64, c.Directions)
			late := map[int]float64{}
			for p, x := range want {
				if sent[p].age == 0 {
					along[p*c.Directions/pairs] += x
				} else {
					late[p] = x
				}
				if inTime := got.Pairs>>p&1 == 1; inTime != (sent[p].age == 0) {
					t.Fatalf("pairs %b; pair %d has age %d", got.Pairs, p, sent[p].age)
				}
			}
			for d, x := range along {
				check("a direction", got.Increments[d], x)
			}
			if len(got.Late) != len(late) {
				t.Fatalf("late %v, want %v", got.Late, late)
			}
			for _, l := range got.Late {
				if l.Age != sent[l.Pair].age {
					t.Fatalf("pair %d has age %d, want %d", l.Pair, l.Age, sent[l.Pair].age)
				}
				check("a late pair", l.Increment, late[l.Pair]/2) // each half as much
			}
		}
	})
}

// A step is as long with one pair as with four, by hand: slopes of 1 and a rate of 1/2 move one direction by 1/4, two by 1/sqrt(32) each (a length of 1/4), four by 1/8. So is
// a late pair's, and one that is not finite is not there.
func TestStepsAreAsLongWithoutSomePairs(t *testing.T) {
	c := &Config{Processors: 8, Directions: 4, Steps: 10, Epsilon: 0.5, LearningRate: 0.5, Schedule: "constant", Examples: []int{1, 1, 1, 1}}
	for there, want := range map[int]int32{4: -1 << 21, 2: -2965821, 1: -1 << 22} {
		for _, more := range []int{0, 1} { // that are not finite
			r, tuning := round{config: c}, newTuning()
			var counted []arrival
			for p := range min(there+more, 4) {
				r.losses[2*p], r.losses[2*p+1] = [2]float32{1, 1}, [2]float32{0, 0}
				counted = append(counted, arrival{pair: p})
			}
			if there+more <= 4 && more > 0 {
				r.losses[2*there] = [2]float32{float32(math.NaN()), 1}
			}
			counted[0].age = 2
			got := r.decide(counted, &tuning)
			if len(got.Late) != 1 || math.Abs(float64(got.Late[0].Increment)-float64(want)/2) > 0.5 {
				t.Errorf("%d pairs: late %v, want half of %d units", there, got.Late, want)
			}
			for d, k := range got.Increments {
				if d > 0 && d < there && k != want || (d == 0 || d >= there) && k != 0 {
					t.Errorf("%d pairs: direction %d moves by %d units, want %d", there, d, k, want)
				}
			}
		}
	}
}

// Losses of different examples that lie far apart do not make the step smaller: only each pair's own difference counts.
func TestNormalizeKnowsOwnDifferencesAlone(t *testing.T) {
	c := &Config{Processors: 4, Directions: 2, Steps: 10, Epsilon: 1e-3, LearningRate: 0.5, Schedule: "constant", Examples: []int{1, 1}}
	r, tuning := round{config: c}, newTuning()
	r.losses[0], r.losses[1] = [2]float32{1.25, 1.25}, [2]float32{1, 1}
	r.losses[2], r.losses[3] = [2]float32{900, 900}, [2]float32{900.25, 900.25}
	got := r.decide([]arrival{{pair: 0}, {pair: 1}}, &tuning).Increments
	if got[0] != -1<<22 || got[1] != 1<<22 { // 0.5 x 1 / 2 examples = 2^-2
		t.Errorf("increments %d, want -+2^22", got)
	}
	if tuning.square != 0.125*0.125 {
		t.Errorf("mean square %v, want 1/64", tuning.square)
	}
}

// What is left of two losses that are all but the same is rounding, and is not blown up to a whole step.
func TestNormalizeNeedsADifference(t *testing.T) {
	c := &Config{Processors: 2, Directions: 1, Steps: 1, Epsilon: 1e-3, Examples: []int{1}, LearningRate: 1, Schedule: "constant"}
	for half, want := range map[float64]float64{0: 0, 1e-8: 1e-8 / math.Sqrt(1e-13), 1e-6: 1} {
		r, tuning := round{config: c}, newTuning()
		r.losses[0], r.losses[1] = [2]float32{float32(half), float32(half)}, [2]float32{float32(-half), float32(-half)}
		got := float64(r.decide([]arrival{{}}, &tuning).Increments[0]) / (1 << 24)
		if math.Abs(got+want) > 1e-6 {
			t.Errorf("half difference %v: a move of %v, want %v", half, got, -want)
		}
	}
}

// No step moves further than fixed point has room for.
func TestMovesAreLimited(t *testing.T) {
	config := testConfig(4, 2, 10)
	config.LearningRate = 100
	r, tuning := round{config: config}, newTuning()
	for rank := range 4 {
		r.losses[rank] = [2]float32{1e6 * float32(rank%2), 0}
	}
	if got := r.decide([]arrival{{pair: 0}, {pair: 1}}, &tuning).Increments; got[0] != 1<<23 || got[1] != 1<<23 {
		t.Errorf("increments %d, want 2^23", got)
	}
}

// A block that is worse than the best one halves the rate, and its losses are what later ones are compared with; one that is worse by chance, or
// in a run without a guard, does not.
func TestGuard(t *testing.T) {
	block := func(t *tuning, guard bool, losses ...float64) {
		for _, l := range losses {
			t.losses, t.squares, t.counted = t.losses+l, t.squares+l*l, t.counted+1
		}
		t.endBlock(guard)
	}
	g := newTuning()
	for i, c := range []struct {
		losses             []float64
		scale, best, error float64
	}{
		{[]float64{2, 4}, 1, 3, 0.5},                        // variance 1, of two
		{[]float64{1, 1, 1, 1}, 1, 1, 0},                    // better
		{[]float64{2.25, 4.25, 2.25, 4.25}, 0.5, 3.25, .25}, // 2.25 above, against 4 x 1/2
		{[]float64{4.75, 5.75, 4.75, 5.75}, 0.5, 3.25, .25}, // 2 above, against 4 sqrt(1/4 + 1/16) = 2.2
		{nil, 0.5, 3.25, .25},
		{[]float64{7}, 0.25, 7, 0}, // 3.75 above, against 2
	} {
		if block(&g, true, c.losses...); g.scale != c.scale || g.best != c.best || math.Abs(g.bestError-c.error) > 1e-12 {
			t.Errorf("block %d: %+v, want %+v", i, g, c)
		}
	}
	free := newTuning()
	block(&free, false, 1)
	if block(&free, false, 100); free.scale != 1 {
		t.Errorf("without a guard: %+v", free)
	}
}

// With Each a loss counts against the mean of all, along a direction of its own: by hand, with means 4, 2, 1, 1 of a mean of 2, and a late pair with 5 and 3, which
// counts against its own half alone.
func TestEachIsTheFormula(t *testing.T) {
	c := &Config{Processors: 6, Estimator: Each, Directions: 6, Steps: 10, Epsilon: 0.5, LearningRate: 0.5, Schedule: "constant", Examples: []int{4, 4, 4}}
	losses := [][2]float32{{3, 5}, {2, 2}, {0, 2}, {1, 1}, {5, 5}, {3, 3}}
	counted := []arrival{{pair: 0}, {pair: 1}, {pair: 2, age: 3}}
	unit := math.Sqrt(8.0 / 6) // of the squares 4, 0, 1, 1, 1, 1
	r, tuning := round{config: c}, newTuning()
	copy(r.losses[:], losses)
	got := r.decide(counted, &tuning)
	for rank, above := range []float64{2, 0, -1, -1, 0, 0} {
		want := -0.5 * above / unit / 6 * (1 << 24)
		if math.Abs(float64(got.Increments[rank])-want) > 0.5 {
			t.Errorf("direction %d moves by %d, want %v", rank, got.Increments[rank], want)
		}
	}
	if want := -0.5 * 1 / unit / 6 * (1 << 24); len(got.Late) != 1 || math.Abs(float64(got.Late[0].Increment)-want) > 0.5 {
		t.Errorf("late %v, want %v", got.Late, want)
	}
	if got.Loss != (4+2+1+1+5+3)/6.0 {
		t.Errorf("loss %v", got.Loss)
	}
	// The late pair moves the weights along its even rank's direction, and against its odd rank's.
	moves := moved(c, 8, Commit{Increments: make([]int32, 6), Late: []Late{{Pair: 2, Age: 3, Increment: 1 << 20}}})
	up, down := moved(c, 5, Commit{Increments: []int32{0, 0, 0, 0, 1 << 20, 0}}), moved(c, 5, Commit{Increments: []int32{0, 0, 0, 0, 0, 1 << 20}})
	for i := range moves {
		if moves[i] != up[i]-down[i] {
			t.Fatalf("entry %d moved by %d, want %d", i, moves[i], up[i]-down[i])
		}
	}
}
