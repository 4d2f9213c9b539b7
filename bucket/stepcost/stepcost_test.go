package stepcost

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/bucket/internal/invented"
	"evenkeel/internal/badinput"
)

// runner is a machine of invented.A.
type runner struct {
	trials map[int]int
	stop   int
}

func (r *runner) run(_ context.Context, length, _, batch int) (Trial, error) {
	if r.stop--; r.stop == 0 {
		return Trial{}, context.Canceled
	}
	r.trials[length]++
	return Trial{Seconds: invented.A.Seconds(length, batch), OutOfMemory: batch > invented.A.Cap(length), PeakBytes: 1}, nil
}

// The search needs at most 8 trials a length, and a stopped one goes on where it was.
func TestProfile(t *testing.T) {
	lengths := []int{4096, 2500, 1700, 1200, 900, 640, 430, 300, 200, 120}
	r := &runner{trials: map[int]int{}}
	all, err := Profile(t.Context(), r.run, Profiling{Lengths: lengths, MaxBatch: 2000})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for l, k := range r.trials {
		n += k
		if k > 8 {
			t.Errorf("length %d: %d trials", l, k)
		}
	}
	c, err := New(all, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lengths {
		if got, want := c.Cap(l), invented.A.Cap(l); got > want || float64(got) < .9*float64(want) {
			t.Errorf("length %d: largest batch found %d of %d", l, got, want)
		}
	}
	var kept Table
	half := &runner{trials: map[int]int{}, stop: n / 2}
	record := func(t Trial) error { kept = append(kept, t); return nil }
	if _, err := Profile(t.Context(), half.run, Profiling{Lengths: lengths, MaxBatch: 2000, Record: record}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	rest := &runner{trials: map[int]int{}}
	again, err := Profile(t.Context(), rest.run, Profiling{Lengths: lengths, MaxBatch: 2000, Done: kept})
	if err != nil || len(again) != len(all) {
		t.Fatal(len(again), len(all), err)
	}
	for i := range all {
		if again[i] != all[i] {
			t.Fatal(again[i], all[i])
		}
	}
}

// A table that no formula describes is interpolated.
func TestSteps(t *testing.T) {
	var table Table
	for _, l := range []int{100, 200, 400, 800} {
		for b := 1; b*l <= 16000; b += max(1, b/8) {
			s := .01 * math.Ceil(float64(b*l)/3000)
			table = append(table, Trial{Length: l, Batch: b, Seconds: s})
		}
	}
	c, err := New(table, 0)
	if err != nil {
		t.Fatal(err)
	}
	if c.Smoothed() != "isotonic" {
		t.Error(c.Smoothed())
	}
}

// Where the device computes whole tiles, their size is found from 8 trials a length, with and without noise, and the most efficient batches fill
// them. Noise alone brings none in.
func TestTiles(t *testing.T) {
	for _, c := range []struct {
		tile  int
		noise float64
		want  int
	}{{4096, 0, 4096}, {1024, 0, 1024}, {3000, 0, 0}, {4096, .02, 4096}, {1, 0, 0}, {1, .05, 0}, {1, .2, 0}} {
		r := rand.New(rand.NewPCG(1, 2))
		truth := func(l, b int) float64 { return .08 + 4e-5*float64((l*b+c.tile-1)/c.tile*c.tile) }
		var table Table
		for l := 128; l <= 4096; l += 256 {
			for k := 1; k <= 8; k++ {
				b := max(1, invented.A.Cap(l)*k/8)
				if n := len(table); n > 0 && table[n-1].Length == l && table[n-1].Batch == b {
					continue
				}
				table = append(table, Trial{Length: l, Batch: b, Seconds: truth(l, b) * math.Exp(c.noise*r.NormFloat64())})
			}
		}
		m, err := New(table, 0)
		if err != nil || m.Tile() != c.want {
			t.Errorf("tiles of %d, noise %v: %d found, %v", c.tile, c.noise, m.Tile(), err)
			continue
		}
		if c.noise > 0 || c.want == 0 {
			continue
		}
		for _, l := range []int{130, 1000, 3333} {
			best, rate := 0, math.Inf(1)
			for b := 1; b <= m.Cap(l); b++ {
				if s := m.Seconds(l, b); math.Abs(s/truth(l, b)-1) > 1e-6 {
					t.Fatalf("length %d, batch %d: %v s, want %v", l, b, s, truth(l, b))
				} else if s/float64(b) < rate*(1-1e-12) {
					best, rate = b, s/float64(b)
				}
			}
			if !slices.Contains(m.Breaks(l), best) && best != m.Cap(l) {
				t.Errorf("length %d: the best batch %d is no break of %v", l, best, m.Breaks(l))
			}
		}
	}
}

// A clean table of a formula gives the formula back, between its lengths too.
func TestCleanTable(t *testing.T) {
	var table Table
	for _, l := range []int{100, 300, 1000, 4000} {
		for b := 1; b <= invented.A.Cap(l); b *= 2 {
			bl := float64(l * b)
			table = append(table, Trial{Length: l, Batch: b, Seconds: invented.A.Seconds(l, b), PeakBytes: int64(bl * (1 + float64(l)/invented.A.Room))})
		}
	}
	c, err := New(table, 65536)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []int{150, 600, 2500} {
		b := invented.A.Cap(l)
		if got, want := c.Seconds(l, b), invented.A.Seconds(l, b); math.Abs(got/want-1) > 1e-6 || c.Cap(l) > b || c.Cap(l) < b*97/100 {
			t.Errorf("length %d: %v s, want %v; cap %d of %d", l, got, want, c.Cap(l), b)
		}
	}
}

// Isotonic smoothing leaves what rises alone and makes everything rise.
func TestSmooth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		y := rapid.SliceOfN(rapid.Float64Range(0, 9), 1, 12).Draw(t, "y")
		v := isotonic(y)
		sum := 0.0
		for i := range v {
			sum += v[i] - y[i]
			if i > 0 && v[i] < v[i-1]-1e-12 {
				t.Fatal("falls")
			}
		}
		if math.Abs(sum) > 1e-9 || slices.IsSorted(y) && !slices.Equal(v, y) {
			t.Fatal(y, v)
		}
	})
}

const smallTable = TableHeader + "\n5,1,0.1,10\n5,2,0.15,20\n10,1,0.16,20\n10,2,,\n"

func TestReadTableRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"": "no trials", "a,b\n": "t:1: header", TableHeader + "\n0,1,1,\n": `t:2: length "0"`, TableHeader + "\n1,1,-1,\n": `seconds "-1"`,
		TableHeader + "\n1,1,1,\n1,1,2,\n": "is in line 2 already",
	} {
		if _, err := ReadTable(strings.NewReader(text), "t"); !badinput.Is(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func FuzzReadTable(f *testing.F) {
	f.Add([]byte(smallTable))
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := ReadTable(bytes.NewReader(data), "t")
		if err != nil {
			return
		}
		c, err := New(table, 0)
		if err != nil {
			return
		}
		for _, r := range table {
			if s := c.Seconds(r.Length, r.Batch); !(s > 0) {
				t.Fatalf("length %d, batch %d takes %v s", r.Length, r.Batch, s)
			}
		}
	})
}
