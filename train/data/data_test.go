package data

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestDigits(t *testing.T) {
	d, err := Digits()
	if err != nil {
		t.Fatal(err)
	}
	inputs, targets, classes, tokens := d.Shape()
	if d.Len() != 1797 || inputs != 64 || targets != 1 || classes != 10 || tokens != 0 {
		t.Fatalf("%d samples of %d inputs, %d targets, %d classes, %d tokens", d.Len(), inputs, targets, classes, tokens)
	}
	count := make([]int, 10)
	x, y := make([]float32, 64), make([]int32, 1)
	for i := range d.Len() {
		d.Sample(i, x, y)
		count[y[0]]++
		if slices.Min(x) < 0 || slices.Max(x) > 1 {
			t.Fatalf("sample %d: pixels from %v to %v", i, slices.Min(x), slices.Max(x))
		}
	}
	if want := []int{178, 182, 177, 183, 181, 182, 181, 179, 174, 180}; !slices.Equal(count, want) { // UCI's description
		t.Errorf("images of each digit %v, want %v", count, want)
	}
	training, held := Split(d, 5)
	if training.Len()+held.Len() != d.Len() || held.Len() != 359 {
		t.Errorf("%d + %d samples", training.Len(), held.Len())
	}
	z := make([]float32, 64)
	held.Sample(0, x, y)
	d.Sample(4, z, y)
	if !slices.Equal(x, z) {
		t.Error("the first that is held out is not the fifth")
	}
}

func TestCSV(t *testing.T) {
	c, err := CSV(strings.NewReader("height,width,class\n1,5,0\n3,5,2\n"), "t.csv")
	if err != nil {
		t.Fatal(err)
	}
	x, y := make([]float32, 2), make([]int32, 1)
	c.Sample(1, x, y)
	if c.Len() != 2 || x[0] != 1 || x[1] != 0 || y[0] != 2 {
		t.Errorf("%d samples, %v %v", c.Len(), x, y)
	}
	for text, want := range map[string]string{
		"":                 "no samples",
		"1\n2\n":           "one column",
		"a,b\n1,x\n":       `t.csv: line 2, column 2: "x" is no class`,
		"1,2\n1,-1\n":      `line 2, column 2: "-1" is no class`,
		"1,2\nx,1\n":       `line 2, column 1: "x" is not a number`,
		"1,2\nNaN,1\n":     "is not a number",
		"1,2\n1,2,3\n":     "wrong number of fields",
		"1,2\n1,999999999": "is no class",
		"a,b\n":            "no samples",
	} {
		if _, err := CSV(strings.NewReader(text), "t.csv"); !errors.Is(err, errFormat) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestText(t *testing.T) {
	s, err := NewText(strings.NewReader("hällo wörld"), "t", 4)
	if err != nil {
		t.Fatal(err)
	}
	x, y := make([]float32, 4), make([]int32, 4)
	s.Sample(1, x, y)
	var in, out []rune
	for i := range x {
		in, out = append(in, s.characters[int(x[i])]), append(out, s.characters[y[i]])
	}
	if s.Len() != 2 || string(in) != "o wö" || string(out) != " wör" {
		t.Errorf("%d samples, %q then %q", s.Len(), string(in), string(out))
	}
	for _, bad := range []string{"", "abcd", "abcde\xff"} {
		if _, err := NewText(strings.NewReader(bad), "t", 4); !errors.Is(err, errFormat) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestSynthetic(t *testing.T) {
	s, err := NewSynthetic(1000, 20, 3, 9)
	if err != nil {
		t.Fatal(err)
	}
	x, again, y := make([]float32, 20), make([]float32, 20), make([]int32, 1)
	near := 0
	for i := range s.Len() {
		s.Sample(i, x, y)
		s.Sample(i, again, y)
		if !slices.Equal(x, again) {
			t.Fatal("a sample changed")
		}
		best, least := 0, math.Inf(1)
		for c, centre := range s.centres {
			var d float64
			for j := range x {
				d += float64((x[j] - centre[j]) * (x[j] - centre[j]))
			}
			if d < least {
				best, least = c, d
			}
		}
		if best == int(y[0]) {
			near++
		}
	}
	if near < 800 {
		t.Errorf("%d of 1000 are nearest to their class", near)
	}
	if _, err := NewSynthetic(0, 1, 1, 1); !errors.Is(err, errFormat) {
		t.Error(err)
	}
}

func FuzzCSV(f *testing.F) {
	f.Add("a,b\n1,2\n")
	f.Add("1,2,3\n4,5,6")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := CSV(strings.NewReader(text), "fuzz")
		if err != nil {
			if !errors.Is(err, errFormat) {
				t.Fatal(err)
			}
			return
		}
		inputs, _, classes, _ := c.Shape()
		x, y := make([]float32, inputs), make([]int32, 1)
		for i := range c.Len() {
			c.Sample(i, x, y)
			for _, v := range x {
				if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
					t.Fatalf("sample %d: %v", i, x)
				}
			}
			if y[0] < 0 || int(y[0]) >= classes {
				t.Fatalf("class %d of %d", y[0], classes)
			}
		}
	})
}

func FuzzText(f *testing.F) {
	f.Add("hello", 2)
	f.Fuzz(func(t *testing.T, text string, length int) {
		s, err := NewText(strings.NewReader(text), "fuzz", length)
		if err != nil {
			return
		}
		x, y := make([]float32, length), make([]int32, length)
		var back []rune
		for i := range s.Len() {
			s.Sample(i, x, y)
			for _, v := range x {
				back = append(back, s.characters[int(v)])
			}
		}
		if !strings.HasPrefix(text, string(back)) {
			t.Fatalf("%q became %q", text, string(back))
		}
	})
}
