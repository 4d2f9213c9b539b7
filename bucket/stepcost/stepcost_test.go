package stepcost

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"evenkeel/internal/badinput"
)

// A clean table of a formula gives the formula back, between its lengths too.
func TestCleanTable(t *testing.T) {
	var table Table
	seconds := func(l, b int) float64 { return .08 + float64(b)*float64(l)*(4e-5+4e-9*float64(l)) }
	bytes := func(l, b int) float64 { return float64(b) * float64(l) * (1 + float64(l)/8192) }
	const memory = 65536
	for _, l := range []int{100, 300, 1000, 4000} {
		for b := 1; bytes(l, b) <= memory; b *= 2 {
			table = append(table, Trial{Length: l, Batch: b, Seconds: seconds(l, b), PeakBytes: int64(bytes(l, b))})
		}
	}
	c, err := New(table, memory)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []int{150, 600, 2500} {
		b := int(memory / bytes(l, 1))
		if got, want := c.Seconds(l, b), seconds(l, b); math.Abs(got/want-1) > 1e-6 || c.Cap(l) > b || c.Cap(l) < b*97/100 {
			t.Errorf("length %d: %v s, want %v; cap %d of %d", l, got, want, c.Cap(l), b)
		}
	}
}

// A batch that ran out of memory is never planned, whatever the formula of the peaks says.
func TestOutOfMemoryCaps(t *testing.T) {
	var table Table
	for b := 1; b <= 6; b++ {
		table = append(table, Trial{Length: 100, Batch: b, Seconds: .1 * float64(b+1), PeakBytes: int64(100 * b)})
	}
	c, err := New(append(table, Trial{Length: 100, Batch: 9, OutOfMemory: true}), 10_000)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Cap(100); got != 8 {
		t.Errorf("%d samples where 9 ran out of memory", got)
	}
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
