package chart

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// palette is that of Okabe and Ito (2008) without yellow, which is too light for lines.
var palette = []string{"#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#333333"}

const (
	ink   = "#333333"
	muted = "#8C8C8C"
	grid  = "#E6E6E6"
)

// Lengths are in points, from the upper left corner.
const (
	width    = 482.0 // of a figure, 17 cm
	single   = 255.0 // height of a figure's only panel
	stacked  = 170.0 // height of one of several
	boxRow   = 14.0  // height of a category of boxes, if the only panel has many
	margin   = 10.0
	keyWidth = 16.0 // of a line or patch in a legend
	small    = 9.0  // size of text at axes and in legends
)

// drawing collects the elements of an SVG document.
type drawing struct{ bytes.Buffer }

// n writes a length with two decimals at most; + 0 turns -0 into 0.
func n(v float64) string { return strconv.FormatFloat(math.Round(v*100)/100+0, 'f', -1, 64) }

func (d *drawing) text(x, y, size float64, anchor, more, s string) {
	if s == "" {
		return
	}
	fmt.Fprintf(d, `<text x="%s" y="%s" font-size="%s" text-anchor="%s"%s>`, n(x), n(y), n(size), anchor, more)
	_ = xml.EscapeText(d, []byte(s)) // a buffer takes everything
	d.WriteString("</text>\n")
}

// textWidth estimates the width of text in Arial and the fonts with its metrics.
func textWidth(size float64, s string) float64 {
	return 0.54 * size * float64(utf8.RuneCountInString(s))
}

func (d *drawing) path(points []float64, closed bool, attributes string) {
	d.WriteString(`<path d="`)
	for i := 0; i+1 < len(points); i += 2 {
		letter := "L"
		if i == 0 {
			letter = "M"
		}
		d.WriteString(letter + n(points[i]) + " " + n(points[i+1]))
	}
	if closed {
		d.WriteString("Z")
	}
	d.WriteString(`" ` + attributes + "/>\n")
}

func (d *drawing) line(x1, y1, x2, y2 float64, attributes string) {
	d.path([]float64{x1, y1, x2, y2}, false, attributes)
}

func (d *drawing) box(x1, y1, x2, y2 float64, attributes string) {
	d.path([]float64{x1, y1, x2, y1, x2, y2, x1, y2}, true, attributes)
}

func (d *drawing) dot(x, y float64, colour string, ring bool) {
	attributes := fmt.Sprintf(`fill="%s"`, colour)
	if ring {
		attributes = fmt.Sprintf(`fill="none" stroke="%s"`, colour)
	}
	fmt.Fprintf(d, `<circle cx="%s" cy="%s" r="2.2" %s/>`+"\n", n(x), n(y), attributes)
}

func stroke(colour string, dashed bool) string {
	if dashed {
		return fmt.Sprintf(`fill="none" stroke="%s" stroke-width="1.1" stroke-dasharray="4 3"`, colour)
	}
	return fmt.Sprintf(`fill="none" stroke="%s" stroke-width="1.4"`, colour)
}

func faint(colour string) string { return fmt.Sprintf(`fill="%s" fill-opacity="0.22"`, colour) }

// svg draws the figure.
func (f Figure) svg() []byte {
	height := f.height()
	d := &drawing{}
	fmt.Fprintf(d, `<svg xmlns="http://www.w3.org/2000/svg" width="%spt" height="%spt" viewBox="0 0 %[1]s %[2]s" font-family="Liberation Sans,Arial,Helvetica,sans-serif" fill="%s">`+"\n",
		n(width), n(height), ink)
	d.WriteString(`<rect width="100%" height="100%" fill="#FFFFFF"/>` + "\n")
	top := margin
	if f.Title != "" {
		d.text(margin, top+11, 13, "start", ` font-weight="bold"`, f.Title)
		top += 22
	}
	// The data areas of all panels share their left edge, so that one can read downwards.
	left := 0.0
	for _, p := range f.Panels {
		left = max(left, p.left())
	}
	step := (height - margin - top) / float64(len(f.Panels))
	for i, p := range f.Panels {
		begin := top + float64(i)*step
		p.draw(d, begin, margin+left, begin+step-8)
	}
	d.WriteString("</svg>\n")
	return d.Bytes()
}

func (f Figure) height() float64 {
	h := 2 * margin
	if f.Title != "" {
		h += 22
	}
	if len(f.Panels) > 1 {
		return h + float64(len(f.Panels))*stacked
	}
	if p := f.Panels[0]; p.boxes() {
		return h + max(single, 57+float64(len(p.Categories))*boxRow)
	}
	return h + single
}

// key is a series with its colour, as the legend shows it.
type key struct {
	s      Series
	colour string
}

// legend writes the panel's title and the keys from y downwards, and returns where it ends.
func legend(d *drawing, y float64, title string, keys []key) float64 {
	if title != "" {
		d.text(margin, y+9, 11, "start", ` font-weight="bold"`, title)
		y += 16
	}
	if len(keys) == 0 {
		return y
	}
	const row = 14.0
	x := margin
	for _, k := range keys {
		w := keyWidth + 4 + textWidth(small, k.s.Name)
		if x > margin && x+w > width-margin {
			x, y = margin, y+row
		}
		k.draw(d, x, y+6)
		d.text(x+keyWidth+4, y+9, small, "start", "", k.s.Name)
		x += w + 14
	}
	return y + row + 2
}

func (k key) draw(d *drawing, x, y float64) {
	switch k.s.Kind {
	case Points:
		d.dot(x+keyWidth/2, y, k.colour, k.s.Dashed)
	case Band:
		d.box(x, y-4, x+keyWidth, y+4, faint(k.colour))
	case Bars, Boxes:
		d.box(x, y-4, x+keyWidth, y+4, fmt.Sprintf(`fill="%s"`, k.colour))
	default:
		d.line(x, y, x+keyWidth, y, stroke(k.colour, k.s.Dashed))
	}
}

// colours gives every series its colour, and dashes to those that find all colours taken.
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

// draw fills the height from top to bottom; the data begins at left.
func (p Panel) draw(d *drawing, top, left, bottom float64) {
	all := p.colours()
	shown := all
	if p.Zero != "" {
		shown = append(slices.Clip(all), key{Series{Name: p.Zero, Dashed: true}, ink})
	}
	shown = slices.DeleteFunc(slices.Clone(shown), func(k key) bool { return k.s.Name == "" })
	top = legend(d, top, p.Title, shown) + 4
	data := bottom - small - 7
	if p.XLabel != "" {
		data -= small + 4
	}
	x, y := p.scales()
	x.from, x.to, y.from, y.to = left, width-margin-8, data, top
	if p.boxes() {
		y.from, y.to = top, data
	}
	p.axes(d, x, y, bottom)
	for _, bands := range [...]bool{true, false} { // bands first: they would tint the lines of other series
		for _, k := range all {
			if (k.s.Kind == Band) == bands {
				k.mark(d, x, y)
			}
		}
	}
	if p.Zero != "" {
		d.line(x.from, y.at(0), x.to, y.at(0), stroke(ink, true))
	}
}

// boxes says whether the panel is one of boxes.
func (p Panel) boxes() bool { return len(p.Series) > 0 && p.Series[0].Kind == Boxes }

// mark draws the series.
func (k key) mark(d *drawing, x, y axis) {
	s := k.s
	var points []float64
	switch s.Kind {
	case Line, Step:
		for i := range s.X {
			if s.Kind == Step && i > 0 {
				points = append(points, x.at(s.X[i]), y.at(s.Y[i-1]))
			}
			points = append(points, x.at(s.X[i]), y.at(s.Y[i]))
		}
		d.path(points, false, stroke(k.colour, s.Dashed))
	case Points:
		for i := range s.X {
			d.dot(x.at(s.X[i]), y.at(s.Y[i]), k.colour, s.Dashed)
		}
	case Band:
		for i := range s.X {
			points = append(points, x.at(s.X[i]), y.at(s.High[i]))
		}
		for i := len(s.X) - 1; i >= 0; i-- {
			points = append(points, x.at(s.X[i]), y.at(s.Low[i]))
		}
		d.path(points, true, faint(k.colour))
	case Bars:
		const w = 0.8 // of a category's width
		for i, v := range s.Y {
			lo := float64(i) - w/2
			colour := k.colour
			if len(s.Accent) > 0 && s.Accent[i] {
				colour = palette[0]
			}
			d.box(x.at(lo+0.04*w), y.at(v), x.at(lo+0.96*w), y.at(0), fmt.Sprintf(`fill="%s"`, colour))
			if s.whiskers() { // a plain line: an interval need not hold the value itself
				d.line(x.at(lo+w/2), y.at(s.Low[i]), x.at(lo+w/2), y.at(s.High[i]), stroke(ink, false))
			}
		}
	case Boxes:
		for i := range s.X { // a thin edge: boxes that touch stay apart
			d.box(x.at(s.X[i]), y.at(s.Low[i]), x.at(s.Y[i]), y.at(s.High[i]), fmt.Sprintf(`fill="%s" stroke="#FFFFFF" stroke-width="0.3"`, k.colour))
		}
	}
}
