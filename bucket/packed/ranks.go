package packed

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
)

// packers are the ranks of a step, while samples are dealt to them.
type packers struct {
	all     []packer
	classes []*packerHeap // of equal speeds
}

type packer struct {
	speed, load, room float64
	rank              int
	samples           []uint32
}

func newPackers(speeds []float64, fixed float64) *packers {
	d := &packers{all: make([]packer, len(speeds))}
	at := map[float64]*packerHeap{}
	for i, v := range speeds {
		d.all[i] = packer{speed: v, rank: i}
		h := at[v]
		if h == nil {
			h = &packerHeap{fixed: fixed}
			at[v] = h
			d.classes = append(d.classes, h)
		}
		h.packers = append(h.packers, &d.all[i])
	}
	return d
}

// clear empties all ranks.
func (d *packers) clear() {
	for i := range d.all {
		p := &d.all[i]
		p.load, p.room, p.samples = 0, 0, p.samples[:0]
	}
	for _, h := range d.classes {
		slices.SortFunc(h.packers, func(a, b *packer) int { return a.rank - b.rank }) // equal loads: a heap
	}
}

// put gives a sample to the rank that would finish it first among those that have room; false if none has.
func (d *packers) put(sample uint32, seconds, room float64) bool {
	var first *packerHeap
	at := math.Inf(1)
	for _, h := range d.classes {
		h.full = h.full[:0]
		for len(h.packers) > 0 && h.packers[0].room+room > 1+1e-9 {
			h.full = append(h.full, heap.Pop(h).(*packer))
		}
		if len(h.packers) > 0 {
			if p := h.packers[0]; (h.fixed+p.load+seconds)/p.speed < at {
				first, at = h, (h.fixed+p.load+seconds)/p.speed
			}
		}
	}
	if first != nil {
		p := first.packers[0]
		p.load, p.room, p.samples = p.load+seconds, p.room+room, append(p.samples, sample)
		heap.Fix(first, 0)
	}
	for _, h := range d.classes {
		for _, p := range h.full { // a smaller sample may have room there
			heap.Push(h, p)
		}
	}
	return first != nil
}

// packerHeap has the rank of the least load first, of equals the first.
type packerHeap struct {
	packers, full []*packer
	fixed         float64
}

func (h *packerHeap) Len() int { return len(h.packers) }

func (h *packerHeap) Less(i, j int) bool {
	a, b := h.packers[i], h.packers[j]
	return cmp.Or(cmp.Compare(a.load, b.load), a.rank-b.rank) < 0
}

func (h *packerHeap) Swap(i, j int) { h.packers[i], h.packers[j] = h.packers[j], h.packers[i] }

// Push is heap.Interface's.
func (h *packerHeap) Push(p any) { h.packers = append(h.packers, p.(*packer)) }

// Pop is heap.Interface's.
func (h *packerHeap) Pop() any {
	p := h.packers[len(h.packers)-1]
	h.packers = h.packers[:len(h.packers)-1]
	return p
}
