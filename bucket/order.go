package bucket

import (
	"math/rand/v2"
	"sort"
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

// some is the positions of a few batches, each of one range, without filling the order: a
// pass over the lengths that gathers the groups concerned.
func (o *order) some(l Lengths, batches []Batch) [][]uint32 {
	where := make([]int, len(o.start)-1) // of a group in the gathered samples, from 1
	var groups []int
	for _, b := range batches {
		for g := sort.SearchInts(o.start, int(b.Start)+1) - 1; o.start[g] < int(b.Start+b.Count); g++ {
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
		wanted := make([]int, len(o.group))
		for n, g := range o.group {
			wanted[n] = where[g]
		}
		for i := from; i < to; i++ {
			if at := wanted[l[i]]; at > 0 {
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
		for g := sort.SearchInts(o.start, from+1) - 1; o.start[g] < to; g++ {
			part = append(part, all[g][max(0, from-o.start[g]):min(to, o.start[g+1])-o.start[g]]...)
		}
		out = append(out, part)
	}
	return out
}
