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
	keep   bool // the order of the one epoch by which a plan is tuned
	kept   *order
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
	s, t := p.padded(length)
	return p.limits.of(p.of.Cap(s, t), s+t)
}

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
		pad = s.Source<<sideBits | s.Target
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

// order is that of an epoch, kept while its plan is tuned.
func (p *Plan) order(l Lengths, full []uint32, seed, epoch uint64) *order {
	if p.two == nil || !p.two.keep {
		return newOrder(l, full, p.keys(seed, epoch))
	}
	if p.two.kept == nil {
		p.two.kept = newOrder(l, full, p.keys(seed, epoch))
	}
	return p.two.kept
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
		return input.Errorf("micro batches %d: there are no batches of short samples beside others where samples have two lengths; leave this out, or say 1", f.MicroBatches)
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
	if err := two.limits.check(p); err != nil {
		return err
	}
	p.limit, p.Limit = len(p.hist)-1, 1
	two.none = make([]bool, len(two.shapes))
	missing, first, batch := 0, -1, 0
	for k, n := range p.hist {
		if n == 0 {
			continue
		}
		room := two.Cap(k)
		if batch = max(batch, room); room > 0 {
			p.Limit = max(p.Limit, two.shapes[k].Source, two.shapes[k].Target)
			continue
		}
		missing += int(n)
		if two.none[k] = true; first < 0 {
			first = k
		}
		p.hist[k] = 0
	}
	switch {
	case p.BatchMultiple > 1 && batch < p.BatchMultiple && missing < len(l):
		return input.Errorf("batch multiple %d: memory holds %d samples even of the shortest lengths", p.BatchMultiple, batch)
	case missing == 0:
		return nil
	case p.Overlong == Refuse:
		why := "the table has no trial as long in both that ran: profile longer lengths, or skip such samples"
		if s, t := two.padded(first); two.of.Cap(s, t) > 0 {
			why = "the limit on tokens of a step leaves less for a batch"
		}
		return input.Errorf("%d of the samples fit into no batch, as sample %d (%v): %s", missing, slices.Index(l, uint32(first)), two.shapes[first], why)
	case missing == len(l):
		return input.Errorf("none of the samples fits into a batch; all would be skipped")
	}
	p.Skipped = missing
	return nil
}

// boundPairs is the lower bound: as Bound, and since seconds rise with both lengths no sample takes less than in batches of its own kind.
func boundPairs(hist []uint32, rate, speeds []float64) float64 {
	sum, speed := 0.0, 0.0
	for k, n := range hist {
		if n > 0 {
			sum += float64(n) * rate[k]
		}
	}
	for _, v := range speeds {
		speed += v
	}
	return sum / speed
}

// tunePairs finds by whole epochs how large the bands are, and then the number of steps.
func (p *Plan) tunePairs(l Lengths, full []uint32) {
	best, least := 0.0, math.Inf(1)
	p.two.keep = true
	for _, area := range []float64{.25, .5, 1, 2, 4} {
		p.BandArea, p.two.kept = area, nil
		p.aimPairs()
		x := p.predict(l, full)
		if work := x.EpochSeconds / x.Imbalance; work < least { // whatever the last step leaves empty
			best, least = area, work
		}
	}
	p.BandArea, p.two.kept = best, nil
	p.aimPairs()
	p.tune(l, full)
	if p.Steps*p.Ranks <= manyBatches && !p.knobs.random {
		q := *p
		q.FreeCut = true
		if q.Score = q.predict(l, full); q.EpochSeconds < p.EpochSeconds {
			*p = q
		}
	}
	p.two.keep, p.two.kept = false, nil
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
