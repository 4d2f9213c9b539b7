package bucket

import (
	"math/rand/v2"
	"sync"
)

// histogram counts samples per length: entry l is the number of length l.
func (l Lengths) histogram() []uint32 {
	half := len(l) / 2
	var a, b []uint32
	var wait sync.WaitGroup
	wait.Go(func() { a = count(l[:half]) })
	b = count(l[half:])
	wait.Wait()
	if len(a) < len(b) {
		a, b = b, a
	}
	for k, n := range b {
		a[k] += n
	}
	return a
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

// order is the samples sorted by group of lengths and shuffled within each group.
type order struct {
	group []uint32 // by length
	start []int    // by group, and the end of the last
	index []uint32 // nil until the whole order is wanted
	seed  uint64
	epoch uint64
}

// newOrder lays out the groups: group[l] is that of length l, start by counts.
func newOrder(hist, group []uint32, seed, epoch uint64) *order {
	groups := 0
	for _, g := range group {
		groups = max(groups, int(g)+1)
	}
	o := &order{group: group, start: make([]int, groups+1), seed: seed, epoch: epoch}
	for l, n := range hist {
		o.start[group[l]+1] += int(n)
	}
	for g := range groups {
		o.start[g+1] += o.start[g]
	}
	return o
}

// fill sorts all samples: a counting sort in two halves side by side, stable, so that a
// group holds its samples in the data set's order before the shuffle.
func (o *order) fill(l Lengths) {
	index := make([]uint32, len(l))
	groups := len(o.start) - 1
	half := len(l) / 2
	low := make([]int, groups)
	for _, v := range l[:half] {
		low[o.group[v]]++
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
		g := o.group[l[i]]
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
	r := rand.NewPCG(o.seed, mix(o.epoch, uint64(g)+1))
	for i := uint64(len(samples)); i > 1; i-- {
		// Lemire, Fast random integer generation in an interval, 2019, without the
		// rejection: the bias is below 2^-32.
		j := (r.Uint64() >> 32 * i) >> 32
		samples[i-1], samples[j] = samples[j], samples[i-1]
	}
}

// mix joins two numbers to a seed (the finaliser of Steele et al., SplitMix, 2014).
func mix(a, b uint64) uint64 {
	z := a*0x9e3779b97f4a7c15 + b*0xbf58476d1ce4e5b9
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// some is positions from to to of the order without filling it: one pass over the
// lengths that gathers the groups concerned.
func (o *order) some(l Lengths, from, to int) []uint32 {
	if o.index != nil {
		return o.index[from:to]
	}
	first := 0
	for o.start[first+1] <= from {
		first++
	}
	last := first
	for o.start[last+1] < to {
		last++
	}
	at := make([]int, last-first+1)
	for g := range at {
		at[g] = o.start[first+g] - o.start[first]
	}
	out := make([]uint32, o.start[last+1]-o.start[first])
	for i, v := range l {
		if g := int(o.group[v]); g >= first && g <= last {
			out[at[g-first]] = uint32(i)
			at[g-first]++
		}
	}
	for g := first; g <= last; g++ {
		o.shuffle(g, out[o.start[g]-o.start[first]:o.start[g+1]-o.start[first]])
	}
	return out[from-o.start[first] : to-o.start[first]]
}
