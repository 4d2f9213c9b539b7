package layout

import (
	"flag"
	"fmt"
	"html"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/images/architecture.svg anew")

// The drawing of docs/concepts/architecture.md shows the imports as they are:
//
//	go test ./internal/layout -run TestArchitecture -update
func TestArchitecture(t *testing.T) {
	packages, edges := roomGraph(t)
	got := drawRooms(packages, edges)
	const name = "docs/images/architecture.svg"
	if *update {
		if err := os.WriteFile(filepath.Join(root, name), []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != read(t, name) {
		t.Errorf("%s does not show the packages and imports as they are: go test ./internal/layout -run TestArchitecture -update", name)
	}
	page := read(t, "docs/concepts/architecture.md")
	for _, r := range slices.Sorted(maps.Keys(packages)) {
		if !strings.Contains(page, "| `"+r+"` |") {
			t.Errorf("docs/concepts/architecture.md has no row for %s", r)
		}
	}
}

// onTop wire rooms together: the drawing shows them as one bar, without arrows.
var onTop = []string{"cmd", "experiments"}

// roomGraph are the rooms, each with the packages in it that others can import, and which room imports
// which. Tests do not count, nor what stands in internal.
func roomGraph(t *testing.T) (packages map[string][]string, edges map[string]map[string]bool) {
	packages, edges = map[string][]string{}, map[string]map[string]bool{}
	for _, f := range load(t) {
		from, rest, within := strings.Cut(f.pkg, "/")
		if f.test() || from == "internal" || from == "." || slices.Contains(onTop, from) {
			continue
		}
		if edges[from] == nil {
			packages[from], edges[from] = nil, map[string]bool{}
		}
		if within && !strings.HasPrefix(rest, "internal") && !slices.Contains(packages[from], rest) {
			packages[from] = append(packages[from], rest)
		}
		for _, path := range f.imports() {
			to, ours := strings.CutPrefix(path, module)
			to, _, _ = strings.Cut(to, "/")
			if ours && to != from && to != "internal" {
				edges[from][to] = true
			}
		}
	}
	for _, p := range packages {
		slices.Sort(p)
	}
	return packages, edges
}

// reaches says whether a room needs another by way of a third.
func reaches(edges map[string]map[string]bool, from, to string) bool {
	for mid := range edges[from] {
		if mid != to && (edges[mid][to] || reaches(edges, mid, to)) {
			return true
		}
	}
	return false
}

// floors puts every room one above the highest that it imports.
func floors(edges map[string]map[string]bool) [][]string {
	level := map[string]int{}
	var height func(string) int
	height = func(r string) int {
		if l, ok := level[r]; ok {
			return l
		}
		l := 0
		for to := range edges[r] {
			l = max(l, height(to)+1)
		}
		level[r] = l
		return l
	}
	var out [][]string
	for _, r := range slices.Sorted(maps.Keys(edges)) {
		l := height(r)
		for len(out) <= l {
			out = append(out, nil)
		}
		out[l] = append(out[l], r)
	}
	return out
}

const (
	boxWidth, boxHeight = 160, 96
	gapX, gapY          = 80, 90
	barHeight           = 44
	pad                 = 16
)

type point struct{ x, y float64 }

// place gives every room the middle of its box: of all ways to put the floors into columns
// the one with the fewest arrows through boxes and each other, then the straightest.
func place(levels [][]string, arrows [][2]string, columns int) map[string]point {
	var best map[string]point
	var faults int
	var length float64
	at := map[string]point{}
	var try func(level int)
	try = func(level int) {
		f, l := untidy(at, arrows)
		switch {
		case best != nil && (f > faults || f == faults && l > length-1e-6): // more rooms make it no tidier
		case level == len(levels):
			best, faults, length = maps.Clone(at), f, l
		default:
			rooms := levels[level]
			y := pad + barHeight + gapY/2 + (len(levels)-1-level)*(boxHeight+gapY) + boxHeight/2
			choose(columns, len(rooms), func(columns []int) {
				for i, c := range columns {
					at[rooms[i]] = point{float64(pad + c*(boxWidth+gapX) + boxWidth/2), float64(y)}
				}
				try(level + 1)
				for _, r := range rooms {
					delete(at, r)
				}
			})
		}
	}
	try(0)
	return best
}

// choose calls f with every choice of k different columns of n, in every order.
func choose(n, k int, f func([]int)) {
	var pick func(chosen []int)
	pick = func(chosen []int) {
		if len(chosen) == k {
			f(chosen)
			return
		}
		for c := range n {
			if !slices.Contains(chosen, c) {
				pick(append(chosen[:len(chosen):len(chosen)], c))
			}
		}
	}
	pick(nil)
}

// untidy counts the arrows between placed rooms through boxes, tenfold, and through each
// other, and adds up how far to the side they go.
func untidy(at map[string]point, arrows [][2]string) (faults int, length float64) {
	for i, a := range arrows {
		from, ok := at[a[0]]
		to, also := at[a[1]]
		if !ok || !also {
			continue
		}
		length += math.Abs(from.x-to.x) + (from.x-to.x)*(from.x-to.x)/1e3
		for r, p := range at {
			if r != a[0] && r != a[1] && through(from, to, p) {
				faults += 10
			}
		}
		for _, b := range arrows[:i] {
			c, ok := at[b[0]]
			d, also := at[b[1]]
			if ok && also && a[0] != b[0] && a[1] != b[1] && crosses(from, to, c, d) {
				faults++
			}
		}
	}
	return faults, length
}

// through says whether the line between two rooms enters the box around p.
func through(from, to, p point) bool {
	if p.y <= from.y || p.y >= to.y {
		return false
	}
	for _, y := range []float64{p.y - boxHeight/2, p.y, p.y + boxHeight/2} {
		x := from.x + (to.x-from.x)*(y-from.y)/(to.y-from.y)
		if x > p.x-boxWidth/2-8 && x < p.x+boxWidth/2+8 {
			return true
		}
	}
	return false
}

func crosses(a, b, c, d point) bool {
	side := func(p, q, r point) float64 { return (q.x-p.x)*(r.y-p.y) - (q.y-p.y)*(r.x-p.x) }
	return side(a, b, c)*side(a, b, d) < 0 && side(c, d, a)*side(c, d, b) < 0
}

// drawRooms is the SVG. Arrows that follow from others are left out.
func drawRooms(packages map[string][]string, edges map[string]map[string]bool) string {
	levels := floors(edges)
	most := 0
	for _, l := range levels {
		most = max(most, len(l))
	}
	width := float64(most*(boxWidth+gapX) - gapX)
	var arrows [][2]string
	for _, from := range slices.Sorted(maps.Keys(edges)) {
		for _, to := range slices.Sorted(maps.Keys(edges[from])) {
			if !reaches(edges, from, to) {
				arrows = append(arrows, [2]string{from, to})
			}
		}
	}
	at := place(levels, arrows, most)
	height := pad + barHeight + gapY/2 + len(levels)*(boxHeight+gapY) - gapY/2 + barHeight + pad
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" font-family="sans-serif" font-size="13">
<title>The packages and who imports whom</title>
<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="#456"/></marker></defs>
<rect width="100%%" height="100%%" fill="#fff"/>
`, width+2*pad, height)
	bar(&b, pad, width, "cmd/evenkeel, experiments", "may import every room below; nothing imports them")
	for _, a := range arrows {
		from, to := at[a[0]], at[a[1]]
		// Arrows of one box end apart.
		fmt.Fprintf(&b, `<path d="M%.0f %.0fL%.0f %.0f" stroke="#456" stroke-width="1.5" fill="none" marker-end="url(#a)"/>`+"\n",
			from.x+apart(from, to), from.y+boxHeight/2, to.x-apart(from, to), to.y-boxHeight/2)
	}
	for _, l := range levels {
		for _, r := range slices.Sorted(slices.Values(l)) {
			p := at[r]
			fmt.Fprintf(&b, `<rect x="%.0f" y="%.0f" width="%d" height="%d" rx="6" fill="#eef4fa" stroke="#456"/>`+"\n", p.x-boxWidth/2, p.y-boxHeight/2, boxWidth, boxHeight)
			fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" text-anchor="middle" font-weight="bold" font-size="15">%s</text>`+"\n", p.x, p.y-boxHeight/2+20, html.EscapeString(r))
			for i, line := range wrap(packages[r], 25) {
				fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" text-anchor="middle" font-size="11" fill="#345">%s</text>`+"\n", p.x, p.y-boxHeight/2+37+14*float64(i), html.EscapeString(line))
			}
		}
	}
	bar(&b, float64(height-pad-barHeight), width, "internal", "small helpers of several rooms; they import no room but the few that the rules name")
	b.WriteString("</svg>\n")
	return b.String()
}

// apart moves an arrow's ends towards where it goes.
func apart(from, to point) float64 { return min(max((to.x-from.x)/5, -boxWidth/3), boxWidth/3) }

func bar(b *strings.Builder, y, width float64, name, what string) {
	fmt.Fprintf(b, `<rect x="%d" y="%.0f" width="%.0f" height="%d" rx="6" fill="#f4f1e8" stroke="#765"/>`+"\n", pad, y, width, barHeight)
	fmt.Fprintf(b, `<text x="%.0f" y="%.0f" text-anchor="middle"><tspan font-weight="bold" font-size="15">%s</tspan>  %s</text>`+"\n", pad+width/2, y+barHeight/2+5, name, what)
}

// wrap joins names to lines.
func wrap(names []string, most int) []string {
	var out []string
	for _, n := range names {
		if i := len(out) - 1; i >= 0 && len(out[i])+2+len(n) <= most {
			out[i] += ", " + n
		} else {
			out = append(out, n)
		}
	}
	return out
}
