package bucket

import (
	"math/rand/v2"
	"sort"
	"sync"
)

const (
	unit      = 1 << 16  // the jitter that moves a sample by its whole length
	mostWidth = 3 * unit // the largest jitter
	fewGroups = 1 << 20  // the largest number of groups; if there are more lengths, a group has several
)

// mix joins two numbers to a seed (the finaliser of Steele et al., SplitMix, 2014).
func mix(a, b uint64) uint64 { return scramble(a*0x9e3779b97f4a7c15 + b*0xbf58476d1ce4e5b9) }

func scramble(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// keys say how an epoch is ordered: by group, and at random within each group.
type keys struct {
	seed, epoch uint64
	salt        uint64 // a hash of both, for the random numbers that move lengths
	groups      int    // the last one holds the samples that are left out
	limit       uint32 // longer samples are cut to this length
	group       func(position int, length uint32) int
}

func newKeys(seed, epoch uint64) keys {
	return keys{seed: seed, epoch: epoch, salt: mix(epoch, seed^0x6a09e667f3bcc909)}
}

// chance is 64 random bits of a sample in this epoch (SplitMix, as mix).
func (k *keys) chance(position int) uint64 {
	z := uint64(position)*0x9e3779b97f4a7c15 + k.salt
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	return (z ^ z>>27) * 0x94d049bb133111eb
}

// order is the samples of an epoch, sorted by group and shuffled within each group.
type order struct {
	keys
	index []uint32 // positions of the samples in the data set, in order; nil until fill

	start []int    // by group, and the end of the last one
	pad   []uint32 // by group: the longest length of this group and all groups before it
	sum   []uint64 // by group: the sum of the lengths of all groups before it
}

// newOrder lays out the groups. It reads the lengths once.
func newOrder(l []uint32, k keys) *order {
	o := &order{keys: k, start: make([]int, k.groups+1), pad: make([]uint32, k.groups), sum: make([]uint64, k.groups+1)}
	half := len(l) / 2
	var a, b []tally
	both(func() { a = k.tally(l, 0, half) }, func() { b = k.tally(l, half, len(l)) })
	for g := range k.groups {
		o.start[g+1] = o.start[g] + int(a[g].n+b[g].n)
		o.sum[g+1] = o.sum[g] + a[g].sum + b[g].sum
		o.pad[g] = max(a[g].longest, b[g].longest)
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

func (k *keys) tally(l []uint32, from, to int) []tally {
	out := make([]tally, k.groups)
	for i := from; i < to; i++ {
		v := l[i]
		t := &out[k.group(i, v)]
		v = min(v, k.limit)
		t.n++
		t.longest = max(t.longest, v)
		t.sum += uint64(v)
	}
	return out
}

// batched is the number of samples, without those that are left out.
func (o *order) batched() int { return o.start[len(o.start)-2] }

// fill sorts all samples with a counting sort, in two halves at the same time. The sort is stable: before the shuffle, a group has its
// samples in the order of the data set.
func (o *order) fill(l []uint32) {
	index := make([]uint32, len(l))
	groups := len(o.start) - 1
	half := len(l) / 2
	low := make([]int, groups)
	for i, v := range l[:half] {
		low[o.group(i, v)]++
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

// both runs two functions at the same time.
func both(a, b func()) {
	var wait sync.WaitGroup
	wait.Go(a)
	b()
	wait.Wait()
}

func (o *order) scatter(l []uint32, from, to int, at []int, index []uint32) {
	for i := from; i < to; i++ {
		g := o.group(i, l[i])
		index[at[g]] = uint32(i)
		at[g]++
	}
}

func (o *order) shuffles(from, to int, index []uint32) {
	for g := from; g < to; g++ {
		o.shuffle(g, index[o.start[g]:o.start[g+1]])
	}
}

// shuffle is a Fisher-Yates shuffle. Each group has its own generator, so that groups can be shuffled at the same time.
func (o *order) shuffle(g int, samples []uint32) {
	r := rand.NewPCG(o.seed, mix(o.epoch, uint64(g)+1))
	for i := uint64(len(samples)); i > 1; i-- {
		// Lemire, Fast random integer generation in an interval, 2019, without the
		// rejection: the bias is below 2^-32.
		j := (r.Uint64() >> 32 * i) >> 32
		samples[i-1], samples[j] = samples[j], samples[i-1]
	}
}

// groupAt is the group of a position in the order.
func (o *order) groupAt(pos int) int {
	return sort.Search(len(o.start)-1, func(g int) bool { return o.start[g+1] > pos })
}

// tokensBefore is the sum of the lengths before a position; within a group, each sample counts with the mean length.
func (o *order) tokensBefore(pos int) float64 {
	g := o.groupAt(pos)
	if g == len(o.start)-1 {
		return float64(o.sum[g])
	}
	n := o.start[g+1] - o.start[g]
	return float64(o.sum[g]) + float64(o.sum[g+1]-o.sum[g])*float64(pos-o.start[g])/float64(max(1, n))
}
