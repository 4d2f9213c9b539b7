package stepcost

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"evenkeel/bucket/internal/invented"
	"evenkeel/internal/badinput"
)

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
