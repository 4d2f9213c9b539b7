package paired

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/bucket"
	"evenkeel/bucket/internal/partition"
	"evenkeel/bucket/plain"
	"evenkeel/bucket/stepcost"
)

// seq2seq is t = a + B (c S + d T + e S^2 + f T^2 + g S T) with memory for m tokens, of which one of a target counts as w.
type seq2seq struct{ a, c, d, e, f, g, m, w float64 }

func (q seq2seq) Seconds(s, t, n int) float64 {
	x, y := float64(s), float64(t)
	return q.a + float64(n)*(q.c*x+q.d*y+q.e*x*x+q.f*y*y+q.g*x*y)
}
func (q seq2seq) Cap(s, t int) int { return int(q.m / (float64(s) + q.w*float64(t))) }

var costPairs = seq2seq{.08, 4e-5, 6e-5, 4e-9, 6e-9, 4e-9, 65536, 1.5}

// translation is n pairs, of which a target is about as long as its source.
func translation(n int) (sources, targets bucket.Lengths) {
	r := rand.New(rand.NewPCG(1, 2))
	for range n {
		s := 25 * math.Exp(.6*r.NormFloat64())
		t := s * 1.1 * math.Exp(.22*r.NormFloat64())
		sources = append(sources, uint32(max(1, min(250, s))))
		targets = append(targets, uint32(max(1, min(250, t))))
	}
	return sources, targets
}

// Padded apart, an epoch is shorter than one that is planned by the longer of both, as predicted, and its samples part.
func TestPairsAreShorter(t *testing.T) {
	s, g := translation(60_000)
	l, err := New(s, g)
	if err != nil {
		t.Fatal(err)
	}
	cost := costPairs
	cost.m /= 4 // as many batches as of four times the samples
	longer := make(bucket.Lengths, len(s))
	for i := range s {
		longer[i] = max(s[i], g[i])
	}
	old, err := plain.Make(longer, longest{cost}, bucket.Config{Ranks: 8})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ mixing, ratio, again float64 }{{0, 1.09, 1}, {.2, 1.1, .15}} {
		p, err := Make(l, cost, bucket.Config{Ranks: 8, Mixing: &c.mixing})
		if err != nil {
			t.Fatal(err)
		}
		judge := func(q bucket.Planner, l bucket.Lengths) bucket.Score {
			x, err := bucket.Judge(l, q.Schedule(l, 1, 1).All(), p.Cost(), p.Speeds, 0, nil)
			if err != nil || x.Lost+x.Repeated+x.OutOfMemory > 0 {
				t.Fatal(x, err)
			}
			return x
		}
		x := judge(p, l.Kinds)
		steps := old.Schedule(longer, 1, 1)
		before, err := bucket.Judge(l.Kinds, steps.All(), p.Cost(), p.Speeds, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		again, _ := bucket.Recurrence(p, l.Kinds, 1, 1)
		ratio := x.EpochSeconds / p.LowerBoundSeconds
		t.Logf("mixing %v: %.4f of the bound, by the longer %.4f, again %.3f, padding %.3f %.3f", c.mixing, ratio, before.EpochSeconds/p.LowerBoundSeconds, again, x.SourcePadding, x.TargetPadding)
		if ratio < 1 || ratio > c.ratio || x.EpochSeconds > .98*before.EpochSeconds || again > c.again || math.Abs(p.EpochSeconds/x.EpochSeconds-1) > .02 {
			t.Errorf("mixing %v: %.4f of the bound, predicted %v, judged %+v, again %.3f", c.mixing, ratio, p.EpochSeconds, x, again)
		}
	}
}

// longest is what is believed where both lengths are one.
type longest struct{ seq2seq }

func (q longest) Seconds(l, n int) float64 { return q.seq2seq.Seconds(l, l, n) }
func (q longest) Cap(l int) int            { return q.seq2seq.Cap(l, l) }
func (longest) Breaks(int) []int           { return nil }

// smallPairs draws a table of a coder, and samples.
func smallPairs(t *rapid.T, most int) (sources, targets bucket.Lengths, c *stepcost.PairModel) {
	length := rapid.Uint32Range(1, 30)
	n := rapid.IntRange(1, most).Draw(t, "samples")
	for range n {
		sources, targets = append(sources, length.Draw(t, "source")), append(targets, length.Draw(t, "target"))
	}
	q := seq2seq{rapid.Float64Range(.01, .5).Draw(t, "a"), .01, rapid.Float64Range(0, .02).Draw(t, "d"), 1e-4, 2e-4, 1e-4, float64(rapid.IntRange(60, 400).Draw(t, "memory")), 1}
	var table stepcost.Table
	for _, s := range []int{5, 15, 32} {
		for _, g := range []int{4, 20, 32} {
			for _, b := range []int{1, 2, 3, 5, 9} {
				r := stepcost.Trial{Length: s, Target: g, Batch: b, Seconds: q.Seconds(s, g, b)}
				r.OutOfMemory = b > q.Cap(s, g)
				table = append(table, r)
			}
		}
	}
	c, err := stepcost.NewPair(table, 0)
	if err != nil {
		t.Skip(err)
	}
	return sources, targets, c
}

// Every sample comes once, in memory, with both sides padded to what they are; the score is what plain loops count; the bound holds; the file says
// the same; and other ranks go on with what is left.
func TestPairsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sources, targets, c := smallPairs(t, 120)
		f := bucket.Config{Mixing: with(rapid.SampledFrom([]float64{0, .05, .2, .5, .85, 1}).Draw(t, "mixing")), MicroBatches: rapid.IntRange(0, 1).Draw(t, "micro-batches"),
			PadTo: rapid.SampledFrom([]int{0, 1, 4}).Draw(t, "pad"), BatchMultiple: rapid.SampledFrom([]int{0, 1, 2}).Draw(t, "multiple"),
			Speeds:   rapid.SliceOfN(rapid.SampledFrom([]float64{1, 1, .9, .3, 1.5, 2}), 1, 4).Draw(t, "speeds"),
			Overlong: rapid.SampledFrom([]string{bucket.Refuse, bucket.Skip}).Draw(t, "overlong")}
		pad, multiple := max(1, f.PadTo), max(1, f.BatchMultiple)
		fits := func(i int) bool {
			return c.Cap(partition.Up(int(sources[i]), pad), partition.Up(int(targets[i]), pad)) > 0
		}
		long := 0
		for i := range sources {
			if !fits(i) {
				long++
			}
		}
		l, err := New(sources, targets)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Make(l, c, f)
		if err != nil {
			if !errors.Is(err, bucket.ErrInput) || long == 0 && multiple == 1 {
				t.Fatal(err)
			}
			return
		}
		if f.Overlong == bucket.Refuse && long > 0 || p.Skipped != long {
			t.Fatalf("%d skipped, %d too long", p.Skipped, long)
		}
		s := p.Schedule(l.Kinds, 3, 4)
		seen := make([]int, len(sources))
		epoch := 0.0
		var tokens, cells [2]float64
		for i := range s.Len() {
			took := make([]float64, len(f.Speeds))
			for _, b := range s.Step(i) {
				var source, target int
				for _, k := range s.Samples(b) {
					seen[k]++
					source, target = max(source, int(sources[k])), max(target, int(targets[k]))
					tokens[0], tokens[1] = tokens[0]+float64(sources[k]), tokens[1]+float64(targets[k])
				}
				cells[0], cells[1] = cells[0]+float64(source)*float64(b.Count), cells[1]+float64(target)*float64(b.Count)
				took[b.Rank] += c.Seconds(partition.Up(source, pad), partition.Up(target, pad), partition.Up(int(b.Count), multiple)) / f.Speeds[b.Rank]
				if int(b.Count) > c.Cap(partition.Up(source, pad), partition.Up(target, pad)) {
					t.Fatalf("%d samples of %d and %d; %d fit", b.Count, source, target, c.Cap(partition.Up(source, pad), partition.Up(target, pad)))
				}
			}
			epoch += slices.Max(took)
		}
		for i, n := range seen {
			if fits(i) != (n == 1) || n > 1 {
				t.Fatalf("sample %d comes %d times", i, n)
			}
		}
		score, err := bucket.Judge(l.Kinds, s.All(), p.Cost(), p.Speeds, 0, nil)
		if err != nil || math.Abs(score.EpochSeconds/epoch-1) > 1e-9 || math.Abs(score.SourcePadding-(1-tokens[0]/cells[0])) > 1e-9 || math.Abs(score.TargetPadding-(1-tokens[1]/cells[1])) > 1e-9 ||
			score.OutOfMemory+score.Repeated > 0 || score.Lost != long {
			t.Fatalf("%+v, %v; counted %v s", score, err, epoch)
		}
		if epoch < p.LowerBoundSeconds*(1-1e-9) {
			t.Fatalf("%v s is below the bound %v", epoch, p.LowerBoundSeconds)
		}
		checkPairBands(t, p, l)
		samePairsFromFile(t, p, l, score)
		restOfPairs(t, p, l, s, long)
	})
}

// checkPairBands counts what is printed of each range of sources by the samples of the predicted epoch.
func checkPairBands(t *rapid.T, p *Plan, l *Pairs) {
	from := 0
	s := p.Schedule(l.Kinds, 0, 0)
	for _, band := range p.Bands {
		n, target, batches, seconds := 0, 0, 0.0, 0.0
		for _, b := range s.Batches {
			var longest [2]int
			for _, i := range s.Samples(b) {
				source, g := l.Of(int(i))
				longest = [2]int{max(longest[0], source), max(longest[1], g)}
			}
			took := p.Cost().Seconds(longest[0]<<sideBits|longest[1], int(b.Count)) / p.Speeds[b.Rank]
			for _, i := range s.Samples(b) {
				if source, g := l.Of(int(i)); source > from && source <= band.Upper {
					n, target = n+1, max(target, g)
					batches, seconds = batches+1/float64(b.Count), seconds+took/float64(b.Count)
				}
			}
		}
		if n != band.Samples || target != band.Target || math.Abs(float64(band.Batch)-float64(n)/batches) > .51 || math.Abs(band.Seconds*batches/seconds-1) > 1e-9 {
			t.Fatalf("%+v from %d: %d samples, longest target %d, %v batches, %v s", band, from, n, target, batches, seconds)
		}
		from = band.Upper
	}
}

func samePairsFromFile(t *rapid.T, p *Plan, l *Pairs, want bucket.Score) {
	var plan, file bytes.Buffer
	if err := p.Write(&plan); err != nil {
		t.Fatal(err)
	}
	q, err := bucket.ReadPlan(&plan, "plan.json")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plain.Bind(q, l.Kinds); !errors.Is(err, bucket.ErrInput) {
		t.Fatal("bound to one length:", err)
	}
	bound, err := Bind(q, l)
	if err != nil {
		t.Fatal(err)
	}
	s := bound.Schedule(l.Kinds, 3, 4)
	h, err := q.Header(s, 3, 4, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := bucket.WriteSchedule(&file, h, s); err != nil {
		t.Fatal(err)
	}
	r, err := bucket.NewScheduleReader(&file, "s")
	if err != nil || !r.Header.Pairs {
		t.Fatal(r.Header, err)
	}
	if read, err := bucket.Judge(l.Kinds, r.All(), p.Cost(), p.Speeds, 0, nil); err != nil || read != want {
		t.Fatalf("from the file %+v, %v; before %+v", read, err, want)
	}
	targets := func(samples []uint32) (n int) {
		for _, i := range samples {
			_, target := l.Of(int(i))
			n += target
		}
		return n
	}
	samples, tokens, first := 0, 0, [2]float64{}
	if err := s.Lines(0, func(line bucket.Line) error {
		samples += len(line.Samples)
		tokens += targets(line.Samples)
		each := [2]float64{line.Weight / float64(len(line.Samples)), line.TokenWeight / float64(targets(line.Samples))}
		if first == [2]float64{} {
			first = each
		}
		if math.Abs(each[0]/first[0]-1) > 1e-12 || math.Abs(each[1]/first[1]-1) > 1e-12 {
			t.Fatalf("step %d: a sample and a token weigh %v, those of the first batch %v", line.Step, each, first)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if w, v := first[0]*float64(samples), first[1]*float64(tokens); math.Abs(w/float64(p.Ranks*p.Steps)-1) > 1e-12 || math.Abs(v/w-1) > 1e-12 {
		t.Fatalf("an epoch weighs %v by samples and %v by tokens, want %d ranks x %d steps", w, v, p.Ranks, p.Steps)
	}
}

// restOfPairs hands what is left after half of the steps to two ranks.
func restOfPairs(t *rapid.T, p *Plan, l *Pairs, s *bucket.Schedule, long int) {
	h, err := p.Header(s, 3, 4, 0)
	if err != nil {
		t.Fatal(err)
	}
	half := s.Len() / 2
	rest, from, err := bucket.Resume(p, l.Kinds, h.State(half), bucket.Group{Ranks: 2})
	if err != nil {
		if errors.Is(err, bucket.ErrInput) && p.BatchMultiple > 1 {
			return // what is left may not fill a multiple
		}
		t.Fatal(err)
	}
	seen := map[uint32]bool{}
	for i := range half {
		for _, b := range s.Step(i) {
			for _, k := range s.Samples(b) {
				seen[k] = true
			}
		}
	}
	if from != half {
		t.Fatal(from, half)
	}
	if err := rest.Lines(from, func(line bucket.Line) error {
		for _, k := range line.Samples {
			if seen[k] {
				t.Fatalf("sample %d comes again", k)
			}
			seen[k] = true
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if rest.Skipped != long {
		t.Fatalf("%d skipped, %d too long", rest.Skipped, long)
	}
	if len(seen) != p.Samples-long {
		t.Fatalf("%d of %d samples", len(seen), p.Samples-long)
	}
}

// No way to put a few samples into batches, on one rank, takes less than the bound; all ways are tried.
func TestPairsBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sources, targets, c := smallPairs(t, 6)
		l, err := New(sources, targets)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Make(l, c, bucket.Config{Ranks: 1, Mixing: with(0)})
		if err != nil {
			t.Skip(err)
		}
		least := math.Inf(1)
		var batches [][]int
		var try func(i int)
		try = func(i int) {
			if i == len(sources) {
				sum := 0.0
				for _, b := range batches {
					source, target := 0, 0
					for _, k := range b {
						source, target = max(source, int(sources[k])), max(target, int(targets[k]))
					}
					if len(b) > c.Cap(source, target) {
						return
					}
					sum += c.Seconds(source, target, len(b))
				}
				least = min(least, sum)
				return
			}
			for k := range batches {
				batches[k] = append(batches[k], i)
				try(i + 1)
				batches[k] = batches[k][:len(batches[k])-1]
			}
			batches = append(batches, []int{i})
			try(i + 1)
			batches = batches[:len(batches)-1]
		}
		try(0)
		if p.LowerBoundSeconds > least*(1+1e-9) || p.EpochSeconds < least*(1-1e-9) {
			t.Fatalf("bound %v, shortest %v, plan %v", p.LowerBoundSeconds, least, p.EpochSeconds)
		}
	})
}

// A batch is the longest row of samples that fits into memory and time, by trying every length of the row.
func TestTakeTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sources, targets, model := smallPairs(t, 60)
		l, err := New(sources, targets)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Make(l, model, bucket.Config{Ranks: 1})
		if err != nil {
			t.Skip(err)
		}
		all := make([]uint32, len(sources))
		for i := range all {
			all[i] = uint32(i)
		}
		r := row{cost: p.cost, kinds: l.Kinds, index: all}
		for i := range all {
			r.sides = append(r.sides, p.cost.shapes[l.Kinds[i]])
		}
		most := rapid.Float64Range(.1, 3).Draw(t, "seconds")
		pos := rapid.IntRange(1, len(sources)).Draw(t, "pos")
		n, pad := r.Take(pos, 0, most, p.cost.Cap)
		want, source, target := 1, 0, 0
		for k := 1; k <= pos; k++ {
			s, g := 0, 0
			for _, i := range all[pos-k : pos] {
				s, g = max(s, int(sources[i])), max(g, int(targets[i]))
			}
			if k > 1 && (k > model.Cap(s, g) || model.Seconds(s, g, k) > most) {
				break
			}
			want, source, target = k, s, g
		}
		if s, g := p.cost.sides(pad); n != want || s != source || g != target {
			t.Fatalf("%d padded to %d, %d; want %d to %d, %d", n, s, g, want, source, target)
		}
	})
}
