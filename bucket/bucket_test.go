package bucket

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// formula is a Cost with t = a + b BL + c BL^2 and memory BL(1+L/m) <= 65536.
type formula struct{ a, b, c, m float64 }

func (f formula) Seconds(l, n int) float64 {
	bl := float64(l) * float64(n)
	return f.a + f.b*bl + f.c*bl*float64(l)
}
func (f formula) Cap(l int) int { return int(65536 / (float64(l) * (1 + float64(l)/f.m))) }

var (
	costA = formula{.08, 4e-5, 4e-9, 8192}
	costB = formula{.3, 4e-5, 8e-9, 16384}
)

func lognormal(n int, median, sigma, limit float64) Lengths {
	r := rand.New(rand.NewPCG(1, 2))
	l := make(Lengths, n)
	for i := range l {
		l[i] = uint32(min(limit, max(1, math.Round(median*math.Exp(sigma*r.NormFloat64())))))
	}
	return l
}

// The targets on settings A and B, and on unequal ranks.
func TestTargets(t *testing.T) {
	a, b := lognormal(1000000, 400, .8, 4096), lognormal(300000, 800, 1.2, 16384)
	for _, c := range []struct {
		name   string
		l      Lengths
		cost   Cost
		config Config
		over   float64
	}{
		{"A", a, costA, Config{Ranks: 8}, 1.005}, {"B", b, costB, Config{Ranks: 8}, 1.005},
		{"A unequal", a, costA, Config{Speeds: []float64{1, 2, 4}}, 1.01}, {"B unequal", b, costB, Config{Speeds: []float64{1, 2, 4}}, 1.01},
	} {
		p, err := Make(c.l, c.cost, c.config)
		if err != nil {
			t.Fatal(err)
		}
		score, err := Judge(c.l, p.Schedule(c.l, 1, 1).All(), c.cost, p.Speeds, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		if score.EpochSeconds > c.over*p.LowerBoundSeconds || score.Imbalance > 1.002 || score.ImbalanceP99 > 1.01 || score.Padding > .001 ||
			score.OutOfMemory+score.Lost+score.Repeated > 0 || math.Abs(p.EpochSeconds/score.EpochSeconds-1) > .01 {
			t.Errorf("%s: bound %v, predicted %v, got %+v", c.name, p.LowerBoundSeconds, p.EpochSeconds, score)
		}
	}
}

// Any data, any mode, any ranks: every sample once, memory never exceeded, nothing below
// the bound, the same seed and epoch the same order.
func TestEverySampleOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Lengths(rapid.SliceOfN(rapid.Uint32Range(1, 300), 1, 400).Draw(t, "lengths"))
		speeds := rapid.SliceOfN(rapid.Float64Range(.3, 5), 1, 5).Draw(t, "speeds")
		cost := formula{.1, 1e-4, 1e-8, float64(rapid.IntRange(1, 1000).Draw(t, "m"))}
		mode := rapid.SampledFrom([]string{Auto, Sorted, Mixed, Same}).Draw(t, "mode")
		overlong := rapid.SampledFrom([]string{Skip, Truncate}).Draw(t, "overlong")
		p, err := Make(l, cost, Config{Speeds: speeds, Mode: mode, Overlong: overlong})
		if errors.Is(err, ErrInput) {
			t.Skip()
		}
		if err != nil {
			t.Fatal(err)
		}
		s := p.Schedule(l, 3, 4)
		limit := 0
		if overlong == Truncate {
			limit = p.Limit
		}
		score, err := Judge(l, s.All(), cost, speeds, limit, nil)
		if err != nil || score.Lost != p.Skipped || score.Repeated+score.OutOfMemory > 0 {
			t.Fatalf("%v: %+v, skipped %d", err, score, p.Skipped)
		}
		if score.EpochSeconds < p.LowerBoundSeconds*(1-1e-9) {
			t.Fatalf("%v is below the bound %v", score.EpochSeconds, p.LowerBoundSeconds)
		}
		again := p.Schedule(l, 3, 4)
		for i := range s.Len() {
			for k, b := range again.First(i) { // without the whole sort
				if !slices.Equal(b, s.Samples(s.Step(i)[k])) {
					t.Fatalf("step %d differs when drawn alone", i)
				}
			}
		}
	})
}

// The search finds what trying every anchor by the definition finds.
func TestAnchorSearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 5).Draw(t, "buckets")
		ranks := rapid.IntRange(1, 4).Draw(t, "ranks")
		counts, pts := make([]int, n), make([][]point, n)
		all := []float64{}
		for b := range pts {
			counts[b] = rapid.IntRange(1, 200).Draw(t, "count")
			for k := range rapid.IntRange(1, 6).Draw(t, "points") {
				s := float64(rapid.IntRange(1, 20).Draw(t, "seconds"))
				pts[b] = append(pts[b], point{k + 1, s})
				all = append(all, s)
			}
			slices.SortStableFunc(pts[b], func(x, y point) int { return int(x.seconds - y.seconds) })
		}
		best := math.Inf(1)
		for _, T := range all {
			sum, feasible := 0.0, true
			for b, p := range pts {
				size, seconds := 0, -1.0
				for _, q := range p {
					if q.seconds <= T && (q.seconds > seconds || q.seconds == seconds && q.batch > size) {
						size, seconds = q.batch, q.seconds
					}
				}
				if feasible = feasible && size > 0; feasible {
					sum += math.Ceil(float64(counts[b])/float64(size*ranks)) * seconds
				}
			}
			if feasible {
				best = min(best, sum)
			}
		}
		got, ok := searchAnchor(counts, pts, ranks, true)
		if !ok || math.Abs(got.seconds-best) > 1e-9 {
			t.Fatalf("got %v, want %v", got.seconds, best)
		}
	})
}

func tableOf(c Cost, lengths []int, noise float64) Table {
	r := rand.New(rand.NewPCG(5, 6))
	var t Table
	for _, l := range lengths {
		for b := 1; ; b *= 2 {
			if b > c.Cap(l) {
				t = append(t, Trial{Length: l, Batch: b, OutOfMemory: true})
				break
			}
			t = append(t, Trial{Length: l, Batch: b, Seconds: c.Seconds(l, b) * (1 + noise*r.NormFloat64()), PeakBytes: int64(float64(b*l) * (1 + float64(l)/8192))})
		}
	}
	return t
}

// At 5% timing noise the realised epoch is within 1% of the one planned without noise,
// and predicted within 1%.
func TestNoise(t *testing.T) {
	l := lognormal(300000, 400, .8, 4096)
	lengths := []int{16, 32, 64, 128, 256, 512, 1024, 2048, 4096}
	var epochs []float64
	for _, noise := range []float64{0, .05} {
		c, err := NewCost(tableOf(costA, lengths, noise), 65536)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Make(l, c, Config{Ranks: 8})
		if err != nil {
			t.Fatal(err)
		}
		score, err := Judge(l, p.Schedule(l, 0, 0).All(), costA, p.Speeds, 0, nil)
		if err != nil || score.OutOfMemory > 0 {
			t.Fatal(err, score)
		}
		if r := p.EpochSeconds / score.EpochSeconds; math.Abs(r-1) > .01 {
			t.Errorf("noise %v (%s): predicted %v, realised %v", noise, c.Smoothed(), p.EpochSeconds, score.EpochSeconds)
		}
		epochs = append(epochs, score.EpochSeconds)
	}
	if epochs[1] > 1.01*epochs[0] {
		t.Errorf("realised %v with noise, %v without", epochs[1], epochs[0])
	}
}

func TestFiles(t *testing.T) {
	l := lognormal(5000, 100, .8, 512)
	c, err := NewCost(tableOf(costA, []int{16, 64, 256, 512}, 0), 65536)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Make(l, c, Config{Ranks: 3})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	q, err := ReadPlan(bytes.NewReader(text), "plan", l)
	if err != nil || q.EpochSeconds != p.EpochSeconds {
		t.Fatalf("read back: %v", err)
	}
	if _, err := ReadPlan(bytes.NewReader(text), "plan", l[1:]); !errors.Is(err, ErrInput) {
		t.Errorf("other data: got %v", err)
	}
	var out bytes.Buffer
	if err := q.WriteSchedule(&out, q.Schedule(l, 1, 2), State{Seed: 1, Epoch: 2}, nil); err != nil {
		t.Fatal(err)
	}
	_, steps, err := ReadSchedule(bytes.NewReader(out.Bytes()), "schedule")
	if err != nil {
		t.Fatal(err)
	}
	if s, err := Judge(l, steps, c, p.Speeds, 0, nil); err != nil || s.Lost+s.Repeated > 0 {
		t.Errorf("got %+v, %v", s, err)
	}
	for _, bad := range [][]byte{bytes.Replace(out.Bytes(), []byte(`"samples":[`), []byte(`"samples":[1,`), 1), out.Bytes()[:out.Len()/2]} {
		_, steps, err := ReadSchedule(bytes.NewReader(bad), "schedule")
		if err == nil {
			_, err = Judge(l, steps, c, p.Speeds, 0, nil)
		}
		if !errors.Is(err, ErrInput) {
			t.Errorf("a damaged schedule: got %v", err)
		}
	}
	state := fmt.Sprintf(`{"version":1,"data":"%s","ranks":4,"seed":1,"epoch":2,"step":0}`, p.Data)
	if _, err := ReadState([]byte(state), "state", p); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{strings.Replace(state, `"step":0`, `"step":1`, 1), strings.Replace(state, p.Data, "x", 1), "{"} {
		if _, err := ReadState([]byte(bad), "state", p); !errors.Is(err, ErrInput) {
			t.Errorf("%s: got %v", bad, err)
		}
	}
}

func TestReadLengths(t *testing.T) {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, _ = w.Write([]byte("3\n4\n"))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text string
		o    LengthsOptions
		want string
	}{
		{"5\n6\n", LengthsOptions{}, "[5 6]"}, {"5\r\n\n6", LengthsOptions{}, "[5 6]"}, {"n\n5\n", LengthsOptions{}, "[5]"}, {z.String(), LengthsOptions{}, "[3 4]"},
		{"a,b\n1,2\n3,4\n", LengthsOptions{Column: "b"}, "[2 4]"}, {"a,b\n1,2\n", LengthsOptions{Column: "a,b"}, "[3]"},
		{"a,b\n1,2\n", LengthsOptions{Column: "1,2", Pair: "max"}, "[2]"}, {"s\n1.231\n", LengthsOptions{Scale: 100}, "[124]"},
		{"", LengthsOptions{}, "f: no lengths"}, {"5\n0\n", LengthsOptions{}, "f:2: field 1: length 0 is below 1"}, {"5\n-1\n", LengthsOptions{}, "f:2: field 1: length -1 is below 1"},
		{"5\nx\n", LengthsOptions{}, `f:2: field 1: length "x" is not a number`}, {"a\n", LengthsOptions{Column: "b"}, `f:1: no column "b"; there are: a`},
		{"1.5\n", LengthsOptions{}, `f:1: field 1: length "1.5" is not a whole number; give a scale`},
	} {
		l, err := ReadLengths(strings.NewReader(c.text), "f", c.o)
		got := fmt.Sprint([]uint32(l))
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q %+v: got %s, want %s", c.text, c.o, got, c.want)
		}
	}
}

// fits runs what the formula allows.
type fits struct{ formula }

func (f fits) Try(_ context.Context, l, b int) (Trial, error) {
	return Trial{Length: l, Batch: b, Seconds: f.Seconds(l, b), OutOfMemory: b > f.Cap(l)}, nil
}

func TestProfile(t *testing.T) {
	var got Table
	lengths := []int{64, 128, 256, 512, 1024, 2048, 4096}
	add := func(x Trial) error { got = append(got, x); return nil }
	if err := Profile(context.Background(), fits{costA}, Bisect, lengths, []int{1024}, nil, add); err != nil {
		t.Fatal(err)
	}
	trials, best := map[int]int{}, map[int]int{}
	for _, x := range got {
		trials[x.Length]++
		if !x.OutOfMemory {
			best[x.Length] = max(best[x.Length], x.Batch)
		}
	}
	for _, l := range lengths {
		if trials[l] > 8 || float64(best[l]) < .8*float64(min(1024, costA.Cap(l))) {
			t.Errorf("length %d: %d trials, %d of %d", l, trials[l], best[l], costA.Cap(l))
		}
	}
	n := len(got)
	if err := Profile(context.Background(), fits{costA}, Bisect, lengths, []int{1024}, got, add); err != nil || len(got) != n {
		t.Errorf("resuming tried again: %v", err)
	}
}

func FuzzReadLengths(f *testing.F) {
	f.Add([]byte("a,b\n1,2\n"), "a,b")
	f.Add([]byte{0x1f, 0x8b, 0}, "")
	f.Fuzz(func(t *testing.T, text []byte, column string) {
		l, err := ReadLengths(bytes.NewReader(text), "f", LengthsOptions{Column: column})
		if err == nil && (len(l) == 0 || slices.Min(l) < 1) {
			t.Error("no or zero lengths without an error")
		}
	})
}

func FuzzReadTable(f *testing.F) {
	f.Add([]byte("length,batch,seconds,peak_bytes\n1,2,.5,\n1,4,,\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if x, err := ReadTable(bytes.NewReader(text), "f"); err == nil {
			if c, err := NewCost(x, 0); err == nil {
				_, _ = Make(Lengths{1, 2, 3}, c, Config{Ranks: 2})
			}
		}
	})
}

func FuzzReadPlan(f *testing.F) {
	l := Lengths{1, 2, 3}
	f.Add([]byte(`{"version":1,"data":"` + l.Checksum() + `","ranks":1,"table":[{"length":3,"batch":1,"seconds":1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) { _, _ = ReadPlan(bytes.NewReader(text), "f", l) })
}

func FuzzReadSchedule(f *testing.F) {
	f.Add([]byte("{\"evenkeel_schedule\":1,\"ranks\":2}\n{\"step\":0,\"rank\":1,\"samples\":[0,1]}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if h, steps, err := ReadSchedule(bytes.NewReader(text), "f"); err == nil {
			_, _ = Judge(Lengths{1, 2, 3}, steps, costA, make([]float64, h.Ranks), h.Limit, nil)
		}
	})
}

func BenchmarkPlan1M(b *testing.B) {
	l := lognormal(1000000, 400, .8, 4096)
	for b.Loop() {
		p, err := Make(l, costA, Config{Ranks: 8})
		if err != nil {
			b.Fatal(err)
		}
		p.Schedule(l, 1, 1).Fill()
	}
}
