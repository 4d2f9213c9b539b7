package chart

import (
	"bytes"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// palette is Okabe and Ito's (2008) without yellow, which is too light for lines.
var palette = []color.RGBA{
	{0x00, 0x72, 0xB2, 0xFF}, {0xD5, 0x5E, 0x00, 0xFF}, {0x00, 0x9E, 0x73, 0xFF}, {0xE6, 0x9F, 0x00, 0xFF},
	{0xCC, 0x79, 0xA7, 0xFF}, {0x56, 0xB4, 0xE9, 0xFF}, {0x33, 0x33, 0x33, 0xFF},
}

var (
	ink   = color.RGBA{0x33, 0x33, 0x33, 0xFF}
	muted = color.RGBA{0x8C, 0x8C, 0x8C, 0xFF}
	grid  = color.RGBA{0xE6, 0xE6, 0xE6, 0xFF}
)

const (
	width    = 17 * vg.Centimeter
	single   = 9 * vg.Centimeter // height of a figure's only panel
	stacked  = 6 * vg.Centimeter // height of one of several
	boxRow   = vg.Centimeter / 2 // height of a category of boxes, where the only panel has many
	margin   = 10 * vg.Length(1)
	dpi      = 144
	keyWidth = 16 * vg.Length(1)
	bold700  = 3 // WeightBold of golang.org/x/image/font
)

func (f Figure) svg() ([]byte, error) {
	c := vgsvg.New(width, f.height())
	if err := f.draw(draw.New(c)); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return nil, err
	}
	// Readers without the Liberation fonts see one with the same metrics.
	return bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"),
		[]byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")), nil
}

func (f Figure) png() ([]byte, error) {
	c := vgimg.NewWith(vgimg.UseWH(width, f.height()), vgimg.UseDPI(dpi))
	if err := f.draw(draw.New(c)); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err := vgimg.PngCanvas{Canvas: c}.WriteTo(&b)
	return b.Bytes(), err
}

func (f Figure) height() vg.Length {
	h := 2 * margin
	if f.Title != "" {
		h += 22
	}
	if len(f.Panels) == 1 {
		if p := f.Panels[0]; p.boxes() {
			return h + max(single, 2*vg.Centimeter+vg.Length(len(p.Categories))*boxRow)
		}
		return h + single
	}
	return h + vg.Length(len(f.Panels))*stacked
}

func (f Figure) draw(c draw.Canvas) error {
	c.SetColor(color.White)
	c.Fill(c.Path())
	c = draw.Crop(c, margin, -margin, margin, -margin)
	if f.Title != "" {
		c.FillText(style(13, true), vg.Point{X: c.Min.X, Y: c.Max.Y}, f.Title)
		c.Max.Y -= 22
	}
	plots := make([]*plot.Plot, len(f.Panels))
	areas := make([]draw.Canvas, len(f.Panels))
	keys := make([][]key, len(f.Panels))
	var left, right vg.Length
	step := (c.Max.Y - c.Min.Y) / vg.Length(len(f.Panels))
	for i, p := range f.Panels {
		var err error
		if plots[i], keys[i], err = p.plot(); err != nil {
			return err
		}
		a := c
		a.Max.Y = c.Max.Y - vg.Length(i)*step
		a.Min.Y = a.Max.Y - step + 8
		areas[i] = legend(a, p.Title, keys[i])
		data := plots[i].DataCanvas(areas[i])
		left, right = max(left, data.Min.X-c.Min.X), max(right, c.Max.X-data.Max.X)
	}
	// The data areas of all panels share their edges, so that one can read downwards.
	for i, p := range plots {
		data := p.DataCanvas(areas[i])
		p.Draw(draw.Crop(areas[i], left-(data.Min.X-c.Min.X), (c.Max.X-data.Max.X)-right, 0, 0))
	}
	return nil
}

type key struct {
	s Series
	c color.RGBA
}

// legend writes the panel's title and the keys above it and returns what is left.
func legend(c draw.Canvas, title string, keys []key) draw.Canvas {
	if title != "" {
		c.FillText(style(11, true), vg.Point{X: c.Min.X, Y: c.Max.Y}, title)
		c.Max.Y -= 16
	}
	if len(keys) == 0 {
		return c
	}
	sty := style(9.5, false)
	const row = vg.Length(14)
	x, y := c.Min.X, c.Max.Y
	for _, k := range keys {
		w := keyWidth + 4 + sty.Width(k.s.Name)
		if x > c.Min.X && x+w > c.Max.X {
			x, y = c.Min.X, y-row
		}
		k.draw(c, x, y-sty.FontExtents().Height/2)
		c.FillText(sty, vg.Point{X: x + keyWidth + 4, Y: y}, k.s.Name)
		x += w + 14
	}
	c.Max.Y = y - row - 2
	return c
}

func (k key) draw(c draw.Canvas, x, y vg.Length) {
	switch k.s.Kind {
	case Points:
		c.DrawGlyphNoClip(glyph(k.c, k.s.Dashed), vg.Point{X: x + keyWidth/2, Y: y})
	case Band, Bars, Boxes:
		var fill color.Color = k.c
		if k.s.Kind == Band {
			fill = faint(k.c)
		}
		c.FillPolygon(fill, []vg.Point{{X: x, Y: y - 4}, {X: x, Y: y + 4}, {X: x + keyWidth, Y: y + 4}, {X: x + keyWidth, Y: y - 4}})
	default:
		c.StrokeLine2(stroke(k.c, k.s.Dashed), x, y, x+keyWidth, y)
	}
}

// plot makes the panel's coordinate system and the keys of its legend.
func (p Panel) plot() (*plot.Plot, []key, error) {
	q := plot.New()
	q.BackgroundColor = nil
	for _, a := range []*plot.Axis{&q.X, &q.Y} {
		a.LineStyle.Color, a.Tick.LineStyle.Color = muted, muted
		a.Tick.Length = 3
		a.Padding = 3
		a.Label.Padding = 3
		a.Tick.Marker = ticks{}
	}
	q.X.Label.Text, q.Y.Label.Text = p.XLabel, p.YLabel
	q.X.Label.TextStyle = font9(q.X.Label.TextStyle)
	q.Y.Label.TextStyle = font9(q.Y.Label.TextStyle)
	q.X.Tick.Label = font9(q.X.Tick.Label)
	q.Y.Tick.Label = font9(q.Y.Tick.Label)
	lines := plotter.NewGrid()
	lines.Vertical.Color, lines.Horizontal.Color = nil, grid
	q.Add(lines)

	all := p.colours()
	bars := 0
	for _, bands := range [...]bool{true, false} { // bands first: they would tint the lines of other series
		for _, k := range all {
			if (k.s.Kind == Band) != bands {
				continue
			}
			if err := p.add(q, k.s, k.c, bars); err != nil {
				return nil, nil, err
			}
			if k.s.Kind == Bars {
				bars++
			}
		}
	}
	p.axes(q)
	if p.Zero != "" {
		if err := p.addZero(q); err != nil {
			return nil, nil, err
		}
		all = append(all, key{Series{Name: p.Zero, Dashed: true}, ink})
	}
	return q, slices.DeleteFunc(all, func(k key) bool { return k.s.Name == "" }), nil
}

// colours gives every series its colour, and a second style to those that find all colours taken.
func (p Panel) colours() []key {
	out := make([]key, len(p.Series))
	next, last, again := 0, ink, false
	for i, s := range p.Series {
		switch {
		case s.Muted:
			last, again = muted, false
		case s.Name != "" || next == 0:
			last, again = palette[next%len(palette)], next >= len(palette)
			next++
		}
		s.Dashed = s.Dashed || again
		out[i] = key{s, last}
	}
	return out
}

// axes sets ranges and scales once every series has widened them.
func (p Panel) axes(q *plot.Plot) {
	if p.ZeroY && !p.LogY {
		q.Y.Min, q.Y.Max = min(q.Y.Min, 0), max(q.Y.Max, 0)
	}
	if p.boxes() {
		q.NominalY(p.Categories...)
		q.Y.LineStyle.Width, q.Y.Tick.Length = 0, 0
		q.Y.Min, q.Y.Max = -0.5, float64(len(p.Categories))-0.5
		q.Y.Scale = plot.InvertedScale{Normalizer: plot.LinearScale{}}
	} else if len(p.Categories) > 0 {
		q.NominalX(p.Categories...)
		q.X.LineStyle.Width, q.X.Tick.Length = 0, 0
		q.X.Min, q.X.Max = -0.5, float64(len(p.Categories))-0.5
	}
	for _, a := range []struct {
		axis *plot.Axis
		log  bool
	}{{&q.X, p.LogX}, {&q.Y, p.LogY}} {
		if !a.log {
			continue
		}
		a.axis.Scale = plot.LogScale{}
		a.axis.Tick.Marker = plot.LogTicks{Prec: -1}
		if a.axis.Min == a.axis.Max { // gonum would widen it by one, below zero for a logarithm
			a.axis.Min, a.axis.Max = a.axis.Min/2, a.axis.Max*2
		}
	}
}

func xys(x, y []float64) plotter.XYs {
	out := make(plotter.XYs, len(x))
	for i := range x {
		out[i].X, out[i].Y = x[i], y[i]
	}
	return out
}

func faint(c color.RGBA) color.NRGBA { return color.NRGBA{c.R, c.G, c.B, 0x38} }

func glyph(c color.Color, ring bool) draw.GlyphStyle {
	g := draw.GlyphStyle{Color: c, Radius: 2.2, Shape: draw.CircleGlyph{}}
	if ring {
		g.Shape = draw.RingGlyph{}
	}
	return g
}

func stroke(c color.Color, dashed bool) draw.LineStyle {
	s := draw.LineStyle{Color: c, Width: 1.4}
	if dashed {
		s.Dashes = []vg.Length{4, 3}
		s.Width = 1.1
	}
	return s
}

func style(size font.Length, bold bool) text.Style {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	if bold {
		f.Weight = bold700
	}
	return text.Style{Color: ink, Font: f, YAlign: draw.YTop, Handler: plot.DefaultTextHandler}
}

func font9(s text.Style) text.Style {
	s.Font = font.Font{Typeface: "Liberation", Variant: "Sans", Size: 9}
	s.Color = ink
	return s
}
