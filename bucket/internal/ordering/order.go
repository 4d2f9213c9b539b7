package ordering

import (
	"math/rand/v2"
	"sort"
	"sync"
)

// Keys say how an epoch is ordered: by group, and at random within each group.
type Keys struct {
	Seed, Epoch uint64
	Salt        uint64 // a hash of both, for the random numbers that move lengths
	Groups      int    // number of groups; the last one holds the samples that are left out
	Limit       uint32 // longer samples are cut to this length
	// Group is the group of the sample at a position, with a length.
	Group func(position int, length uint32) int
}

// NewKeys makes the keys of an epoch without groups.
func NewKeys(seed, epoch uint64) Keys {
	return Keys{Seed: seed, Epoch: epoch, Salt: Mix(epoch, seed^0x6a09e667f3bcc909)}
}

// Chance is 64 random bits of a sample in this epoch (SplitMix, as Mix).
func (k *Keys) Chance(position int) uint64 {
	z := uint64(position)*0x9e3779b97f4a7c15 + k.Salt
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	return (z ^ z>>27) * 0x94d049bb133111eb
}

// Order is the samples of an epoch, sorted by group and shuffled within each group.
type Order struct {
	Keys
	// Index are the positions of the samples in the data set, in order; nil until Fill or a mode sets it.
	Index []uint32

	start []int    // by group, and the end of the last one
	pad   []uint32 // by group: the longest length of this group and all groups before it
	sum   []uint64 // by group: the sum of the lengths of all groups before it
}

// New lays out the groups. It reads the lengths once.
func New(l []uint32, k Keys) *Order {
	o := &Order{Keys: k, start: make([]int, k.Groups+1), pad: make([]uint32, k.Groups), sum: make([]uint64, k.Groups+1)}
	half := len(l) / 2
	var a, b []tally
	both(func() { a = k.tally(l, 0, half) }, func() { b = k.tally(l, half, len(l)) })
	for g := range k.Groups {
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

func (k *Keys) tally(l []uint32, from, to int) []tally {
	out := make([]tally, k.Groups)
	for i := from; i < to; i++ {
		v := l[i]
		t := &out[k.Group(i, v)]
		v = min(v, k.Limit)
		t.n++
		t.longest = max(t.longest, v)
		t.sum += uint64(v)
	}
	return out
}

// Batched is the number of samples, without those that are left out.
func (o *Order) Batched() int { return o.start[len(o.start)-2] }

// Groups is the number of groups, without that of the samples that are left out.
func (o *Order) Groups() int { return len(o.start) - 2 }

// Start is the first position of a group.
func (o *Order) Start(group int) int { return o.start[group] }

// Pad is the longest length of a group and all groups before it.
func (o *Order) Pad(group int) int { return int(o.pad[group]) }

// Fill sorts all samples with a counting sort, in two halves at the same time. The sort is stable: before the shuffle, a group has its
// samples in the order of the data set.
func (o *Order) Fill(l []uint32) {
	index := make([]uint32, len(l))
	groups := len(o.start) - 1
	half := len(l) / 2
	low := make([]int, groups)
	for i, v := range l[:half] {
		low[o.Keys.Group(i, v)]++
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
	o.Index = index
}

// both runs two functions at the same time.
func both(a, b func()) {
	var wait sync.WaitGroup
	wait.Go(a)
	b()
	wait.Wait()
}

func (o *Order) scatter(l []uint32, from, to int, at []int, index []uint32) {
	for i := from; i < to; i++ {
		g := o.Keys.Group(i, l[i])
		index[at[g]] = uint32(i)
		at[g]++
	}
}

func (o *Order) shuffles(from, to int, index []uint32) {
	for g := from; g < to; g++ {
		o.shuffle(g, index[o.start[g]:o.start[g+1]])
	}
}

// shuffle is a Fisher-Yates shuffle. Each group has its own generator, so that groups can be shuffled at the same time.
func (o *Order) shuffle(g int, samples []uint32) {
	r := rand.NewPCG(o.Seed, Mix(o.Epoch, uint64(g)+1))
	for i := uint64(len(samples)); i > 1; i-- {
		// Lemire, Fast random integer generation in an interval, 2019, without the
		// rejection: the bias is below 2^-32.
		j := (r.Uint64() >> 32 * i) >> 32
		samples[i-1], samples[j] = samples[j], samples[i-1]
	}
}

// GroupAt is the group of a position in the order.
func (o *Order) GroupAt(pos int) int {
	return sort.Search(len(o.start)-1, func(g int) bool { return o.start[g+1] > pos })
}

// TokensBefore is the sum of the lengths before a position; within a group, each sample counts with the mean length.
func (o *Order) TokensBefore(pos int) float64 {
	g := o.GroupAt(pos)
	if g == len(o.start)-1 {
		return float64(o.sum[g])
	}
	n := o.start[g+1] - o.start[g]
	return float64(o.sum[g]) + float64(o.sum[g+1]-o.sum[g])*float64(pos-o.start[g])/float64(max(1, n))
}
