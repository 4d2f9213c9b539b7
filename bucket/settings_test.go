package bucket

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"evenkeel/internal/race"
	"pgregory.net/rapid"

	"evenkeel/internal/slow"
)

// The settings of docs/guides/bucket-pytorch.md reach what it says: an epoch near the bound, predicted, even, and step-mates that part.
func TestSettings(t *testing.T) {
	slow.Skip(t)
	if race.Enabled {
		t.Skip("one goroutine; its numbers are judged without the race detector")
	}
	a, b := Lognormal(1000000, 400, .8, 4096), Lognormal(300000, 800, 1.2, 16384)
	slow := []float64{1, 1, 1, 1, 1, 1, 1, .9}
	for _, c := range []struct {
		name              string
		l                 Lengths
		cost              Cost
		f                 Config
		bound, p99, again float64
	}{
		{"A", a, A, Config{Ranks: 8}, 1.01, 1.01, .02},
		{"B", b, B, Config{Ranks: 8}, 1.01, 1.01, .03},
		{"A 64", a, A, Config{Ranks: 64}, 1.01, 1.02, .03},
		{"B 64", b, B, Config{Ranks: 64}, 1.012, 1.03, .1},
		{"A sorted", a, A, Config{Ranks: 8, Mixing: with(0)}, 1.001, 1.01, 1},
		{"B sorted", b, B, Config{Ranks: 8, Mixing: with(0)}, 1.001, 1.01, 1},
		{"A slow", a, A, Config{Speeds: slow}, 1.01, 1.015, .02},
		{"B slow", b, B, Config{Speeds: slow}, 1.03, 1.04, .03}, // long samples come few at a time, so the slower rank's batches are shorter by much more or less than a tenth
		{"A124", a, A, Config{Speeds: []float64{1, 2, 4}}, 1.01, 1.01, .02},
		{"B124", b, B, Config{Speeds: []float64{1, 2, 4}}, 1.01, 1.01, .03},
	} {
		p, err := Make(c.l, c.cost, c.f)
		if err != nil {
			t.Fatal(err)
		}
		score, err := Judge(c.l, p.Schedule(c.l, 1, 1).All(), c.cost, p.Speeds, 0)
		if err != nil {
			t.Fatal(err)
		}
		again, random := p.Recurrence(c.l, 1, 1)
		ratio := score.EpochSeconds / p.LowerBoundSeconds
		t.Logf("%s: %.4f of the bound, p99 %.4f, again %.3f (random %.3f), %d steps", c.name, ratio, score.ImbalanceP99, again, random, score.Steps)
		if ratio > c.bound || ratio < 1 || score.ImbalanceP99 > c.p99 || again > c.again || math.Abs(p.EpochSeconds/score.EpochSeconds-1) > .01 {
			t.Errorf("%s: %.4f of the bound, again %.3f: predicted %+v, judged %+v", c.name, ratio, again, p.Score, score)
		}
		if score.OutOfMemory+score.Lost+score.Repeated > 0 {
			t.Error(c.name, "lost, repeated or out of memory")
		}
	}
}

// A rank that is slower makes steps a little more, not many times larger or smaller.
func TestSlowRank(t *testing.T) {
	l := Lognormal(200000, 400, .8, 4096)
	steps := 0
	for _, v := range []float64{1, .97, .9, .5} {
		p, err := Make(l, A, Config{Speeds: []float64{1, 1, 1, 1, 1, 1, 1, v}})
		if err != nil {
			t.Fatal(err)
		}
		if v == 1 {
			steps = p.Steps
		}
		s := p.Schedule(l, 1, 0)
		most := 0
		for i := range s.Len() {
			n := map[uint32]int{}
			for _, b := range s.Step(i) {
				n[b.Rank]++
				most = max(most, n[b.Rank])
			}
		}
		if ratio := p.EpochSeconds / p.LowerBoundSeconds; ratio > 1.02 || math.Abs(float64(s.Len())/float64(steps)-1) > .1 || most > 2 {
			t.Errorf("speed %v: %d steps where equal ranks have %d, %.4f of the bound, up to %d micro-batches", v, s.Len(), steps, ratio, most)
		}
	}
}

// Long samples, of which a batch has one or few, keep no rank idle, whatever the speeds.
func TestLongSamples(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	peaks := make(Lengths, 4000)
	for i := range peaks {
		if peaks[i] = uint32(300 + r.IntN(100)); i%10 == 0 {
			peaks[i] = uint32(5000 + r.IntN(2000))
		}
	}
	tail := Lognormal(4000, 380, 1.7, 8192)
	cost := capped{Formula{.02, 4e-5, 4e-9, 0}, 9000}
	for _, c := range []struct {
		speeds      []float64
		peaks, tail float64 // most of the bound
		batches     int
	}{
		{[]float64{1, 1, 1, 1}, 1.01, 1.01, 1},
		{[]float64{1, 1, .9}, 1.07, 1.07, 1},
		{[]float64{1, 1, 1, .5}, 1.01, 1.02, 2},
		{[]float64{1, 1, 1, 1, .4, .4, .4, .4}, 1.02, 1.02, 5},
		{[]float64{1, 1.7, 2.3}, 1.02, 1.03, 7},
	} {
		for l, most := range map[*Lengths]float64{&peaks: c.peaks, &tail: c.tail} {
			p, err := Make(*l, cost, Config{Speeds: c.speeds})
			if err != nil {
				t.Fatal(err)
			}
			if ratio := p.EpochSeconds / p.LowerBoundSeconds; ratio > most || slices.Max(p.StepBatches()) != c.batches {
				t.Errorf("speeds %v: %.4f of the bound, %v batches", c.speeds, ratio, p.StepBatches())
			}
		}
	}
}

// Batches of few long samples take nearly as long on ranks whose speeds are no multiples of one another.
func TestFewSamples(t *testing.T) {
	p, err := Make(Lognormal(20000, 800, 1.2, 16384), B, Config{Speeds: []float64{1, 1.7, 2.3}})
	if err != nil {
		t.Fatal(err)
	}
	if ratio := p.EpochSeconds / p.LowerBoundSeconds; ratio > 1.05 || p.ImbalanceP99 > 1.1 {
		t.Errorf("%.4f of the bound, p99 %.4f", ratio, p.ImbalanceP99)
	}
}

// Two epochs' pairs, counted one by one.
func TestRecurrenceTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Lengths(rapid.SliceOfN(rapid.Uint32Range(1, 40), 1, 60).Draw(t, "lengths"))
		p, err := Make(l, capped{A, 80}, Config{Ranks: rapid.IntRange(1, 3).Draw(t, "ranks"), Mixing: with(rapid.Float64Range(0, 1).Draw(t, "mixing"))})
		if err != nil {
			t.Fatal(err)
		}
		pairs := func(epoch uint64) map[[2]uint32]bool {
			out := map[[2]uint32]bool{}
			s := p.Schedule(l, 5, epoch)
			for i := range s.Len() {
				var all []uint32
				for _, b := range s.Step(i) {
					all = append(all, s.Samples(b)...)
				}
				for _, x := range all {
					for _, y := range all {
						if x < y {
							out[[2]uint32{x, y}] = true
						}
					}
				}
			}
			return out
		}
		now, next := pairs(2), pairs(3)
		met, want := 0, 0.0
		for k := range now {
			if next[k] {
				met++
			}
		}
		if len(now) > 0 {
			want = float64(met) / float64(len(now))
		}
		if again, _ := p.Recurrence(l, 5, 2); math.Abs(again-want) > 1e-12 {
			t.Fatalf("%v, one by one %v", again, want)
		}
	})
}

// What a plan predicts is what its steps take.
func TestPredicted(t *testing.T) {
	l := Lognormal(20000, 400, .8, 4096)
	for _, f := range []Config{
		{Ranks: 4, MaxSamples: 100}, {Ranks: 4, MaxTokens: 40000}, {Speeds: []float64{1, 2, 4}, MaxTokens: 100000, MicroBatches: 1},
		{Ranks: 4, PadTo: 64}, {Ranks: 3, PadTo: 128, MaxSamples: 300},
	} {
		p, err := Make(l, A, f)
		if err != nil {
			t.Fatal(err)
		}
		score, err := Judge(l, p.Schedule(l, 1, 1).All(), p.cost, p.Speeds, 0)
		if err != nil || score.Lost+score.Repeated+score.OutOfMemory > 0 || math.Abs(p.EpochSeconds/score.EpochSeconds-1) > .02 {
			t.Errorf("%+v: %+v, predicted %v, %v", f, score, p.EpochSeconds, err)
		}
	}
}

func BenchmarkPlanSchedule1M(b *testing.B) {
	l := Lognormal(1000000, 400, .8, 4096)
	for b.Loop() {
		p, err := Make(l, A, Config{Ranks: 8})
		if err != nil {
			b.Fatal(err)
		}
		p.Schedule(l, 1, 1).Fill()
	}
}

// What a plan says of a step is what the predicted epoch, that of seed 0, has.
func TestStepSize(t *testing.T) {
	for name, f := range map[string]Config{
		"equal":         {Ranks: 4},
		"unequal":       {Speeds: []float64{1, 1, 1, 3}},
		"one batch":     {Speeds: []float64{1, 1, 1, 3}, MicroBatches: 1},
		"some cut":      {Ranks: 4, Overlong: Truncate},
		"some left out": {Ranks: 4, Overlong: Skip},
	} {
		t.Run(name, func(t *testing.T) {
			l := Lognormal(5000, 100, 1, 1000)
			f.Mixing = with(.01)
			c := capped{A, 4000}
			if f.Overlong != "" {
				c.limit = 500
			}
			p, err := Make(l, c, f)
			if err != nil {
				t.Fatal(err)
			}
			s := p.Schedule(l, 0, 0)
			samples, tokens := 0, 0
			most := make([]int, p.Ranks)
			for i := range s.Len() {
				now := make([]int, p.Ranks)
				for _, b := range s.Step(i) {
					now[b.Rank]++
					for _, k := range s.Samples(b) {
						samples, tokens = samples+1, tokens+min(int(l[k]), p.Limit)
					}
				}
				for r, n := range now {
					most[r] = max(most[r], n)
				}
			}
			steps := float64(s.Len())
			if a, b := p.StepSize(); p.Steps != s.Len() || math.Abs(a-float64(samples)/steps) > 1e-9*a || math.Abs(b-float64(tokens)/steps) > 1e-9*b {
				t.Errorf("%d steps, %v samples, %v tokens; the epoch has %v, %v, %v", p.Steps, a, b, s.Len(), float64(samples)/steps, float64(tokens)/steps)
			}
			for r, n := range p.StepBatches() {
				if most[r] != n {
					t.Errorf("rank %d: %d batches a step, at most %d in the epoch", r, n, most[r])
				}
			}
		})
	}
}

// No step has more samples or padded tokens than the plan allows, whatever the ranks' speeds; nor a rank more batches, or one more than memory holds.
func TestLimits(t *testing.T) {
	l := Lognormal(3000, 60, 1, 200)
	for _, speeds := range [][]float64{{1, 1, 1, 1}, {1, 1, .9}, {1, .3, 2.2}} {
		for _, f := range []Config{{MaxSamples: 32}, {MaxTokens: 6000}, {MaxSamples: 50, MaxTokens: 9000, MicroBatches: 2}, {MaxTokens: 6000, Mixing: with(1), MicroBatches: 1}, {PadTo: 64}, {PadTo: 48, MaxTokens: 9000}} {
			f.Speeds = speeds
			p, err := Make(l, A, f)
			if err != nil {
				t.Fatal(err)
			}
			s := p.Schedule(l, 1, 1)
			for i := range s.Len() {
				samples, tokens, micro := 0, 0, make([]int, len(speeds))
				for _, b := range s.Step(i) {
					longest := 0
					for _, k := range s.Samples(b) {
						longest = max(longest, up(int(l[k]), max(1, f.PadTo)))
					}
					samples, tokens = samples+int(b.Count), tokens+int(b.Count)*longest
					if micro[b.Rank]++; int(b.Count) > A.Cap(longest) {
						t.Fatalf("%+v: %d samples of %d", f, b.Count, longest)
					}
				}
				if f.MaxSamples > 0 && samples > f.MaxSamples || f.MaxTokens > 0 && tokens > f.MaxTokens || f.MicroBatches > 0 && slices.Max(micro) > f.MicroBatches {
					t.Fatalf("%+v: step %d has %d samples, %d tokens, %v batches", f, i, samples, tokens, micro)
				}
			}
			if score, err := Judge(l, s.All(), p.cost, speeds, 0); err != nil || score.Lost+score.Repeated+score.OutOfMemory > 0 || s.Len() > 20 && math.Abs(p.EpochSeconds/score.EpochSeconds-1) > .05 {
				t.Errorf("%+v: %+v, predicted %v, %v", f, score, p.EpochSeconds, err)
			}
		}
	}
	for _, f := range []Config{{Speeds: []float64{1, 1, 1, 1, .4, .4, .4, .4}, MaxSamples: 20}, {Speeds: []float64{1, .06, .06, .06}}} { // more would leave nothing, or gain nothing
		if p, err := Make(l, A, f); err != nil || slices.Max(p.StepBatches()) > 1 {
			t.Errorf("%+v: several batches a rank, or %v", f, err)
		}
	}
	if _, err := Make(l, A, Config{Speeds: []float64{1, .3}, MicroBatches: 1, MaxSamples: 3}); err == nil || !strings.Contains(err.Error(), "max samples 3: a batch of the slowest of 2 ranks would be empty") {
		t.Error(err)
	}
}
