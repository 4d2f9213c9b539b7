package paired

import (
	"math"
	"slices"

	"evenkeel/bucket"
	"evenkeel/bucket/internal/input"
	"evenkeel/bucket/internal/partition"
)

// Pairs are samples of two lengths, as for translation.
type Pairs struct {
	// Kinds has an entry for each sample, in the data set's order: a number from 1 that stands for its two lengths. Pass it where plans of
	// one length take lengths.
	Kinds  bucket.Lengths
	shapes []shape // by kind, sorted by source, then target; entry 0 is not used
}

// New joins the lengths of sources and targets, each 1 to bucket.MaxLength. Errors are of ErrInput.
func New(sources, targets bucket.Lengths) (*Pairs, error) {
	if len(sources) != len(targets) {
		return nil, input.Errorf("%d source lengths and %d target lengths: every sample needs both", len(sources), len(targets))
	}
	all := make([]uint64, len(sources))
	for i, s := range sources {
		if t := targets[i]; s < 1 || s > bucket.MaxLength || t < 1 || t > bucket.MaxLength {
			return nil, input.Errorf("sample %d: source %d, target %d: lengths must be 1 to %d", i, s, t, bucket.MaxLength)
		}
		all[i] = uint64(s)<<32 | uint64(targets[i])
	}
	distinct := slices.Clone(all)
	slices.Sort(distinct)
	distinct = slices.Compact(distinct)
	if len(distinct) > bucket.MaxLength {
		return nil, input.Errorf("%d different pairs of lengths; at most %d", len(distinct), bucket.MaxLength)
	}
	p := &Pairs{Kinds: make(bucket.Lengths, len(all)), shapes: make([]shape, 1, len(distinct)+1)}
	for _, v := range distinct {
		p.shapes = append(p.shapes, shape{Source: int(v >> 32), Target: int(v & math.MaxUint32)})
	}
	for i, v := range all {
		at, _ := slices.BinarySearch(distinct, v)
		p.Kinds[i] = uint32(at + 1)
	}
	return p, nil
}

// Checksum identifies the lengths: XXH3 of source and target of each sample as little-endian 32-bit numbers, in hexadecimal.
func (p *Pairs) Checksum() string {
	return input.Checksum(func(yield func(uint32) bool) {
		for _, k := range p.Kinds {
			if s := p.shapes[k]; !yield(uint32(s.Source)) || !yield(uint32(s.Target)) {
				return
			}
		}
	})
}

// Of are the two lengths of a sample.
func (p *Pairs) Of(sample int) (source, target int) {
	s := p.shapes[p.Kinds[sample]]
	return s.Source, s.Target
}

// Uppers are about n pairs of lengths to profile. The sources are cut into ranges of equal numbers of tokens, and so are the targets of
// each range; the longest source and target of each range are a pair. Two more pairs are the samples with the longest source and with
// the longest target.
func (p *Pairs) Uppers(n int) (sources, targets []int, err error) {
	if n < 4 || n > 4096 {
		return nil, nil, input.Errorf("buckets %d: must be 4 to 4096", n)
	}
	hist := p.Kinds.Histogram()
	rows := int(math.Sqrt(float64(n)))
	add := func(s shape) { sources, targets = append(sources, s.Source), append(targets, s.Target) }
	weigh := func(kinds []int, length func(shape) int) (counts []uint32, rate []float64) {
		for _, k := range kinds {
			at := length(p.shapes[k])
			for len(counts) <= at {
				counts, rate = append(counts, 0), append(rate, 0)
			}
			// The rate of a length is its mean number of tokens per sample.
			tokens := float64(hist[k]) * float64(p.shapes[k].Source+p.shapes[k].Target)
			rate[at] = (rate[at]*float64(counts[at]) + tokens) / float64(counts[at]+hist[k])
			counts[at] += hist[k]
		}
		return counts, rate
	}
	var all []int
	longest := [2]shape{}
	for k, c := range hist {
		if s := p.shapes[k]; c > 0 {
			all = append(all, k)
			if s.Source >= longest[0].Source {
				longest[0] = s
			}
			if s.Target >= longest[1].Target {
				longest[1] = s
			}
		}
	}
	add(longest[0])
	add(longest[1])
	source, target := func(s shape) int { return s.Source }, func(s shape) int { return s.Target }
	counts, rate := weigh(all, source)
	from := 0
	for _, upper := range partition.Boundaries(counts, rate, rows) {
		var row []int
		for ; from < len(all) && p.shapes[all[from]].Source <= upper; from++ {
			row = append(row, all[from])
		}
		counts, rate := weigh(row, target)
		for _, t := range partition.Boundaries(counts, rate, n/rows) {
			add(shape{Source: upper, Target: t})
		}
	}
	return sources, targets, nil
}
