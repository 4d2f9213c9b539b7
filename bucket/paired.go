package bucket

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/evenkeel/evenkeel/bucket/internal/input"
	"github.com/evenkeel/evenkeel/bucket/internal/ordering"
)

// PairCost predicts a step of one rank of speed 1 whose samples have two lengths.
type PairCost interface {
	// Seconds of a batch of that many samples padded to these lengths; it rises with each of the three.
	Seconds(source, target, batch int) float64
	// Cap is the largest batch of these lengths that fits into memory; 0: none. That of
	// longer ones is no larger.
	Cap(source, target int) int
}

// paired is the cost of batches whose sources and targets are padded apart, in the form in which a plan takes costs. A length is there
// the number of a kind of samples, or where several share a batch, the longest source and the longest target in one number.
type paired struct {
	of     PairCost
	shapes []shape
	limits limits
	none   []bool // by kind: it fits nowhere
	bands  ordering.Bands
	kept   map[uint64]*order // while a plan is tuned, the orders of the epochs by which it is
}

const sideBits = 25 // of MaxLength; a kind's number has fewer

// sides are the lengths to which a batch is padded.
func (p *paired) sides(length int) (source, target int) {
	if length < 1<<sideBits {
		s := p.shapes[length]
		return s.Source, s.Target
	}
	return length >> sideBits, length & (1<<sideBits - 1)
}

// join is the length of a batch of two lengths.
func (p *paired) join(a, b int) int {
	if a == b {
		return a
	}
	s, t := p.sides(a)
	s2, t2 := p.sides(b)
	return max(s, s2)<<sideBits | max(t, t2)
}

func (p *paired) padded(length int) (source, target int) {
	s, t := p.sides(length)
	return up(s, p.limits.padTo), up(t, p.limits.padTo)
}

// Seconds of a batch of that many samples.
func (p *paired) Seconds(length, batch int) float64 {
	s, t := p.padded(length)
	return p.of.Seconds(s, t, up(batch, p.limits.multiple))
}

// Cap is the largest batch within memory and the limits.
func (p *paired) Cap(length int) int {
	return p.limits.of(p.room(length))
}

func (p *paired) stepLimits() limits { return p.limits }

func (p *paired) room(length int) (batch, tokens int) {
	s, t := p.padded(length)
	return p.of.Cap(s, t), s + t
}

func (p *paired) name(kind int) string { return p.shapes[kind].String() }

// Breaks are the least and the largest of whole multiples: between these a batch takes longer in proportion.
func (p *paired) Breaks(length int) []int {
	m := p.limits.multiple
	if m == 1 {
		return nil
	}
	n := p.Cap(length)
	return []int{m, max(m, n-n%m)}
}

// batch is what samples need: the length of their batch, and the sums of their sources and targets.
func (p *paired) batch(l Lengths, samples []uint32) (length int, sources, targets float64) {
	length = int(l[samples[0]])
	for _, i := range samples {
		s := p.shapes[l[i]]
		sources, targets = sources+float64(s.Source), targets+float64(s.Target)
		length = p.join(length, int(l[i]))
	}
	return length, sources, targets
}

// lined are the lengths of samples in their order.
func (p *paired) lined(l Lengths, samples []uint32) []shape {
	out := make([]shape, len(samples))
	for at, i := range samples {
		out[at] = p.shapes[l[i]]
	}
	return out
}

// takePair is take where samples have two lengths: the batch is joined to the longest of both as it grows.
func (c *cutter) takePair(pos int, most float64, size func(length int) int) (n, pad int) {
	room := func(s shape) int { // samples of a batch padded to these lengths
		pad := s.Source<<sideBits | s.Target
		top := size(pad)
		if c.p.cost.Seconds(pad, top) > most {
			top = sort.Search(top, func(b int) bool { return c.p.cost.Seconds(pad, b+1) > most })
		}
		return top
	}
	longest := c.sides[pos-1]
	n, top := 1, room(longest)
	for ; n < pos; n++ {
		s := c.sides[pos-n-1]
		if s.Source > longest.Source || s.Target > longest.Target {
			s.Source, s.Target = max(s.Source, longest.Source), max(s.Target, longest.Target)
			if more := room(s); n < more {
				longest, top = s, more
				continue
			}
			break
		}
		if n >= top {
			break
		}
	}
	return n, longest.Source<<sideBits | longest.Target
}

// cutFreely cuts the order into batches that take the least time in all. Steps then take batches of similar duration: what they wait for each
// other is less than the longest batch, in all of the epoch.
func (d *dealer) cutFreely(end int) {
	two := d.p.two
	length := func(s shape) int { return s.Source<<sideBits | s.Target }
	piece := func(at, end int) cut {
		pad := length(d.sides[at])
		for _, s := range d.sides[at:end] {
			pad = two.join(pad, length(s))
		}
		return cut{uint32(at), uint32(end - at), pad, two.Seconds(pad, end-at)}
	}
	var cuts []cut
	at := 0
	for _, end := range ordering.Cut(d.sides[:end], func(s shape) int { return max(1, two.Cap(length(s))) }, func(s shape, n int) float64 { return two.Seconds(length(s), n) }) {
		cuts = append(cuts, piece(at, end))
		at = end
	}
	slices.SortFunc(cuts, func(a, b cut) int { return cmp.Or(cmp.Compare(b.seconds, a.seconds), cmp.Compare(a.start, b.start)) })
	for i := range min(len(cuts), (d.places-len(cuts)%d.places)%d.places) { // places that would be idle in the last step get halves of the longest
		if start, n := int(cuts[i].start), int(cuts[i].count); n > 1 {
			half := n / 2
			if m := two.limits.multiple; half >= m {
				half -= half % m
			}
			cuts[i] = piece(start, start+half)
			cuts = append(cuts, piece(start+half, start+n))
		}
	}
	d.cuts, d.rest = [][]cut{cuts}, 0
	d.cycles = (len(cuts) + d.places - 1) / d.places
	d.windows()
}

// order is that of an epoch of the seed, kept while its plan is tuned.
func (p *Plan) order(l Lengths, full []uint32, seed, epoch uint64) *order {
	if p.two == nil || p.two.kept == nil {
		return newOrder(l, full, p.keys(seed, epoch))
	}
	o := p.two.kept[epoch]
	if o == nil {
		o = newOrder(l, full, p.keys(seed, epoch))
		p.two.kept[epoch] = o
	}
	return o
}

// MakePairs plans for samples of two lengths that are padded apart. Errors of what was given are of ErrInput.
func MakePairs(l *Pairs, c PairCost, f Config) (*Plan, error) {
	if err := f.checkPairs(); err != nil {
		return nil, err
	}
	return makePlan(l.Kinds, nil, &paired{of: c, shapes: l.shapes}, f)
}

// checkPairs refuses what takes one length.
func (f *Config) checkPairs() error {
	switch {
	case f.Packed:
		return input.Errorf("packed: samples of two lengths lie in no row end to end; plan their sum, or leave packed out")
	case f.Overlong == Truncate:
		return input.Errorf("overlong %s: of two lengths it is not said which is to be cut; skip such samples, or cut them beforehand", Truncate)
	case f.MicroBatches > 1:
		return input.Errorf("micro batches %d: not where samples have two lengths; say 1, or leave this out: faster ranks then have several", f.MicroBatches)
	}
	return nil
}

// BindPairs joins a plan for samples of two lengths that was read with the lengths it was made for; others are an error.
func (p *Plan) BindPairs(l *Pairs) error {
	if !p.Pairs {
		return input.Errorf("the plan is for samples of one length: give one column, or two as --pair sum or max, as it was made")
	}
	return p.bind(l.Kinds, &paired{shapes: l.shapes})
}

// measurePairs finds what fits, and drops what does not.
func (p *Plan) measurePairs(l Lengths) error {
	two := p.two
	p.limit, p.Limit = len(p.hist)-1, 1
	if err := p.checkLimits(l, two); err != nil {
		return err
	}
	two.none = make([]bool, len(two.shapes))
	missing, first := 0, -1
	for k, n := range p.hist {
		switch {
		case n == 0:
		case two.Cap(k) > 0:
			p.Limit = max(p.Limit, two.shapes[k].Source, two.shapes[k].Target)
		default:
			if missing += int(n); first < 0 {
				first = k
			}
			two.none[k], p.hist[k] = true, 0
		}
	}
	switch {
	case missing > 0 && p.Overlong == Refuse:
		return input.Errorf("%d of the samples fit into no batch, as sample %d (%v): the table has no trial as long in both that ran: profile longer lengths, or skip such samples (--overlong skip)",
			missing, slices.Index(l, uint32(first)), two.shapes[first])
	case missing == len(l):
		return input.Errorf("none of the samples fits into a batch; all would be skipped")
	}
	p.Skipped = missing
	return nil
}

// pairBands are twelve ranges of sources of equal work, with the longest target in each. Batch and seconds are the mean of the batches
// that its samples fill in the predicted epoch: the same lengths are in batches of different sizes, by what else these hold.
func (p *Plan) pairBands(l Lengths, rate []float64) (out []Band) {
	var counts []uint32
	var mean []float64 // of the rate, by source
	for k, n := range p.hist {
		if s := p.two.shapes[k].Source; n > 0 {
			for len(counts) <= s {
				counts, mean = append(counts, 0), append(mean, 0)
			}
			counts[s] += n
			mean[s] += (rate[k] - mean[s]) * float64(n) / float64(counts[s])
		}
	}
	for _, u := range boundaries(counts, mean, 12) {
		out = append(out, Band{Upper: u})
	}
	of := func(kind uint32) int {
		return sort.Search(len(out)-1, func(b int) bool { return out[b].Upper >= p.two.shapes[kind].Source })
	}
	for k, n := range p.hist {
		if n > 0 {
			b := &out[of(uint32(k))]
			b.Samples, b.Target = b.Samples+int(n), max(b.Target, p.two.shapes[k].Target)
		}
	}
	filled := make([]float64, len(out)) // batches
	d := p.last
	p.last = nil
	for _, b := range d.batches {
		samples := d.o.index[b.Start : b.Start+b.Count]
		length, _, _ := p.two.batch(l, samples)
		seconds := p.two.Seconds(length, len(samples)) / p.Speeds[b.Rank]
		for _, i := range samples {
			k, part := of(l[i]), 1/float64(len(samples))
			filled[k], out[k].Seconds = filled[k]+part, out[k].Seconds+part*seconds
		}
	}
	for k := range out {
		out[k].Batch, out[k].Seconds = int(float64(out[k].Samples)/filled[k]+.5), out[k].Seconds/filled[k]
	}
	return out
}

// tunePairs finds by whole epochs how large the bands are, and then the number of steps.
func (p *Plan) tunePairs(l Lengths, full []uint32) {
	best, least := 0.0, math.Inf(1)
	for _, area := range []float64{.25, .5, 1, 2, 4} {
		p.BandArea, p.two.kept = area, map[uint64]*order{}
		p.aimPairs()
		x := p.predict(l, full)
		if work := x.EpochSeconds / x.Imbalance; work < least { // whatever the last step leaves empty
			best, least = area, work
		}
	}
	p.BandArea, p.two.kept = best, map[uint64]*order{}
	p.aimPairs()
	p.tune(l, full)
	if p.Steps*p.Ranks <= manyBatches && !p.knobs.random {
		q := *p
		q.FreeCut = true
		if q.Score = q.predict(l, full); q.EpochSeconds < p.EpochSeconds {
			*p = q
		}
	}
	p.two.kept = nil
}

// aimPairs finds what the bands need of the plan.
func (p *Plan) aimPairs() {
	b := ordering.NewBands(p.BandArea, p.knobs.padding)
	for k, n := range p.hist {
		if n > 0 {
			b.Add(p.two.shapes[k].Source, float64(n)/float64(within(p.cost, k, p.best[k], p.target[k])))
		}
	}
	p.two.bands = b
}
