package bucket

import (
	"math/rand/v2"
	"slices"
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
	salt        uint64 // a hash of both
	groups      int    // the last one holds the samples that are left out
	limit       uint32 // longer samples are cut to this length
	group       func(position int, length uint32) int
}

// chance is 64 random bits of a sample in this epoch.
func (k *keys) chance(position int) uint64 {
	return scramble(uint64(position)*0x9e3779b97f4a7c15 + k.salt)
}

// order is the samples of an epoch, sorted by group and shuffled within each group.
type order struct {
	keys
	index []uint32 // positions of the samples in the data set, in order; nil until fill

	start []int    // by group, and the end of the last one
	pad   []uint32 // by group: the longest length of this group and all groups before it
}

// newOrder lays out the groups. It reads the lengths once.
func newOrder(l []uint32, k keys) *order {
	o := &order{keys: k, start: make([]int, k.groups+1), pad: make([]uint32, k.groups)}
	for i, v := range l {
		g := k.group(i, v)
		o.start[g+1]++
		o.pad[g] = max(o.pad[g], min(v, k.limit))
	}
	for g := range k.groups {
		o.start[g+1] += o.start[g]
		if g > 0 {
			o.pad[g] = max(o.pad[g], o.pad[g-1])
		}
	}
	return o
}

// fill sorts all samples with a counting sort. It is stable: before the shuffle, a group has its samples in the order of the data set.
func (o *order) fill(l []uint32) {
	o.index = make([]uint32, len(l))
	at := slices.Clone(o.start)
	for i, v := range l {
		g := o.group(i, v)
		o.index[at[g]] = uint32(i)
		at[g]++
	}
	for g := range o.groups {
		// A Fisher-Yates shuffle, by Lemire, Fast random integer generation in an interval, 2019, without the rejection: the bias is below 2^-32.
		r, samples := rand.NewPCG(o.seed, mix(o.epoch, uint64(g)+1)), o.index[o.start[g]:o.start[g+1]]
		for i := uint64(len(samples)); i > 1; i-- {
			j := (r.Uint64() >> 32 * i) >> 32
			samples[i-1], samples[j] = samples[j], samples[i-1]
		}
	}
}
