package chart

import (
	"fmt"
	"math"
	"strconv"
)

// axis maps the values lo to hi, of which lo is the smaller, to the coordinates from and to.
type axis struct {
	lo, hi, from, to float64
	log              bool
}

func (a axis) at(v float64) float64 {
	lo, hi := a.lo, a.hi
	if a.log {
		v, lo, hi = math.Log(v), math.Log(lo), math.Log(hi)
	}
	return a.from + (v-lo)/(hi-lo)*(a.to-a.from)
}

// scales returns the axes of x and y, wide enough for every series.
func (p Panel) scales() (x, y axis) {
	inf := math.Inf(1)
	x, y = axis{lo: inf, hi: -inf, log: p.LogX}, axis{lo: inf, hi: -inf}
	for _, s := range p.Series {
		x.widen(s.X...)
		if s.Kind == Boxes {
			x.widen(s.Y...)
			continue
		}
		y.widen(s.Y...)
		y.widen(s.Low...)
		y.widen(s.High...)
		if s.Kind == Bars {
			y.widen(0)
		}
	}
	if p.ZeroY || p.Zero != "" {
		y.widen(0)
	}
	categories := axis{lo: -0.5, hi: float64(len(p.Categories)) - 0.5}
	switch {
	case p.boxes():
		y = categories
	case len(p.Categories) > 0:
		x = categories
	}
	x.open()
	y.open()
	return x, y
}

func (a *axis) widen(values ...float64) {
	for _, v := range values {
		a.lo, a.hi = min(a.lo, v), max(a.hi, v)
	}
}

// open widens an axis of one value.
func (a *axis) open() {
	switch {
	case a.lo != a.hi:
	case a.log:
		a.lo, a.hi = a.lo/2, a.hi*2
	default:
		by := max(1, math.Abs(a.lo)/10)
		a.lo, a.hi = a.lo-by, a.hi+by
	}
}

type tick struct {
	value float64
	label string
}

func (a axis) ticks() []tick {
	if a.log {
		return a.logTicks()
	}
	const want = 5
	step := math.Pow(10, math.Floor(math.Log10((a.hi-a.lo)/want)))
	for _, f := range [...]float64{10, 5, 2} {
		if (a.hi-a.lo)/(f*step) >= want-1 {
			step *= f
			break
		}
	}
	var out []tick
	for i := math.Ceil(a.lo / step); i*step <= a.hi && len(out) < 4*want; i++ {
		v := i*step + 0 // + 0 turns -0 into 0
		label := strconv.FormatFloat(v, 'f', int(max(0, -math.Floor(math.Log10(step)))), 64)
		if size := math.Abs(v); size >= 1e6 || size > 0 && size < 1e-4 {
			label = strconv.FormatFloat(v, 'g', 3, 64)
		}
		out = append(out, tick{v, label})
	}
	return out
}

// logTicks marks powers of ten, and 2 and 5 times these where there are few.
func (a axis) logTicks() []tick {
	first, last := math.Floor(math.Log10(a.lo)), math.Ceil(math.Log10(a.hi))
	every := math.Ceil((last - first) / 10)
	factors := []float64{1}
	if last-first <= 3 {
		factors = []float64{1, 2, 5}
	}
	var out []tick
	for e := first; e <= last; e += every {
		for _, f := range factors {
			if v := f * math.Pow(10, e); v >= a.lo*(1-1e-9) && v <= a.hi*(1+1e-9) {
				out = append(out, tick{v, strconv.FormatFloat(v, 'g', -1, 64)})
			}
		}
	}
	return out
}

// marks are the ticks of an axis: those of its values, or the categories.
func (p Panel) marks(a axis, categories bool) []tick {
	if !categories || len(p.Categories) == 0 {
		return a.ticks()
	}
	out := make([]tick, len(p.Categories))
	for i, c := range p.Categories {
		out[i] = tick{float64(i), c}
	}
	return out
}

// left is the room that the y axis needs beside the data.
func (p Panel) left() float64 {
	_, y := p.scales()
	w := 0.0
	for _, t := range p.marks(y, p.boxes()) {
		w = max(w, textWidth(small, t.label))
	}
	if p.YLabel != "" {
		w += small + 5
	}
	return w + 8
}

// axes draws both axes with their ticks and labels; bottom is where the label of x ends.
func (p Panel) axes(d *drawing, x, y axis, bottom float64) {
	const length = 3.0 // of a tick
	edge := fmt.Sprintf(`stroke="%s" stroke-width="0.5"`, muted)
	base, top := max(y.from, y.to), min(y.from, y.to)
	bars := len(p.Categories) > 0 && !p.boxes()
	for _, t := range p.marks(y, p.boxes()) {
		at := y.at(t.value)
		if !p.boxes() {
			d.line(x.from, at, x.to, at, fmt.Sprintf(`stroke="%s" stroke-width="0.5"`, grid))
			d.line(x.from-length, at, x.from, at, edge)
		}
		d.text(x.from-length-3, at+3, small, "end", "", t.label)
	}
	for _, t := range p.marks(x, bars) {
		at := x.at(t.value)
		if !bars {
			d.line(at, base, at, base+length, edge)
		}
		d.text(at, base+length+small, small, "middle", "", t.label)
	}
	d.line(x.from, base, x.to, base, edge)
	if !p.boxes() {
		d.line(x.from, base, x.from, top, edge)
	}
	d.text((x.from+x.to)/2, bottom-2, small, "middle", "", p.XLabel)
	at, middle := margin+small, (base+top)/2
	d.text(at, middle, small, "middle", fmt.Sprintf(` transform="rotate(-90 %s %s)"`, n(at), n(middle)), p.YLabel)
}
