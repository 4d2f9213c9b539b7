package packed

import (
	"errors"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/bucket"
	"evenkeel/bucket/internal/invented"
)

// tokens is a cost with room for so many tokens.
type tokens struct {
	invented.Formula
	memory int
}

func (c tokens) Cap(l int) int { return c.memory / l }

func sum(l bucket.Lengths, samples []uint32) (n int) {
	for _, i := range samples {
		n += int(l[i])
	}
	return n
}

func indices(n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(i)
	}
	return out
}

// Packed batches against sums written out here: no sample lost, every batch within memory, the times of steps and so of the epoch, which no
// schedule can undercut the bound of.
func TestPackedTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := make(bucket.Lengths, rapid.IntRange(1, 500).Draw(t, "samples"))
		top := rapid.Uint32Range(1, 300).Draw(t, "top")
		for i := range l {
			l[i] = rapid.Uint32Range(1, top).Draw(t, "length")
		}
		c := tokens{invented.Formula{Fixed: rapid.Float64Range(0, .5).Draw(t, "a"), Token: 4e-5, Square: rapid.Float64Range(0, 1e-6).Draw(t, "c"), Room: 500}, rapid.IntRange(300, 5000).Draw(t, "memory")}
		f := bucket.Config{Speeds: rapid.SliceOfN(rapid.SampledFrom([]float64{1, 1, .9, .5, 2}), 1, 6).Draw(t, "speeds"),
			MaxSamples: rapid.SampledFrom([]int{0, 0, 7}).Draw(t, "max samples"), MaxTokens: rapid.SampledFrom([]int{0, 0, 400}).Draw(t, "max tokens")}
		p, err := Make(l, c, f)
		if err != nil {
			t.Fatal(err)
		}
		s := p.Schedule(l, 1, 2)
		seen := make([]int, len(l))
		epoch := 0.0
		for i := range s.Len() {
			slowest, samples, tokens := 0.0, 0, 0
			before := -1
			for _, b := range s.Step(i) {
				if int(b.Rank) <= before {
					t.Fatalf("step %d: rank %d after %d", i, b.Rank, before)
				}
				before = int(b.Rank)
				seconds, cells := c.Fixed, 0.0
				for _, k := range s.Samples(b) {
					n := float64(l[k])
					seconds += c.Token*n + c.Square*n*n
					cells += 1 / float64(c.memory/int(l[k]))
					seen[k]++
					samples++
					tokens += int(l[k])
				}
				if held := s.Samples(b); cells > 1+1e-6 || sum(l, held) > c.memory {
					t.Fatalf("step %d, rank %d: %v of the memory, %d tokens of %d", i, b.Rank, cells, sum(l, held), c.memory)
				}
				slowest = max(slowest, seconds/f.Speeds[b.Rank])
			}
			if f.MaxSamples > 0 && samples > f.MaxSamples || f.MaxTokens > 0 && tokens > f.MaxTokens {
				t.Fatalf("step %d: %d samples, %d tokens", i, samples, tokens)
			}
			epoch += slowest
		}
		for k, n := range seen {
			if n != 1 {
				t.Fatalf("sample %d comes %d times", k, n)
			}
		}
		if sum(l, indices(len(l))) > c.memory { // all in one batch
			if score, err := bucket.Judge(l, bucket.Listed([][]bucket.RankBatch{{{Samples: indices(len(l))}}}), p.Cost(), f.Speeds, p.Limit, nil); err != nil || score.OutOfMemory != 1 {
				t.Fatalf("%d samples in one batch: %+v, %v", len(l), score, err)
			}
		}
		score, err := bucket.Judge(l, s.All(), p.Cost(), f.Speeds, p.Limit, nil)
		if err != nil || math.Abs(score.EpochSeconds/epoch-1) > 1e-6 || score.OutOfMemory+score.Lost+score.Repeated != 0 || math.Abs(score.Padding) > 1e-12 {
			t.Fatalf("%+v, %v; want %v s", score, err, epoch)
		}
		work, speed := 0.0, 0.0
		for _, n := range l {
			n := float64(n)
			work += c.Token*n + c.Square*n*n + c.Fixed/float64(c.memory/int(n))
		}
		for _, v := range f.Speeds {
			speed += v
		}
		if math.Abs(p.LowerBoundSeconds/(work/speed)-1) > 1e-6 || p.LowerBoundSeconds > epoch*(1+1e-9) {
			t.Fatalf("bound %v, want %v; epoch %v", p.LowerBoundSeconds, work/speed, epoch)
		}
	})
}

// With enough samples packed batches in random order are even and fill the memory.
func TestPackedIsEven(t *testing.T) {
	for name, x := range map[string]struct {
		sigma  float64
		speeds []float64
	}{
		"equal":       {.8, []float64{1, 1, 1, 1, 1, 1, 1, 1}},
		"one slower":  {.8, []float64{1, 1, 1, 1, 1, 1, 1, .9}},
		"mixed":       {.8, []float64{1, 2, 4}},
		"long tailed": {1.4, []float64{1, 1, 1, 1, 1, 1, 1, 1}},
	} {
		l := invented.Lognormal(50_000, 400, x.sigma, 8000)
		p, err := Make(l, invented.A, bucket.Config{Speeds: x.speeds})
		if err != nil {
			t.Fatal(err)
		}
		for epoch := range uint64(2) {
			s, err := bucket.Judge(l, p.Schedule(l, 7, epoch).All(), p.Cost(), x.speeds, 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %.4f of the bound, imbalance %.4f, p99 %.4f, %d steps", name, s.EpochSeconds/p.LowerBoundSeconds, s.Imbalance, s.ImbalanceP99, s.Steps)
			if s.Lost+s.Repeated+s.OutOfMemory > 0 || s.ImbalanceP99 > 1.02 {
				t.Errorf("%s: %+v", name, s)
			}
		}
		again, random := bucket.Recurrence(p, l, 1, 0)
		if again > random+.01 {
			t.Errorf("%s: %.3f meet again, %.3f in random steps", name, again, random)
		}
	}
}

func TestPackedBadInput(t *testing.T) {
	half := .5
	for want, f := range map[string]bucket.Config{
		"packed, mixing 0.5":    {Ranks: 2, Mixing: &half},
		"packed, pad to 8":      {Ranks: 2, PadTo: 8},
		"batch multiple 4":      {Ranks: 2, BatchMultiple: 4},
		"micro batches 2":       {Ranks: 2, MicroBatches: 2},
		"sample 1, of length 9": {Ranks: 2, MaxTokens: 8},
	} {
		if _, err := Make(bucket.Lengths{1, 9, 3}, invented.A, f); !errors.Is(err, bucket.ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}

// What a plan says of a step is what the predicted epoch, that of seed 0, has: one batch a rank.
func TestStepSize(t *testing.T) {
	l := invented.Lognormal(5000, 100, 1, 1000)
	p, err := Make(l, tokens{invented.A, 4000}, bucket.Config{Speeds: []float64{1, 1, 1, 3}})
	if err != nil {
		t.Fatal(err)
	}
	steps := p.Schedule(l, 0, 0).Len()
	of := p.Of(l)
	samples, all := of.StepSamples, of.StepTokens
	want := float64(sum(l, indices(len(l)))) / float64(steps)
	if p.Steps != steps || math.Abs(samples*float64(steps)-float64(len(l))) > 1e-6 || math.Abs(all-want) > 1e-6*want {
		t.Errorf("%d steps of %d, %v samples and %v tokens, want %v", p.Steps, steps, samples, all, want)
	}
	for rank, n := range p.StepBatches() {
		if n != 1 {
			t.Errorf("rank %d has %d batches", rank, n)
		}
	}
}

// Samples that fit nowhere are left out on request: no batch has one, none stands for an idle rank, and the others all come.
func TestSkip(t *testing.T) {
	l := append(bucket.Lengths{900, 9}, invented.Lognormal(300, 50, .5, 200)...)
	p, err := Make(l, tokens{invented.A, 500}, bucket.Config{Ranks: 2, Overlong: bucket.Skip})
	if err != nil {
		t.Fatal(err)
	}
	s := p.Schedule(l, 1, 0)
	h, err := p.Header(s, 1, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	shortest := 1
	for i, n := range l {
		if n < l[shortest] {
			shortest = i
		}
	}
	score, err := bucket.Judge(l, s.All(), p.Cost(), p.Speeds, 0, nil)
	if err != nil || score.Lost != 1 || score.Repeated+score.OutOfMemory != 0 || h.Skipped != 1 || h.Idle != shortest {
		t.Errorf("%+v, %v; %+v, the shortest is %d", score, err, h, shortest)
	}
}
