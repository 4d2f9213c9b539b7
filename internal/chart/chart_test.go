package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// gallery holds every kind, whiskers, categories, both scales and a missing title.
func gallery() Figure {
	n := 60
	x, y, low, high := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range n {
		x[i] = float64(i + 1)
		y[i] = 2 + math.Sin(x[i]/9) + x[i]/20
		low[i], high[i] = y[i]-0.4, y[i]+0.6
	}
	return Figure{Title: "Everything this package draws", Panels: []Panel{
		{Title: "Returns", XLabel: "round", YLabel: "seconds", ZeroY: true, Series: []Series{
			{Name: "mean", Kind: Line, X: x, Y: y},
			{Kind: Band, X: x, Low: low, High: high},
			{Name: "measured", Kind: Points, X: x[:9], Y: high[:9]},
			{Name: "reference", Kind: Line, X: []float64{1, 60}, Y: []float64{3, 3}, Dashed: true, Muted: true},
		}},
		{XLabel: "round", YLabel: "micro-batch", Series: []Series{
			{Name: "a100-40g", Kind: Step, X: x, Y: high}, {Name: "t4", Kind: Step, X: x, Y: low, Dashed: true},
		}},
		{Title: "Progress", YLabel: "ratio", Categories: []string{"steady", "drift", "bursts"}, Series: []Series{
			{Name: "ddqn", Kind: Bars, Y: []float64{1.01, 0.99, 0.8}, Low: []float64{1, 0.98, 0.78}, High: []float64{1.02, 1, 0.82}},
		}},
		curves(x),
		{Title: "Timeline", XLabel: "seconds", Categories: []string{"stage 0", "stage 1"}, Series: []Series{
			{Name: "forward", Kind: Boxes, X: []float64{0, 1, 1}, Y: []float64{1, 2, 2}, Low: []float64{-0.4, -0.4, 0.6}, High: []float64{0.4, 0.4, 1.4}},
			{Name: "backward", Kind: Boxes, X: []float64{2}, Y: []float64{4}, Low: []float64{0.6}, High: []float64{1.4}},
		}},
		{Title: "Front", XLabel: "goodput", YLabel: "freshness", Series: []Series{
			{Name: "ddqn", Kind: Points, X: []float64{0.7, 0.85, 0.98}, Y: []float64{0.9, 0.8, 0.5}},
			{Kind: Step, X: []float64{0.98, 0.85, 0.7}, Y: []float64{0.5, 0.8, 0.9}},
			{Name: "uniform", Kind: Points, X: []float64{0.4, 0.6}, Y: []float64{0.6, 0.3}, Dashed: true},
			{X: []float64{0.4, 0.6}, Y: []float64{0.6, 0.3}, Dashed: true},
		}},
		{XLabel: "nodes", YLabel: "µs", LogX: true, Series: []Series{{Name: "decision", Kind: Line, X: []float64{1, 10, 100, 1000}, Y: []float64{3, 20, 400, 5000}}}},
	}}
}

// curves are more lines with bands than there are colours.
func curves(x []float64) Panel {
	p := Panel{Title: "Learning curves", XLabel: "steps", YLabel: "return"}
	for k := range len(palette) + 1 {
		y, low, high := make([]float64, len(x)), make([]float64, len(x)), make([]float64, len(x))
		for i := range x {
			y[i] = 1 - math.Exp(-x[i]/float64(5+4*k))
			low[i], high[i] = y[i]-0.08, y[i]+0.06
		}
		p.Series = append(p.Series, Series{Name: fmt.Sprintf("policy %d", k), X: x, Y: y}, Series{Kind: Band, X: x, Low: low, High: high})
	}
	return p
}

func TestColours(t *testing.T) {
	keys := curves([]float64{1, 2}).colours()
	for i, k := range keys {
		if want := palette[i/2%len(palette)]; k.colour != want || k.s.Dashed != (i/2 == len(palette)) {
			t.Errorf("series %d: colour %v, want %v; dashed %v", i, k.colour, want, k.s.Dashed)
		}
	}
	one := []float64{1}
	keys = Panel{Series: []Series{{X: one, Y: one, Muted: true}, {X: one, Y: one}, {X: one, Y: one}, {Name: "a", X: one, Y: one}}}.colours()
	for i, want := range []string{muted, palette[0], palette[0], palette[1]} {
		if keys[i].colour != want {
			t.Errorf("series %d: colour %v, want %v", i, keys[i].colour, want)
		}
	}
}

// No band covers a line, whichever comes first.
func TestBandsLieBelow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.svg")
	if err := (Figure{Panels: []Panel{curves([]float64{1, 2})}}).Save(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if line, band := bytes.LastIndex(b, []byte(`stroke="#D55E00"`)), bytes.LastIndex(b, []byte("fill-opacity")); band < 0 || line < band {
		t.Errorf("the second line at byte %d, the last band at %d", line, band)
	}
}

// A line at zero goes over the bars and is in the legend.
func TestZero(t *testing.T) {
	path := filepath.Join(t.TempDir(), "z.svg")
	if err := (Figure{Panels: []Panel{{Zero: "oracle", Categories: []string{"a", "b"}, Series: []Series{{Kind: Bars, Y: []float64{1, -1}}}}}}).Save(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(b, []byte("stroke-dasharray")); n != 2 || !bytes.Contains(b, []byte(">oracle<")) {
		t.Errorf("%d dashed lines, want one in the legend and one at zero\n%s", n, b)
	}
}

func TestSaveSVG(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g.svg")
	if err := gallery().Save(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(b))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"Everything this package draws", "Returns", "ddqn", "Liberation Sans,Arial"} {
		if !bytes.Contains(b, []byte(want)) {
			t.Errorf("no %q in the SVG", want)
		}
	}
	again := filepath.Join(t.TempDir(), "again.svg")
	if err := gallery().Save(again); err != nil {
		t.Fatal(err)
	}
	if c, _ := os.ReadFile(again); !bytes.Equal(b, c) {
		t.Error("the same figure gave other bytes")
	}
}

func TestSaveErrors(t *testing.T) {
	one := []float64{1}
	ok := Figure{Panels: []Panel{{Series: []Series{{X: one, Y: one}}}}}
	with := func(p Panel) Figure { return Figure{Panels: []Panel{p}} }
	for _, c := range []struct {
		name, file string
		f          Figure
		want       error
		text       string
	}{
		{"extension", "x.pdf", ok, ErrExtension, ""},
		{"no extension", "x", ok, ErrExtension, ""},
		{"no panel", "x.svg", Figure{}, ErrData, "chart: cannot draw this data: no panel"},
		{"no series", "x.svg", with(Panel{}), ErrData, "chart: cannot draw this data: panel 1: no series"},
		{"lengths", "x.svg", with(Panel{Series: []Series{{Name: "a", X: one}}}), ErrData,
			`chart: cannot draw this data: panel 1, series 1 ("a"): 0 values of Y, want 1`},
		{"NaN", "x.svg", with(Panel{Series: []Series{{X: one, Y: []float64{math.NaN()}}}}), ErrData,
			`chart: cannot draw this data: panel 1, series 1 (""): Y[0] is NaN`},
		{"huge", "x.svg", with(Panel{Series: []Series{{X: one, Y: []float64{1e300}}}}), ErrData, ""},
		{"log of zero", "x.svg", with(Panel{LogX: true, Series: []Series{{X: []float64{0}, Y: one}}}), ErrData,
			`chart: cannot draw this data: panel 1, series 1 (""): X[0] is 0 on a logarithmic axis`},
		{"bars without categories", "x.svg", with(Panel{Series: []Series{{Kind: Bars, Y: one}}}), ErrData, ""},
		{"line among bars", "x.svg", with(Panel{Categories: []string{"a"}, Series: []Series{{X: one, Y: one}}}), ErrData, ""},
		{"boxes without categories", "x.svg", with(Panel{Series: []Series{{Kind: Boxes, X: one, Y: one, Low: one, High: one}}}), ErrData, ""},
		{"boxes without edges", "x.svg", with(Panel{Categories: []string{"a"}, Series: []Series{{Kind: Boxes, X: one, Y: one, Low: one}}}), ErrData, ""},
		{"boxes among bars", "x.svg", with(Panel{Categories: []string{"a"}, Series: []Series{{Kind: Bars, Y: one}, {Kind: Boxes, X: one, Y: one, Low: one, High: one}}}), ErrData, ""},
		{"two series of bars", "x.svg", with(Panel{Categories: []string{"a"}, Series: []Series{{Kind: Bars, Y: one}, {Kind: Bars, Y: one}}}), ErrData, ""},
		{"folder", "no/such/x.svg", ok, os.ErrNotExist, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			err := c.f.Save(filepath.Join(dir, c.file))
			if !errors.Is(err, c.want) || c.text != "" && err.Error() != c.text {
				t.Errorf("got %v", err)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("left %v behind", left)
			}
		})
	}
}

// Flat data, one point and log axes of one value must draw, not panic.
func TestSaveDegenerate(t *testing.T) {
	for _, p := range []Panel{
		{Series: []Series{{X: []float64{1}, Y: []float64{2}}}},
		{LogX: true, Series: []Series{{Kind: Points, X: []float64{1e-9}, Y: []float64{1e9}}}},
		{Series: []Series{{Kind: Step, X: []float64{3, 3}, Y: []float64{0, 0}}}},
		{Categories: []string{"a"}, Series: []Series{{Kind: Bars, Y: []float64{5}}}},
		{Series: []Series{{X: []float64{-1e100, 1e100}, Y: []float64{-1e100, 1e100}}}},
		{Series: []Series{{X: []float64{1e100}, Y: []float64{1e100}}}},
		{Series: []Series{{X: []float64{0, 1e-300}, Y: []float64{-1e-300, 0}}}},
		{Series: []Series{{Kind: Band, X: []float64{1}, Low: []float64{2}, High: []float64{2}}}},
	} {
		b := Figure{Panels: []Panel{p}}.svg()
		if bytes.Contains(b, []byte("NaN")) || bytes.Contains(b, []byte("Inf")) || !bytes.Contains(b, []byte("<path")) {
			t.Errorf("%+v:\n%s", p, b)
		}
	}
}
