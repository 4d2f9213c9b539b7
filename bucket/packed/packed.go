// Package packed plans batches whose samples lie end to end, for attention of variable length: nothing is padded.
//
// Make plans; the plan's Schedule cuts the epochs. Samples come in random order. A batch takes a fixed time plus the time of each of
// its samples; each sample takes a part of the memory.
package packed

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"evenkeel/bucket"
	"evenkeel/bucket/internal/input"
	"evenkeel/bucket/internal/ordering"
	"evenkeel/bucket/internal/partition"
	"evenkeel/bucket/stepcost"
)

// Plan is a plan with the histogram of its lengths and its costs.
type Plan struct {
	bucket.Plan
	given bucket.Cost
	cost  *cost
	hist  []uint32 // of the samples that are batched
}

// Make plans. Errors of what was given are of bucket.ErrInput.
func Make(l bucket.Lengths, c bucket.Cost, f bucket.Config) (*Plan, error) {
	given := f.Mixing
	f.Mixing = nil
	if err := f.Complete(); err != nil {
		return nil, err
	}
	f.Mixing = given
	if err := check(&f); err != nil {
		return nil, err
	}
	if len(l) == 0 {
		return nil, input.Errorf("no lengths")
	}
	p := &Plan{Plan: bucket.NewPlan(f, len(l))}
	p.Packed = true
	p.From(c)
	if err := p.prepare(l, c); err != nil {
		return nil, err
	}
	best, rate := partition.Efficient(p.hist, p.cost)
	p.LowerBoundSeconds = partition.Bound(p.hist, rate, f.Speeds, false)
	if err := p.tune(l); err != nil {
		return nil, err
	}
	p.Bands = partition.Bands(p.hist, rate, p.cost, func(length int) int { return partition.Within(p.cost, length, best[length], p.Anchors[0]) })
	p.Data = l.Checksum()
	return p, nil
}

// Bind joins a plan that was read with the lengths it was made for; others are an error.
func Bind(file *bucket.Plan, l bucket.Lengths) (*Plan, error) {
	f := file.Config()
	if err := check(&f); err != nil {
		return nil, err
	}
	if err := file.CheckData(true, false, len(l), l.Checksum()); err != nil {
		return nil, err
	}
	c, err := stepcost.New(file.Table, file.Memory)
	if err != nil {
		return nil, err
	}
	p := &Plan{Plan: *file}
	return p, p.prepare(l, c)
}

// prepare derives what is not in the file.
func (p *Plan) prepare(l bucket.Lengths, c bucket.Cost) error {
	hist := l.Histogram()
	room := func(length int) (batch, tokens int) { return c.Cap(length), length }
	name := func(length int) string { return fmt.Sprint("length ", length) }
	if err := partition.CheckLimits(&p.Plan, l, hist, p.MaxTokens, room, name); err != nil {
		return err
	}
	hist, err := partition.Fit(&p.Plan, hist, c)
	if err != nil {
		return err
	}
	p.given, p.hist, p.cost = c, hist, newCost(c, hist)
	return nil
}

// Cost is what the plan predicts by.
func (p *Plan) Cost() bucket.Cost { return p.cost }

// Rest plans the rest of an epoch for other ranks, with the same costs.
func (p *Plan) Rest(l bucket.Lengths, g bucket.Group) (bucket.Planner, error) {
	return Make(l, p.given, p.ConfigOf(g))
}

// StepBatches is 1 for each rank: faster ranks have larger batches, not more.
func (p *Plan) StepBatches() []int { return slices.Repeat([]int{1}, p.Ranks) }

// check refuses settings about padding and order, and sets the order to random.
func check(f *bucket.Config) error {
	switch {
	case f.Mixing != nil && *f.Mixing != 1:
		return input.Errorf("packed, mixing %v: packed batches are drawn in random order, which costs nothing; leave mixing out", *f.Mixing)
	case f.PadTo > 1 || f.BatchMultiple > 1:
		return input.Errorf("packed, pad to %d, batch multiple %d: packed batches are not padded; leave these out", f.PadTo, f.BatchMultiple)
	case f.MicroBatches > 1:
		return input.Errorf("packed, micro batches %d: each rank has one packed batch in a step; leave this out", f.MicroBatches)
	}
	one := 1.0
	f.Mixing = &one
	return nil
}

// mostPacked is the number of samples up to which several numbers of steps are tried.
const mostPacked = 1_000_000

// tune finds the number of steps, and so the anchor duration. Random samples cannot fill the memory exactly, so it tries several
// parts of the memory for the mean batch to fill.
func (p *Plan) tune(l bucket.Lengths) error {
	fills := []float64{1, .995, .99, .98, .97, .95, .9}
	if len(l) > mostPacked {
		fills = []float64{.98}
	}
	best, before := math.Inf(1), 0
	steps := 0
	var score bucket.Score
	for _, fill := range fills {
		n := p.steps(fill)
		if n == before {
			continue
		}
		p.EvenSteps, before = n, n
		s, err := bucket.Judge(l, p.Schedule(l, 0, 0).All(), p.cost, p.Speeds, p.Limit, nil)
		if err != nil {
			return err
		}
		if s.EpochSeconds < best {
			best, steps, score = s.EpochSeconds, n, s
		}
	}
	score.Skipped, score.Lost = p.Skipped, 0
	p.EvenSteps, p.Score = steps, score
	p.Anchors = []float64{p.anchor(steps)}
	return nil
}

// steps is the number of steps with which the mean batch of the fastest rank fills this part of the memory; limits on samples and tokens
// may raise it. It is at most the number of samples.
func (p *Plan) steps(fill float64) int {
	c := p.cost
	tokens, samples := 0.0, 0.0
	for l, n := range p.hist {
		tokens += float64(n) * float64(l)
		samples += float64(n)
	}
	duration := (c.fixed + c.work/c.filled*fill) / slices.Max(p.Speeds)
	step := 0.0
	for _, v := range p.Speeds {
		step += max(0, duration*v-c.fixed)
	}
	n := max(1, c.filled/(fill*float64(p.Ranks)))
	if step > 0 {
		n = max(n, c.work/step)
	}
	if p.MaxSamples > 0 {
		n = max(n, samples/float64(p.MaxSamples))
	}
	if p.MaxTokens > 0 {
		n = max(n, tokens/(float64(p.MaxTokens)*fill))
	}
	return min(int(math.Ceil(n)), p.Samples)
}

// anchor is the duration of each of a number of equal steps.
func (p *Plan) anchor(steps int) float64 {
	c, speed := p.cost, 0.0
	for _, v := range p.Speeds {
		speed += v
	}
	return (c.work/float64(steps) + c.fixed*float64(p.Ranks)) / speed
}

// keys order an epoch at random, with samples that are left out at the end.
func (p *Plan) keys(of bucket.Samples, seed, epoch uint64) ordering.Keys {
	k := ordering.NewKeys(seed, epoch)
	k.Limit, k.Groups = uint32(p.Limit), 2
	k.Group = func(_ int, v uint32) int {
		if of.Skips(v) {
			return 1
		}
		return 0
	}
	return k
}

// Schedule draws the samples in random order. Each step gets an equal part of the work that is left, or more if its longest sample
// takes longer. Samples are dealt to the ranks, the longest first, each to the rank that would finish it first among those with
// room. A sample for which no rank has room waits for the next step.
func (p *Plan) Schedule(l bucket.Lengths, seed, epoch uint64) *bucket.Schedule {
	c, of := p.cost, p.Of(l)
	o := ordering.New(l, p.keys(of, seed, epoch))
	o.Fill(l)
	end := o.Batched()
	length := func(i uint32) int { return min(int(l[i]), p.Limit) }
	left, speed, fastest := c.work, 0.0, slices.Max(p.Speeds)
	for _, v := range p.Speeds {
		speed += v
	}
	overhead := c.fixed * float64(p.Ranks)
	of.Order = o
	out := bucket.NewSchedule(p.Ranks, p.Skipped, []uint32{0}, nil, of)
	index := make([]uint32, 0, len(l))
	d := newPackers(p.Speeds, c.fixed)
	var chunk, waiting []uint32
	for at, step := 0, 0; at < end || len(waiting) > 0; step++ {
		quota := left / float64(max(1, p.EvenSteps-step)) * (1 + 1e-9)
		chunk = chunk[:0]
		work, tokens := 0.0, 0
		take := func(i uint32) bool {
			n := length(i)
			x := c.sample[n]
			quota = max(quota, speed*(c.fixed+x)/fastest-overhead)
			if len(chunk) > 0 && (work+x/2 > quota || p.MaxTokens > 0 && tokens+n > p.MaxTokens || p.MaxSamples > 0 && len(chunk) == p.MaxSamples) {
				return false
			}
			chunk, work, tokens = append(chunk, i), work+x, tokens+n
			return true
		}
		taken := 0
		for taken < len(waiting) && take(waiting[taken]) {
			taken++
		}
		for taken == len(waiting) && at < end && take(o.Index[at]) {
			at++
		}
		waiting = append(waiting[:0], waiting[taken:]...)
		slices.SortFunc(chunk, func(a, b uint32) int {
			return cmp.Or(cmp.Compare(c.sample[length(b)], c.sample[length(a)]), cmp.Compare(a, b))
		})
		d.clear()
		for _, i := range chunk {
			if n := length(i); !d.put(i, c.sample[n], c.room[n]) {
				waiting = append(waiting, i)
				work -= c.sample[n]
			}
		}
		left -= work
		for rank := range d.all {
			if s := d.all[rank].samples; len(s) > 0 {
				out.Batches = append(out.Batches, bucket.Batch{Start: uint32(len(index)), Count: uint32(len(s)), Rank: uint32(rank)})
				index = append(index, s...)
			}
		}
		out.Steps = append(out.Steps, uint32(len(out.Batches)))
	}
	o.Index = append(index, o.Index[end:]...)
	return out
}
