package packed

import (
	"cmp"
	"math"
	"slices"
)

// packers are the ranks of a step while samples are dealt to them.
type packers struct {
	fixed   float64 // seconds of each batch
	all     []packer
	classes [][]*packer // ranks of equal speed, by rising load, then by number
}

type packer struct {
	speed, load, room float64
	rank              int
	samples           []uint32
}

func compareLoads(a, b *packer) int {
	return cmp.Or(cmp.Compare(a.load, b.load), a.rank-b.rank)
}

func newPackers(speeds []float64, fixed float64) *packers {
	d := &packers{fixed: fixed, all: make([]packer, len(speeds))}
	class := map[float64]int{}
	for i, v := range speeds {
		d.all[i] = packer{speed: v, rank: i}
		if _, ok := class[v]; !ok {
			class[v] = len(d.classes)
			d.classes = append(d.classes, nil)
		}
		d.classes[class[v]] = append(d.classes[class[v]], &d.all[i])
	}
	return d
}

func (d *packers) clear() {
	for i := range d.all {
		p := &d.all[i]
		p.load, p.room, p.samples = 0, 0, p.samples[:0]
	}
	for _, ranks := range d.classes {
		slices.SortFunc(ranks, compareLoads)
	}
}

// put gives a sample to the rank that would finish it first among those that have room; false if none has.
func (d *packers) put(sample uint32, seconds, room float64) bool {
	class, at, first := -1, 0, math.Inf(1)
	for k, ranks := range d.classes {
		i := slices.IndexFunc(ranks, func(p *packer) bool { return p.room+room <= 1+1e-9 })
		if i < 0 {
			continue
		}
		if end := (d.fixed + ranks[i].load + seconds) / ranks[i].speed; end < first {
			class, at, first = k, i, end
		}
	}
	if class < 0 {
		return false
	}
	ranks := d.classes[class]
	p := ranks[at]
	p.load, p.room, p.samples = p.load+seconds, p.room+room, append(p.samples, sample)
	to, _ := slices.BinarySearchFunc(ranks[at+1:], p, compareLoads)
	copy(ranks[at:], ranks[at+1:at+1+to])
	ranks[at+to] = p
	return true
}
