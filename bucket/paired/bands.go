package paired

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"evenkeel/bucket/internal/ordering"
)

// bands order samples of two lengths: by bands of similar sources, and within a band by target, rising and falling in turn, so that
// neighbours are alike in both lengths. The width of a band (of the logarithm of the source) times its number of batches stays within
// an area. Then the range of sources of its batches is about as wide as that of targets.
//
// Sorting by source, then target (as fairseq does) is the same with bands of one source. Sorting by one length alone pads the other.
type bands struct {
	area, width float64
	sources     []int     // the sources that occur, rising
	batches     []float64 // by source: the number of batches that its samples fill

	edges  []int  // by band, rising: its longest source; the last band has no edge
	offset []int  // by band: its first group
	least  []int  // by band: its shortest target
	most   []int  // by band: its longest target, moved as far as possible
	shift  uint   // a group has 2^shift targets
	groups int    // of all bands
	moves  uint32 // the largest part of a length by which it moves, x 2^16
}

type shape struct{ Source, Target int }

func (s shape) String() string { return fmt.Sprintf("source %d, target %d", s.Source, s.Target) }

// newBands makes bands of an area. padding is the share of the work that moving lengths may add; 0: lengths do not move.
func newBands(area, padding float64) bands {
	return bands{area: area, width: min(2*padding, ordering.MostWidth/ordering.Unit)}
}

// Add counts batches that samples of a source fill. Sources must not fall from call to call.
func (b *bands) Add(source int, batches float64) {
	if len(b.sources) == 0 || b.sources[len(b.sources)-1] != source {
		b.sources, b.batches = append(b.sources, source), append(b.batches, 0)
	}
	b.batches[len(b.batches)-1] += batches
}

// Lay lays out the bands of an epoch, from the longest source down, for samples of all shapes except those marked none. With mixing,
// the first band is smaller at random, which moves all other bands.
func (b bands) Lay(shapes []shape, none []bool, chance float64) *bands {
	b.moves = uint32(b.width * ordering.Unit)
	area := b.area
	if b.width > 0 {
		area *= chance
	}
	filled := 0.0
	for i := len(b.sources) - 1; i >= 0; i-- {
		top := b.sources[len(b.sources)-1]
		if n := len(b.edges); n > 0 {
			top = b.edges[n-1]
		}
		if s := b.sources[i]; filled > 0 && math.Log(float64(top+1)/float64(s))*(filled+b.batches[i]) > area {
			b.edges, filled, area = append(b.edges, s), 0, b.area
		}
		filled += b.batches[i]
	}
	slices.Reverse(b.edges)
	n := len(b.edges) + 1
	b.least, b.most, b.offset = make([]int, n), make([]int, n), make([]int, n)
	for k, s := range shapes {
		if k == 0 || none[k] {
			continue
		}
		// A source may move up into any band up to that of its largest move.
		for band := b.of(s.Source); band <= b.of(b.moved(s.Source, math.MaxUint64)); band++ {
			if b.least[band] == 0 || s.Target < b.least[band] {
				b.least[band] = s.Target
			}
			b.most[band] = max(b.most[band], b.moved(s.Target, math.MaxUint64))
		}
	}
	all := 0
	for band := range n {
		all += b.most[band] - b.least[band] + 1
	}
	for all>>b.shift > ordering.FewGroups {
		b.shift++
	}
	for band := range n {
		b.offset[band] = b.groups
		b.groups += (b.most[band]-b.least[band])>>b.shift + 1
	}
	return &b
}

// Groups is the number of groups of all bands.
func (b *bands) Groups() int { return b.groups }

func (b *bands) of(source int) int { return sort.SearchInts(b.edges, source) }

// moved is a length moved up at random.
func (b *bands) moved(v int, chance uint64) int {
	if b.moves == 0 {
		return v
	}
	return v + int((chance>>44)*(uint64(v)*uint64(b.moves)+ordering.Unit)>>36)
}

// Group is the group of a sample, below Groups; chance is random and belongs to the sample.
func (b *bands) Group(s shape, chance uint64) int {
	band := b.of(b.moved(s.Source, chance))
	target := b.moved(s.Target, ordering.Mix(chance, 1))
	if band%2 == 0 {
		target = b.most[band] - (target - b.least[band])
	}
	return b.offset[band] + (target-b.least[band])>>b.shift
}
