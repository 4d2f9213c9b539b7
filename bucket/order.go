package bucket

import (
	"math/rand/v2"
	"sort"
	"sync"

	"github.com/evenkeel/evenkeel/bucket/internal/ordering"
)

// histogram counts samples per length: entry l is the number of length l.
func (l Lengths) histogram() []uint32 {
	half := len(l) / 2
	var a, b []uint32
	both(func() { a = count(l[:half]) }, func() { b = count(l[half:]) })
	if len(a) < len(b) {
		a, b = b, a
	}
	for k, n := range b {
		a[k] += n
	}
	return a
}

// shortest is the position of the first of the shortest.
func (l Lengths) shortest() int {
	at := 0
	for i, v := range l {
		if v < l[at] {
			at = i
		}
	}
	return at
}

func count(l Lengths) []uint32 {
	var longest uint32
	for _, v := range l {
		longest = max(longest, v)
	}
	n := make([]uint32, longest+1)
	for _, v := range l {
		n[v]++
	}
	return n
}

// order is the samples of an epoch sorted by group and shuffled within each. A sample's group is its length moved up by a
// random part of it (keys), so that neighbours differ from epoch to epoch.
type order struct {
	keys
	start []int    // by group, and the end of the last
	pad   []uint32 // by group: no sample of it, or of a group before, is longer
	sum   []uint64 // of the lengths of the groups before each
	index []uint32 // nil until the whole order is wanted
}

// newOrder lays out the groups: a pass over the lengths, or where nothing moves, over their histogram.
func newOrder(l Lengths, hist []uint32, k keys) *order {
	o := &order{keys: k, start: make([]int, k.groups+1), pad: make([]uint32, k.groups), sum: make([]uint64, k.groups+1)}
	add := func(g int, n, longest uint32, sum uint64) {
		o.start[g+1] += int(n)
		o.pad[g] = max(o.pad[g], longest)
		o.sum[g+1] += sum
	}
	if k.width == nil && !k.random && k.two == nil {
		for v, n := range hist {
			if n > 0 {
				add(k.of(0, uint32(v)), n, min(uint32(v), k.limit), uint64(n)*uint64(min(uint32(v), k.limit)))
			}
		}
	} else {
		half := len(l) / 2
		var a, b []tally
		both(func() { a = k.tally(l, 0, half) }, func() { b = k.tally(l, half, len(l)) })
		for g := range k.groups {
			add(g, a[g].n, a[g].longest, a[g].sum)
			add(g, b[g].n, b[g].longest, b[g].sum)
		}
	}
	for g := range k.groups {
		o.start[g+1] += o.start[g]
		o.sum[g+1] += o.sum[g]
		if g > 0 {
			o.pad[g] = max(o.pad[g], o.pad[g-1])
		}
	}
	return o
}

// tally is what the layout needs of a group.
type tally struct {
	n, longest uint32
	sum        uint64
}

func (k *keys) tally(l Lengths, from, to int) []tally {
	out := make([]tally, k.groups)
	for i := from; i < to; i++ {
		v := l[i]
		t := &out[k.of(i, v)]
		v = min(v, k.limit)
		t.n++
		t.longest = max(t.longest, v)
		t.sum += uint64(v)
	}
	return out
}

// keys says how samples are ordered.
type keys struct {
	seed, epoch uint64
	limit       uint32          // longest length that is batched
	skip        bool            // longer ones are left out; else they count as the limit
	width       []uint32        // by length: the largest part of it by which a sample moves, x 2^16; nil: none does
	random      bool            // no order but chance
	shift       uint            // so many lengths, as a power of two, are one group
	groups      int             // the last: those left out, if any are
	two         *paired         // where samples have two lengths
	bands       *ordering.Bands // then
	salt        uint64
}

func (p *Plan) keys(seed, epoch uint64) keys {
	k := keys{seed: seed, epoch: epoch, limit: uint32(p.limit), skip: p.Overlong == Skip, width: p.width, random: p.knobs.random,
		salt: ordering.Mix(epoch, seed^0x6a09e667f3bcc909)}
	top := uint64(p.limit)
	if k.two = p.two; k.two != nil && !k.random {
		k.bands = p.two.bands.Lay(p.two.shapes, p.two.none, float64(k.salt>>11)/(1<<53))
		k.groups = k.bands.Groups() + 1
		return k
	}
	switch {
	case k.random:
		top = 0
	case k.width != nil:
		for l, w := range k.width {
			top = max(top, uint64(l)+(uint64(l)*uint64(w))>>16+1)
		}
		for top>>k.shift > ordering.FewGroups {
			k.shift++
		}
	}
	k.groups = int(top>>k.shift) + 2
	return k
}

// of is the group of sample i, of length v.
func (k *keys) of(i int, v uint32) int {
	if k.two != nil && k.two.none[v] {
		return k.groups - 1
	}
	if v > k.limit {
		if k.skip {
			return k.groups - 1
		}
		v = k.limit
	}
	if k.random {
		return 0
	}
	if k.width == nil && k.bands == nil {
		return int(v)
	}
	z := uint64(i)*0x9e3779b97f4a7c15 + k.salt // SplitMix, as mix
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	if k.bands != nil {
		return k.bands.Group(k.two.shapes[v], z)
	}
	// Up to width x length whole lengths, the last in proportion; 20 bits of chance.
	span := uint64(v)*uint64(k.width[v]) + ordering.Unit
	if k.width[v] == 0 {
		span = 0
	}
	return int((uint64(v) + (z>>44)*span>>36) >> k.shift)
}

// fill sorts all samples: a counting sort in two halves side by side, stable, so that a
// group holds its samples in the data set's order before the shuffle.
func (o *order) fill(l Lengths) {
	index := make([]uint32, len(l))
	groups := len(o.start) - 1
	half := len(l) / 2
	low := make([]int, groups)
	for i, v := range l[:half] {
		low[o.of(i, v)]++
	}
	first, second := make([]int, groups), make([]int, groups)
	for g := range groups {
		first[g] = o.start[g]
		second[g] = o.start[g] + low[g]
	}
	both(func() { o.scatter(l, 0, half, first, index) }, func() { o.scatter(l, half, len(l), second, index) })
	middle := 0
	for middle < groups && o.start[middle] < half {
		middle++
	}
	both(func() { o.shuffles(0, middle, index) }, func() { o.shuffles(middle, groups, index) })
	o.index = index
}

func both(a, b func()) {
	var wait sync.WaitGroup
	wait.Go(a)
	b()
	wait.Wait()
}

func (o *order) scatter(l Lengths, from, to int, at []int, index []uint32) {
	for i := from; i < to; i++ {
		g := o.of(i, l[i])
		index[at[g]] = uint32(i)
		at[g]++
	}
}

func (o *order) shuffles(from, to int, index []uint32) {
	for g := from; g < to; g++ {
		o.shuffle(g, index[o.start[g]:o.start[g+1]])
	}
}

// shuffle is Fisher and Yates's, with a generator of the group's own, so that one group
// can be had without the others.
func (o *order) shuffle(g int, samples []uint32) {
	r := rand.NewPCG(o.seed, ordering.Mix(o.epoch, uint64(g)+1))
	for i := uint64(len(samples)); i > 1; i-- {
		// Lemire, Fast random integer generation in an interval, 2019, without the
		// rejection: the bias is below 2^-32.
		j := (r.Uint64() >> 32 * i) >> 32
		samples[i-1], samples[j] = samples[j], samples[i-1]
	}
}

// group is that of a position.
func (o *order) group(pos int) int {
	return sort.Search(len(o.start)-1, func(g int) bool { return o.start[g+1] > pos })
}

// before is the sum of the lengths before a position; within a group the mean counts.
func (o *order) before(pos int) float64 {
	g := o.group(pos)
	if g == len(o.start)-1 {
		return float64(o.sum[g])
	}
	n := o.start[g+1] - o.start[g]
	return float64(o.sum[g]) + float64(o.sum[g+1]-o.sum[g])*float64(pos-o.start[g])/float64(max(1, n))
}

// some is the positions of a few batches, each of one range, without filling the order: a
// pass over the lengths that gathers the groups concerned.
func (o *order) some(l Lengths, batches []Batch) [][]uint32 {
	where := make([]int, len(o.start)-1) // of a group in the gathered samples, from 1
	var groups []int
	for _, b := range batches {
		for g := o.group(int(b.Start)); g < len(where) && o.start[g] < int(b.Start+b.Count); g++ {
			if where[g] == 0 {
				groups = append(groups, g)
				where[g] = len(groups)
			}
		}
	}
	half := len(l) / 2
	var halves [2][][]uint32
	gather := func(k, from, to int) {
		found := make([][]uint32, len(groups))
		for i := from; i < to; i++ {
			if at := where[o.of(i, l[i])]; at > 0 {
				found[at-1] = append(found[at-1], uint32(i))
			}
		}
		halves[k] = found
	}
	both(func() { gather(0, 0, half) }, func() { gather(1, half, len(l)) })
	all := map[int][]uint32{}
	for k, g := range groups {
		all[g] = append(halves[0][k], halves[1][k]...)
		o.shuffle(g, all[g])
	}
	out := make([][]uint32, 0, len(batches))
	for _, b := range batches {
		from, to := int(b.Start), int(b.Start+b.Count)
		var part []uint32
		for g := o.group(from); o.start[g] < to; g++ {
			part = append(part, all[g][max(0, from-o.start[g]):min(to, o.start[g+1])-o.start[g]]...)
		}
		out = append(out, part)
	}
	return out
}
