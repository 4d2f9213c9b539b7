package bucket

import (
	"math"
	"slices"
	"sort"

	"evenkeel/bucket/stepcost"
	"evenkeel/internal/badinput"
)

// Make plans.
func Make(l Lengths, c Cost, f Config) (*Plan, error) {
	if err := f.complete(); err != nil {
		return nil, err
	}
	if len(l) == 0 {
		return nil, badinput.Errorf("no lengths")
	}
	p := &Plan{Version: planVersion, Samples: len(l), Config: f}
	if t, ok := c.(*stepcost.Model); ok {
		p.Table, p.Memory = t.Source()
	}
	if err := p.prepare(l, c); err != nil {
		return nil, err
	}
	p.LowerBoundSeconds = bound(p.hist, p.rate, f.Speeds)
	p.Anchors = searchAnchors(p.hist, p.cost, p.best, slack**p.Mixing)
	p.aim()
	if p.Score = p.dispatch(l, 0, 0).predict(); p.Steps*p.Ranks <= fewBatches {
		p.shorten(l)
	}
	p.Bands = p.bands()
	p.Data = l.Checksum()
	var err error
	p.Checksum, err = p.sum()
	return p, err
}

// Bind joins a plan that was read with the lengths it was made for; others are an error.
func (p *Plan) Bind(l Lengths) error {
	if sum := l.Checksum(); len(l) != p.Samples || sum != p.Data {
		return badinput.Errorf("the lengths are not those of the plan (%d samples with checksum %s; these are %d with %s): plan anew with these lengths", p.Samples, p.Data, len(l), sum)
	}
	c, err := stepcost.New(p.Table, p.Memory)
	if err != nil {
		return err
	}
	if err = p.prepare(l, c); err == nil {
		p.aim()
	}
	return err
}

// prepare derives what is not in the file.
func (p *Plan) prepare(l Lengths, c Cost) error {
	_, classes := p.slots()
	limits, err := p.limits(classes)
	if err != nil {
		return err
	}
	p.given, p.cost, p.hist = c, device{c, limits}, l.Histogram()
	if err := p.checkLimits(l); err != nil {
		return err
	}
	if err = p.fit(); err == nil {
		p.best, p.rate = efficient(p.hist, p.cost)
	}
	return err
}

// fit finds the longest length that fits into a batch. As the plan says, it refuses longer samples, truncates them to that length or drops them.
func (p *Plan) fit() error {
	longest := len(p.hist) - 1
	if p.Limit = longest; p.cost.Cap(longest) > 0 {
		return nil
	}
	p.Limit = sort.Search(longest, func(n int) bool { return p.cost.Cap(n+1) < 1 })
	n := 0
	for _, of := range p.hist[p.Limit+1:] {
		n += int(of)
	}
	switch {
	case p.Overlong == Refuse || p.Limit == 0:
		return badinput.Errorf("no batch holds samples longer than %d, and there are %d, the longest of %d: the cost table has no trial of such a length that ran; profile longer lengths, or skip or truncate such samples (--overlong skip)",
			p.Limit, n, longest)
	case p.Overlong == Truncate:
		p.hist[p.Limit] += uint32(n)
	case n == p.Samples:
		return badinput.Errorf("every sample is longer than %d and would be skipped", p.Limit)
	default:
		p.Skipped = n
	}
	p.hist = p.hist[:p.Limit+1]
	return nil
}

// skips says whether samples of a length are left out.
func (p *Plan) skips(length uint32) bool { return p.Overlong == Skip && int(length) > p.Limit }

// aim sets the anchor duration and the jitter of each length.
func (p *Plan) aim() {
	p.target = targets(p.hist, p.cost, p.best, p.Anchors)
	p.width = nil
	if *p.Mixing > 0 {
		p.width = jitter(p.hist, p.best, p.rate, padding**p.Mixing)
	}
}

// How the cost of mixing is spent: few anchor durations, with which batches of more lengths take equally long; samples that move in the order, which
// pads; and steps of batches that last unequally long. Thirds left the fewest pairs of step-mates to meet again, in two large sets and two small ones.
const (
	slack   = 1. / 3
	padding = 1. / 3
	waiting = 1. / 3
)

// fewBatches: in an epoch of up to so many batches, the last step counts, and shorter anchors are tried, which may fill it better.
const fewBatches = 1000

// predict cuts and scores two epochs. The score is that of the first, the seconds are those of both.
func (p *Plan) predict(l Lengths) (Score, float64) {
	s := p.dispatch(l, 0, 0).predict()
	return s, s.EpochSeconds + p.dispatch(l, 0, 1).predict().EpochSeconds
}

// shorten tries anchors down to an eighth as long.
func (p *Plan) shorten(l Lengths) {
	anchors := p.Anchors
	best, score, least := anchors, p.Score, math.Inf(1)
	tries := max(1, min(36, 4_000_000/len(l)))
	for k := range tries + 1 {
		p.Anchors = make([]float64, len(anchors))
		for i, a := range anchors {
			p.Anchors[i] = a * math.Exp2(-3*float64(k)/float64(tries))
		}
		p.aim()
		if s, seconds := p.predict(l); seconds < least {
			best, score, least = p.Anchors, s, seconds
		}
	}
	p.Anchors, p.Score = best, score
	p.aim()
}

// Schedule cuts an epoch of the lengths that the plan was made for.
func (p *Plan) Schedule(l Lengths, seed, epoch uint64) *Schedule {
	s := p.dispatch(l, seed, epoch)
	s.stepSamples, s.stepTokens = p.StepSize()
	return s
}

// size is the number of samples that are batched, and their tokens without padding.
func (p *Plan) size() (samples, tokens float64) {
	for l, n := range p.hist {
		samples += float64(n)
		tokens += float64(n) * float64(l)
	}
	return samples, tokens
}

// StepSize is what a mean step of the predicted epoch has over all ranks: its samples, and their tokens without padding.
func (p *Plan) StepSize() (samples, tokens float64) {
	samples, tokens = p.size()
	steps := float64(max(1, p.Steps))
	return samples / steps, tokens / steps
}

// bands are up to twelve ranges of lengths of about equal work.
func (p *Plan) bands() (out []Band) {
	for _, u := range boundaries(p.hist, p.rate, 12) {
		b := within(p.cost, u, p.best[u], p.target[u])
		out = append(out, Band{Upper: u, Batch: b, Seconds: p.cost.Seconds(u, b)})
	}
	for l, n := range p.hist {
		if n > 0 {
			out[sort.Search(len(out)-1, func(k int) bool { return out[k].Upper >= l })].Samples += int(n)
		}
	}
	return out
}

// keys order an epoch by length. Each sample moves up by a random part of its length, so that neighbours differ from epoch to epoch.
func (p *Plan) keys(seed, epoch uint64) keys {
	limit := uint32(p.Limit)
	k := keys{seed: seed, epoch: epoch, salt: mix(epoch, seed^0x6a09e667f3bcc909), limit: limit}
	top, shift := uint64(p.Limit), uint(0) // a group has 2^shift lengths
	for l, w := range p.width {
		top = max(top, uint64(l)+(uint64(l)*uint64(w))>>16+1)
	}
	for top>>shift > fewGroups {
		shift++
	}
	k.groups = int(top>>shift) + 2
	k.group = func(position int, v uint32) int {
		if p.skips(v) {
			return k.groups - 1
		}
		v = min(v, limit)
		span := uint64(0)
		if p.width != nil && p.width[v] > 0 { // move by up to width x length; 20 bits of chance
			span = uint64(v)*uint64(p.width[v]) + unit
		}
		return int((uint64(v) + (k.chance(position)>>44)*span>>36) >> shift)
	}
	return k
}

// device is a cost with lengths padded to a multiple, and the limits of a step.
type device struct {
	Cost
	limits limits
}

// Seconds of a batch of that many samples padded to length.
func (d device) Seconds(length, batch int) float64 {
	return d.Cost.Seconds(up(length, d.limits.padTo), batch)
}

// Cap is the largest batch within memory and the limits.
func (d device) Cap(length int) int { return d.most(length, 1) }

// most is that of a place with this share.
func (d device) most(length int, share float64) int {
	length = up(length, d.limits.padTo)
	return d.limits.of(d.Cost.Cap(length), length, share)
}

// bound is the lower bound of the epoch time in seconds: no schedule of these samples on ranks of these speeds is shorter, whatever its batches.
//
// A sample of a batch padded to length L takes at least what one of the largest batch takes. A sample of length l may ride in a batch of any
// occurring length L >= l, and costs at least the least of these. A step lasts s; in it a rank does at most s times its speed of work. So the
// epoch lasts at least the sum over all samples, divided by the sum of the speeds.
func bound(hist []uint32, rate, speeds []float64) float64 {
	speed, sum, least := 0.0, 0.0, math.Inf(1)
	for _, v := range speeds {
		speed += v
	}
	for l, n := range slices.Backward(hist) {
		if n > 0 {
			least = min(least, rate[l])
			sum += float64(n) * least
		}
	}
	return sum / speed
}

// efficient returns, for each length that occurs, the largest batch, which is the most efficient, and its time per sample.
func efficient(hist []uint32, c Cost) (best []int, rate []float64) {
	best, rate = make([]int, len(hist)), make([]float64, len(hist))
	for l, n := range hist {
		if n > 0 {
			best[l] = c.Cap(l)
			rate[l] = c.Seconds(l, best[l]) / float64(best[l])
		}
	}
	return best, rate
}

// boundaries cuts the lengths of a histogram into at most n ranges of about equal work (samples times rate), and returns the longest length of each.
func boundaries(hist []uint32, rate []float64, n int) (out []int) {
	total, sum, longest := 0.0, 0.0, 0
	for l, c := range hist {
		if c > 0 {
			longest = l
			total += float64(c) * rate[l]
		}
	}
	for l, c := range hist {
		if sum += float64(c) * rate[l]; c > 0 && (l == longest || sum >= total*float64(len(out)+1)/float64(n) && len(out) < n-1) {
			out = append(out, l)
		}
	}
	return out
}
