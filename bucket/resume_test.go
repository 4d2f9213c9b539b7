package bucket_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/bucket"
	"evenkeel/bucket/stepcost"
	"evenkeel/internal/badinput"
)

// A job whose ranks change again and again, known by what its files say alone: every sample comes once, those that are left out excepted, and who resumes with
// the same ranks reads the same lines.
func TestChangingRanks(t *testing.T) {
	if checks := flag.Lookup("rapid.checks"); os.Getenv("EVENKEEL_SLOW") == "" {
		all := checks.Value.String()
		t.Cleanup(func() { _ = checks.Value.Set(all) })
		if err := checks.Value.Set("10"); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		l := make(bucket.Lengths, rapid.IntRange(1, 400).Draw(t, "samples"))
		for i := range l {
			l[i] = rapid.Uint32Range(1, 60).Draw(t, "length")
		}
		overlong := rapid.SampledFrom([]string{bucket.Refuse, bucket.Skip, bucket.Truncate}).Draw(t, "overlong")
		longest := 60
		if overlong != bucket.Refuse {
			longest = 40 // what memory holds
			l[0] = 1
		}
		mixing := rapid.SampledFrom([]float64{0, .01, .2, 1}).Draw(t, "mixing")
		var table stepcost.Table
		for _, n := range []int{1, 10, longest} {
			for _, b := range []int{1, 2, 80 / n} {
				if k := len(table); b > 0 && (k == 0 || table[k-1].Length != n || table[k-1].Batch < b) {
					table = append(table, stepcost.Trial{Length: n, Batch: b, Seconds: .1 + .01*float64(n*b), PeakBytes: int64(n * b)})
				}
			}
		}
		if longest == 40 {
			table = append(table, stepcost.Trial{Length: 41, Batch: 1, OutOfMemory: true})
		}
		c, err := stepcost.New(table, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := bucket.Config{Ranks: rapid.IntRange(1, 4).Draw(t, "ranks"), Mixing: &mixing, Overlong: overlong}
		p, err := bucket.Make(l, c, f)
		if err != nil {
			t.Skip(err)
		}
		seen, skipped, batched := make([]int, len(l)), 0, 0.0 // batched: tokens
		for _, v := range l {
			if overlong == bucket.Skip && v > 40 {
				skipped++
			} else {
				batched += float64(min(int(v), p.Limit))
			}
		}
		state := bucket.State{Data: p.Data, Seed: 5, Epoch: 2}
		for n := 0; ; n++ {
			speeds := rapid.SliceOfN(rapid.SampledFrom([]float64{1, 1, .5, 2}), 1, 5).Draw(t, "speeds")
			s, from, err := p.Resume(l, state, speeds)
			if err != nil {
				t.Fatal(err)
			}
			h := p.Header(s, 5, 2, from)
			if from != state.Step || h.From != from || h.Ranks != len(speeds) {
				t.Fatal(h, from)
			}
			lines := readLines(t, h, s)
			stop := h.Steps
			if n < 4 {
				stop = rapid.IntRange(from, h.Steps).Draw(t, "stop")
			}
			if h.Skipped != skipped || slices.Max(speeds) == slices.Min(speeds) && !h.Single {
				t.Fatalf("%d skipped, want %d; one batch a step: %v", h.Skipped, skipped, h.Single)
			}
			for k, line := range lines {
				if k > 0 && lines[k-1].Step == line.Step && lines[k-1].Rank == line.Rank && h.Single {
					t.Fatalf("rank %d has two batches in step %d, and the header says it has one", line.Rank, line.Step)
				}
				for _, i := range line.Samples {
					if l[i] < l[h.Idle] {
						t.Fatalf("sample %d is shorter than %d, the shortest", i, h.Idle)
					}
				}
			}
			var rest []bucket.Line
			for _, line := range lines {
				if line.Step >= stop {
					rest = append(rest, line)
					continue
				}
				tokens := 0
				for _, i := range line.Samples {
					seen[i]++
					tokens += min(int(l[i]), p.Limit)
				}
				// Every sample, and every token, of the epoch moves the model alike, whatever ranks make its step.
				sample, token := line.Weight/float64(len(line.Samples)*h.Ranks), line.TokenWeight/float64(tokens*h.Ranks)
				steps := float64(p.Steps)
				if want := steps / float64(len(l)-skipped); math.Abs(sample/want-1) > 1e-12 {
					t.Fatalf("step %d: samples weigh %v, want %v", line.Step, sample, want)
				}
				if want := steps / batched; math.Abs(token/want-1) > 1e-12 {
					t.Fatalf("step %d: tokens weigh %v, want %v", line.Step, token, want)
				}
			}
			state = through(t, h.State(stop))
			if stop == h.Steps {
				if s, from, err := p.Resume(l, state, slices.Repeat([]float64{1}, 7)); err != nil || from != stop || s.Len() > 0 {
					t.Fatalf("after the last step: %d steps from %d, %v", s.Len(), from, err)
				}
				break
			}
			again, at, err := p.Resume(l, state, speeds)
			if err != nil || at != stop {
				t.Fatal(at, err)
			}
			if h = p.Header(again, 5, 2, at); !slices.EqualFunc(readLines(t, h, again), rest, func(a, b bucket.Line) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
				t.Fatalf("resumed at step %d with the same ranks: other lines", stop)
			}
		}
		for i, n := range seen {
			if want := 1; n != want && !(overlong == bucket.Skip && l[i] > 40 && n == 0) {
				t.Fatalf("sample %d of length %d comes %d times", i, l[i], n)
			}
		}
	})
}

// readLines is a schedule as its file tells it.
func readLines(t *rapid.T, h bucket.Header, s *bucket.Schedule) (lines []bucket.Line) {
	var b bytes.Buffer
	if err := bucket.WriteSchedule(&b, h, s); err != nil {
		t.Fatal(err)
	}
	text := strings.Split(strings.TrimSpace(b.String()), "\n")
	for _, line := range text[1 : len(text)-1] {
		var l bucket.Line
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
	return lines
}

// through is a state as another process reads it.
func through(t interface{ Fatal(...any) }, s bucket.State) bucket.State {
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	out, err := bucket.ReadState(bytes.NewReader(text), "s")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestBadParts(t *testing.T) {
	l := bucket.Lognormal(500, 100, .5, 1000)
	p, err := bucket.Make(l, bucket.A, bucket.Config{Ranks: 2})
	if err != nil {
		t.Fatal(err)
	}
	h := p.Header(p.Schedule(l, 1, 0), 1, 0, 0)
	s, from, err := p.Resume(l, h.State(1), slices.Repeat([]float64{1}, 3))
	if err != nil {
		t.Fatal(err)
	}
	if h = p.Header(s, 1, 0, from); len(h.Parts) != 2 || h.Parts[0].Steps != 1 {
		t.Fatal(h.Parts)
	}
	if s, from, err = p.Resume(l, h.State(1), slices.Repeat([]float64{1}, 4)); err != nil {
		t.Fatal(err)
	}
	if again := p.Header(s, 1, 0, from); len(again.Parts) != 2 || again.Parts[1].Ranks != 4 {
		t.Error("ranks that made no step leave a part:", again.Parts)
	}
	good := h.State(2)
	for want, f := range map[string]func(*bucket.State){
		"data":                         func(s *bucket.State) { s.Data = "x" },
		"another plan":                 func(s *bucket.State) { s.Plan = "x" },
		"step 3; its parts have 2":     func(s *bucket.State) { s.Step = 3 },
		"part 1 has 2 ranks, 3 speeds": func(s *bucket.State) { s.Parts[1].Ranks = 2 },
		"2 speeds and -1 steps":        func(s *bucket.State) { s.Parts[0].Steps = -1 },
		"at step 1 is planned":         func(s *bucket.State) { s.Parts[1].Plan = "x" },
		"what was left at step 0":      func(s *bucket.State) { s.Parts[0].Speeds = []float64{1, 2} },
		"part 1 has 3 ranks, 1 speeds": func(s *bucket.State) { s.Parts[1].Speeds = []float64{1} },
		"speeds: rank 1 has -1":        func(s *bucket.State) { s.Parts[1].Speeds = []float64{1, -1, 1} },
		fmt.Sprintf("of %d", h.Steps):  func(s *bucket.State) { s.Step, s.Parts[1].Steps = h.Steps+1, h.Steps }, // one too many
	} {
		bad := through(t, good)
		f(&bad)
		if _, _, err := p.Resume(l, bad, slices.Repeat([]float64{1}, 4)); !badinput.Is(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, speeds := range [][]float64{nil, {1, 0}, {math.NaN()}, make([]float64, 65537)} {
		if _, _, err := p.Resume(l, good, speeds); !badinput.Is(err) {
			t.Errorf("%d ranks: %v", len(speeds), err)
		}
	}
	if _, from, err := p.Resume(l, good, slices.Repeat([]float64{1}, 4)); err != nil || from != 2 {
		t.Error(from, err)
	}
}

// What others left is no worse planned than a data set of its own: an epoch in which ranks go and come back stays near its bound.
func TestRestIsShort(t *testing.T) {
	l := bucket.Lognormal(100_000, 400, .8, 4096)
	p, err := bucket.Make(l, bucket.A, bucket.Config{Ranks: 8})
	if err != nil {
		t.Fatal(err)
	}
	state := bucket.State{Data: p.Data, Seed: 1}
	for k, ranks := range []int{8, 6, 8} {
		s, from, err := p.Resume(l, state, slices.Repeat([]float64{1}, ranks))
		if err != nil {
			t.Fatal(err)
		}
		h := p.Header(s, 1, 0, from)
		var lengths bucket.Lengths // of what is left
		var steps [][]bucket.RankBatch
		for i := range s.Len() {
			var step []bucket.RankBatch
			for _, b := range s.Step(i) {
				own := bucket.RankBatch{Rank: int(b.Rank)}
				for _, i := range s.Samples(b) {
					own.Samples = append(own.Samples, uint32(len(lengths)))
					lengths = append(lengths, l[i])
				}
				step = append(step, own)
			}
			steps = append(steps, step)
		}
		alone, err := bucket.Make(lengths, bucket.A, bucket.Config{Ranks: ranks})
		if err != nil {
			t.Fatal(err)
		}
		bound := alone.LowerBoundSeconds
		score, err := bucket.Judge(lengths, steps, bucket.A, alone.Speeds, 0)
		if err != nil || score.Lost+score.Repeated+score.OutOfMemory > 0 {
			t.Fatal(score, err)
		}
		t.Logf("part %d: %d steps, %.4f of the bound", k, h.Steps-from, score.EpochSeconds/bound)
		if r := score.EpochSeconds / bound; r > 1.03 {
			t.Errorf("part %d: %.3f of the bound", k, r)
		}
		state = h.State(from + (h.Steps-from)/2)
	}
}
