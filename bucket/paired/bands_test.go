package paired

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/bucket/internal/ordering"
)

// Bands are as wide as their area allows and no wider; groups are within their number; the targets of a band rise or fall, in turn.
func TestBands(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var shapes []shape
		for range rapid.IntRange(1, 60).Draw(t, "shapes") {
			shapes = append(shapes, shape{rapid.IntRange(1, 50).Draw(t, "source"), rapid.IntRange(1, 50).Draw(t, "target")})
		}
		slices.SortFunc(shapes, func(a, b shape) int { return a.Source - b.Source })
		area, padding := rapid.Float64Range(.1, 4).Draw(t, "area"), rapid.SampledFrom([]float64{0, .01, .3}).Draw(t, "padding")
		b := newBands(area, padding)
		batches := map[int]float64{}
		none := make([]bool, len(shapes)+1)
		for i, s := range shapes {
			if none[i+1] = i > 0 && rapid.IntRange(0, 9).Draw(t, "none") == 0; none[i+1] {
				continue
			}
			n := rapid.Float64Range(.1, 3).Draw(t, "batches")
			b.Add(s.Source, n)
			batches[s.Source] += n
		}
		chance := rapid.Float64Range(0, 1).Draw(t, "first")
		l := b.Lay(append([]shape{{}}, shapes...), none, chance)
		if !slices.IsSorted(l.edges) {
			t.Fatal(l.edges)
		}
		fill := map[int]float64{} // by band: its batches
		bottom := map[int]int{}   // and its shortest source
		top := map[int]int{}
		for s, n := range batches {
			band := 0
			for band < len(l.edges) && s > l.edges[band] {
				band++
			}
			fill[band] += n
			top[band] = max(top[band], s)
			if bottom[band] == 0 || s < bottom[band] {
				bottom[band] = s
			}
		}
		last := len(l.edges)
		for band := range fill {
			limit := area
			if band == last && padding > 0 {
				limit *= chance
			}
			if bottom[band] < top[band] && math.Log(float64(top[band]+1)/float64(bottom[band]))*fill[band] > limit*(1+1e-9) {
				t.Fatalf("band %d of %v to %v has %v batches, area %v", band, bottom[band], top[band], fill[band], limit)
			}
			if next := top[band-1]; band > 0 && math.Log(float64(top[band]+1)/float64(next))*(fill[band]+batches[next]) <= limit*(1-1e-9) {
				t.Fatalf("band %d of %v to %v has room for %d, area %v", band, bottom[band], top[band], next, limit)
			}
		}
		before := map[int][2]int{}
		for i, s := range shapes {
			if none[i+1] {
				continue
			}
			g := l.Group(s, rapid.Uint64().Draw(t, "chance"))
			if g < 0 || g >= l.Groups() {
				t.Fatalf("group %d of %d", g, l.Groups())
			}
			if padding > 0 {
				continue
			}
			band := l.of(s.Source)
			if q, ok := before[band]; ok && (s.Target > q[0]) != (g > q[1]) == (band%2 == 1) && s.Target != q[0] {
				t.Fatalf("band %d: target %d in group %d, %d in %d", band, s.Target, g, q[0], q[1])
			}
			before[band] = [2]int{s.Target, g}
		}
	})
}

// Among many lengths a group is of several, and still within its band.
func TestBandsOfManyLengths(t *testing.T) {
	b := newBands(1, 0)
	shapes, none := []shape{{}}, make([]bool, 201)
	for i := range 200 {
		s := shape{1 + i*1000, 1 + i*7919%200*50_000}
		shapes = append(shapes, s)
		b.Add(s.Source, 2)
	}
	l := b.Lay(shapes, none, 1)
	if l.Groups() > 2*ordering.FewGroups || l.shift == 0 {
		t.Fatal(l.Groups(), l.shift)
	}
	for _, s := range shapes[1:] {
		g, band := l.Group(s, 0), l.of(s.Source)
		if g < l.offset[band] || band+1 < len(l.offset) && g >= l.offset[band+1] {
			t.Fatalf("%v: group %d of band %d", s, g, band)
		}
	}
}
