package stepcost

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/bucket/internal/input"
)

// coder is a device of two lengths: a + B (b + c S + d T + e S^2 + f T^2 + g S T), memory for so many tokens.
type coder struct {
	a, b, c, d, e, f, g, noise float64
	memory                     int
	r                          *rand.Rand
	trials                     map[[2]int]int
}

func (q *coder) seconds(s, t, n int) float64 {
	x, y := float64(s), float64(t)
	return q.a + float64(n)*(q.b+q.c*x+q.d*y+q.e*x*x+q.f*y*y+q.g*x*y)
}

func (q *coder) run(_ context.Context, s, t, n int) (Trial, error) {
	q.trials[[2]int{s, t}]++
	noise := 1.0
	if q.noise > 0 {
		noise = math.Exp(q.noise * q.r.NormFloat64())
	}
	return Trial{Seconds: q.seconds(s, t, n) * noise, PeakBytes: int64(1000 + 10*n*(s+2*t)), OutOfMemory: n*(s+2*t) > q.memory}, nil
}

func profiled(t *testing.T, q *coder) Table {
	t.Helper()
	q.r, q.trials = rand.New(rand.NewPCG(1, 1)), map[[2]int]int{}
	p := Profiling{MaxBatch: 1 << 14}
	for _, s := range []int{20, 100, 400, 1000} {
		for _, g := range []int{15, 60, 250, 700} {
			p.Lengths, p.Targets = append(p.Lengths, s), append(p.Targets, g)
		}
	}
	table, err := Profile(t.Context(), q.run, p)
	if err != nil {
		t.Fatal(err)
	}
	for at, n := range q.trials {
		if n > 8 {
			t.Errorf("%v: %d trials", at, n)
		}
	}
	if len(q.trials) != 16 || !table.Pairs() {
		t.Fatal(len(q.trials), table.Pairs())
	}
	return table
}

// Where the device is of the formula, it is found, memory too; with noise nearly.
func TestPairModel(t *testing.T) {
	for _, q := range []coder{
		{a: .02, b: 1e-4, c: 4e-5, d: 6e-5, e: 4e-8, f: 6e-8, g: 5e-8, memory: 20000},
		{a: .1, c: 4e-5, d: 6e-5, memory: 8000},
		{a: .02, c: 4e-5, d: 6e-5, g: 5e-8, memory: 20000, noise: .05},
	} {
		table := profiled(t, &q)
		c, err := NewPair(table, 0)
		if err != nil {
			t.Fatal(err)
		}
		close := 1e-6 + q.noise
		for _, s := range []int{10, 33, 150, 777, 1000} {
			for _, g := range []int{5, 70, 333, 700} {
				for _, n := range []int{1, 7, 60} {
					if got, want := c.Seconds(s, g, n), q.seconds(s, g, n); math.Abs(got/want-1) > close {
						t.Errorf("%d, %d, %d: %v, want %v", s, g, n, got, want)
					}
				}
				if got, want := c.Cap(s, g), q.memory/(s+2*g); got > want || float64(got) < .94*float64(want)-1 {
					t.Errorf("%d, %d: %d fit, want %d", s, g, got, want)
				}
			}
		}
		if c.Cap(1001, 5) != 0 || c.Cap(5, 701) != 0 {
			t.Error("longer than every trial, and fits")
		}
		if c.time.max > 4*close {
			t.Error(c.time.max)
		}
		h, ok := HeldOut(table)
		if !ok || h.Median > close || h.Target == 0 {
			t.Error(h, ok)
		}
	}
}

// Without peaks a batch fits if one ran that was as large in all three, and does not if one ran out that was as small.
func TestPairMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table Table
		for _, s := range []int{3, 6, 9} {
			for _, g := range []int{2, 5, 8} {
				for _, n := range []int{1, 2, 4} {
					out := rapid.IntRange(0, 3).Draw(t, "out") == 0
					table = append(table, Trial{Length: s, Target: g, Batch: n, Seconds: .1 + .01*float64(n*(s+g)), OutOfMemory: out})
				}
			}
		}
		c, err := NewPair(table, 0)
		if err != nil {
			t.Skip(err)
		}
		s, g := rapid.IntRange(1, 10).Draw(t, "source"), rapid.IntRange(1, 9).Draw(t, "target")
		want := 0
		for n := 1; n <= 4; n++ {
			fits := false
			for _, r := range table {
				if r.OutOfMemory && r.Length <= s && r.Target <= g && r.Batch <= n {
					fits = false
					break
				}
				fits = fits || !r.OutOfMemory && r.Length >= s && r.Target >= g && r.Batch >= n
			}
			bad := false
			for _, r := range table {
				bad = bad || r.OutOfMemory && r.Length <= s && r.Target <= g && r.Batch <= n
			}
			if fits && !bad {
				want = n
			}
		}
		top := [2]int{}
		for _, r := range table {
			if !r.OutOfMemory {
				top[0], top[1] = max(top[0], r.Length), max(top[1], r.Target)
			}
		}
		if s > top[0] || g > top[1] {
			want = 0
		}
		if got := c.Cap(s, g); got != want {
			t.Fatalf("%d and %d: %d fit, want %d", s, g, got, want)
		}
	})
}

func TestPairTable(t *testing.T) {
	read := func(rows string) (Table, error) { return ReadTable(strings.NewReader(pairTableHeader+"\n"+rows), "t") }
	table, err := read("9,2,1,0.5,70\n3,2,4,,\n3,2,1,0.25,\n")
	if err != nil {
		t.Fatal(err)
	}
	var back strings.Builder
	for _, r := range table {
		back.WriteString(r.Row() + "\n")
	}
	if got := back.String(); got != "3,2,1,0.25,\n3,2,4,,\n9,2,1,0.5,70\n" || table.Header() != pairTableHeader {
		t.Errorf("%q", got)
	}
	for rows, want := range map[string]string{
		"0,1,1,1,\n": `t:2: source "0"`, "1,x,1,1,\n": `t:2: target "x"`, "1,1,0,1,\n": `t:2: batch "0"`, "1,1,1,-1,\n": `seconds "-1"`, "1,1,1,1\n": "4 fields; want 5",
		"1,2,3,1,\n1,2,3,2,\n": "t:3: source 1, target 2, batch 3 is in line 2 already",
	} {
		if _, err := read(rows); !errors.Is(err, input.Err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", rows, err, want)
		}
	}
	if _, err := New(table, 0); !errors.Is(err, input.Err) || !strings.Contains(err.Error(), "--pair apart") {
		t.Error(err)
	}
	if _, err := NewPair(table, 0); !errors.Is(err, input.Err) || !strings.Contains(err.Error(), "needs at least 8") {
		t.Error(err)
	}
	if _, err := NewPair(Table{{Length: 1, Batch: 1, Seconds: 1}}, 0); !errors.Is(err, input.Err) || !strings.Contains(err.Error(), "one length") {
		t.Error(err)
	}
	if _, err := NewPair(table[1:2], 0); !errors.Is(err, input.Err) || !strings.Contains(err.Error(), "no trial that ran") {
		t.Error(err)
	}
	for want, p := range map[string]Profiling{
		"1 lengths and 2 targets": {Lengths: []int{1}, Targets: []int{1, 2}}, "length 0": {Lengths: []int{1}, Targets: []int{0}},
		"the trials before": {Lengths: []int{1}, Done: table},
	} {
		if _, err := Profile(t.Context(), nil, p); !errors.Is(err, input.Err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
