package chart

import (
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"
)

// barSpan is where bar i of n lies beside its category, in units of the category axis.
func barSpan(i, n int) (lo, hi float64) {
	const group = 0.8
	w := group / float64(n)
	lo = -group/2 + float64(i)*w
	return lo + w*0.04, lo + w*0.96
}

func (p Panel) add(q *plot.Plot, s Series, c color.RGBA, bar int) error {
	switch s.Kind {
	case Line, Step:
		l, err := plotter.NewLine(xys(s.X, s.Y))
		if err != nil {
			return err
		}
		l.LineStyle = stroke(c, s.Dashed)
		if s.Kind == Step {
			l.StepStyle = plotter.PostStep
		}
		q.Add(l)
	case Points:
		g, err := plotter.NewScatter(xys(s.X, s.Y))
		if err != nil {
			return err
		}
		g.GlyphStyle = glyph(c, s.Dashed)
		q.Add(g)
		if s.whiskers() {
			return addWhiskers(q, s.X, s.Low, s.High, c)
		}
	case Band:
		edge := xys(s.X, s.High)
		for i := len(s.X) - 1; i >= 0; i-- {
			edge = append(edge, plotter.XY{X: s.X[i], Y: s.Low[i]})
		}
		a, err := plotter.NewPolygon(edge)
		if err != nil {
			return err
		}
		a.Color, a.LineStyle.Width = faint(c), 0
		q.Add(a)
	case Bars:
		return p.addBars(q, s, c, bar)
	case Boxes:
		edges := make([]plotter.XYer, len(s.X))
		for i := range s.X {
			edges[i] = plotter.XYs{{X: s.X[i], Y: s.Low[i]}, {X: s.X[i], Y: s.High[i]}, {X: s.Y[i], Y: s.High[i]}, {X: s.Y[i], Y: s.Low[i]}}
		}
		a, err := plotter.NewPolygon(edges...)
		if err != nil {
			return err
		}
		a.Color, a.LineStyle = c, draw.LineStyle{Color: color.White, Width: 0.3} // boxes that touch stay apart
		q.Add(a)
	}
	return nil
}

// boxes says whether the panel is one of boxes.
func (p Panel) boxes() bool { return len(p.Series) > 0 && p.Series[0].Kind == Boxes }

func (p Panel) addBars(q *plot.Plot, s Series, c color.RGBA, bar int) error {
	lo, hi := barSpan(bar, len(p.Series))
	base := 0.0
	if p.LogY {
		base = p.least() / 2
	}
	mid := make([]float64, len(s.Y))
	for i, v := range s.Y {
		x := float64(i)
		mid[i] = x + (lo+hi)/2
		a, err := plotter.NewPolygon(plotter.XYs{{X: x + lo, Y: base}, {X: x + lo, Y: v}, {X: x + hi, Y: v}, {X: x + hi, Y: base}})
		if err != nil {
			return err
		}
		a.Color, a.LineStyle.Width = c, 0
		if len(s.Accent) > 0 && s.Accent[i] {
			a.Color = palette[0]
		}
		q.Add(a)
	}
	if s.whiskers() {
		return addWhiskers(q, mid, s.Low, s.High, ink)
	}
	return nil
}

// addZero draws the line at zero, over all else.
func (p Panel) addZero(q *plot.Plot) error {
	l, err := plotter.NewLine(plotter.XYs{{X: q.X.Min, Y: 0}, {X: q.X.Max, Y: 0}})
	if err != nil {
		return err
	}
	l.LineStyle = stroke(ink, true)
	q.Add(l)
	return nil
}

// least is the smallest bar, from which a logarithmic axis takes its base.
func (p Panel) least() float64 {
	v := math.Inf(1)
	for _, s := range p.Series {
		for _, values := range [][]float64{s.Y, s.Low} {
			for _, y := range values {
				v = min(v, y)
			}
		}
	}
	return v
}

// addWhiskers draws plain vertical lines: an interval need not hold the value itself.
func addWhiskers(q *plot.Plot, x, low, high []float64, c color.Color) error {
	for i := range x {
		l, err := plotter.NewLine(plotter.XYs{{X: x[i], Y: low[i]}, {X: x[i], Y: high[i]}})
		if err != nil {
			return err
		}
		l.LineStyle = draw.LineStyle{Color: c, Width: 1.4}
		q.Add(l)
	}
	return nil
}

// ticks marks about five round values, 1, 2 or 5 times a power of ten apart.
type ticks struct{}

func (ticks) Ticks(lo, hi float64) []plot.Tick {
	const want = 5
	power := math.Floor(math.Log10((hi - lo) / want))
	step := math.Pow(10, power)
	for _, f := range [...]float64{10, 5, 2} {
		if (hi-lo)/(f*step) >= want-1 {
			step *= f
			break
		}
	}
	var out []plot.Tick
	for i := math.Ceil(lo / step); i*step <= hi && len(out) < 4*want; i++ {
		v := i*step + 0 // + 0 turns -0 into 0
		label := strconv.FormatFloat(v, 'f', int(max(0, -math.Floor(math.Log10(step)))), 64)
		if a := math.Abs(v); a >= 1e6 || a > 0 && a < 1e-4 {
			label = strconv.FormatFloat(v, 'g', 3, 64)
		}
		out = append(out, plot.Tick{Value: v, Label: label})
	}
	return out
}
