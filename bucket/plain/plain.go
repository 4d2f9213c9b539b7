// Package plain plans batches of samples of one length, padded to the longest sample in their batch. Make plans; the plan's Schedule cuts
// the epochs. The documentation of package bucket describes the method.
package plain

import (
	"fmt"
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
	cost  device
	knobs partition.Knobs
	job   partition.Job
	width []uint32 // per length: its jitter
}

// Make plans. Errors of what was given are of bucket.ErrInput.
func Make(l bucket.Lengths, c bucket.Cost, f bucket.Config) (*Plan, error) {
	if err := f.Complete(); err != nil {
		return nil, err
	}
	if len(l) == 0 {
		return nil, input.Errorf("no lengths")
	}
	p := &Plan{Plan: bucket.NewPlan(f, len(l))}
	p.From(c)
	rate, err := p.prepare(l, c)
	if err != nil {
		return nil, err
	}
	p.LowerBoundSeconds = partition.Bound(p.job.Hist, rate, f.Speeds, false)
	p.Anchors = partition.SearchAnchors(p.job.Hist, p.cost, p.job.Best, p.knobs.Slack)
	p.aim(rate)
	found := p.job.Tune(p.knobs, p.Samples, func(s bucket.Settings, epoch uint64) partition.Found { return p.predict(l, s, epoch) })
	p.Settings, p.Score = found.Settings, found.Score
	p.Bands = partition.Bands(p.job.Hist, rate, p.cost, func(length int) int {
		b, most := p.job.Best[length], p.job.Target[length]
		if b > partition.FewSamples {
			most *= found.Epoch.Scale
		}
		return partition.Within(p.cost, length, b, most)
	})
	p.Data = l.Checksum()
	return p, nil
}

// Bind joins a plan that was read with the lengths it was made for; others are an error.
func Bind(file *bucket.Plan, l bucket.Lengths) (*Plan, error) {
	if err := file.CheckData(false, len(l), l.Checksum()); err != nil {
		return nil, err
	}
	c, err := stepcost.New(file.Table, file.Memory)
	if err != nil {
		return nil, err
	}
	p := &Plan{Plan: *file}
	rate, err := p.prepare(l, c)
	if err != nil {
		return nil, err
	}
	p.aim(rate)
	return p, nil
}

// prepare derives what is not in the file. rate is the least time per sample of each length.
func (p *Plan) prepare(l bucket.Lengths, c bucket.Cost) (rate []float64, err error) {
	p.knobs = partition.KnobsOf(p.Mixing)
	limits, err := partition.StepLimits(&p.Plan)
	if err != nil {
		return nil, err
	}
	p.given, p.cost = c, device{c, limits}
	hist := l.Histogram()
	name := func(length int) string { return fmt.Sprint("length ", length) }
	if err := partition.CheckLimits(&p.Plan, l, hist, limits.Tokens, p.cost.room, name); err != nil {
		return nil, err
	}
	if hist, err = partition.Fit(&p.Plan, hist, p.cost); err != nil {
		return nil, err
	}
	best, rate := partition.Efficient(hist, p.cost)
	p.job = partition.Job{Cost: p.cost, Hist: hist, Best: best, Size: func(length int, share float64) int { return min(best[length], p.cost.most(length, share)) }, Cap: p.cost.most,
		LongestBatch: p.cost.Seconds(p.Limit, p.cost.Cap(p.Limit)), Speeds: p.Speeds, MicroBatches: p.MicroBatches}
	return rate, nil
}

// aim sets the anchor and the jitter of each length.
func (p *Plan) aim(rate []float64) {
	p.job.Aim(p.Anchors)
	if p.knobs.Padding > 0 {
		p.width = jitter(p.job.Hist, p.job.Best, rate, p.knobs.Padding)
	}
}

// keys order an epoch by length. Each sample moves up by a random part of its length, so that neighbours differ from epoch to epoch.
func (p *Plan) keys(seed, epoch uint64) ordering.Keys {
	k := ordering.NewKeys(seed, epoch)
	limit, skip := uint32(p.Limit), p.Overlong == bucket.Skip
	k.Limit = limit
	shift := uint(0) // a group has 2^shift lengths
	top := uint64(p.Limit)
	switch {
	case p.knobs.Random:
		top = 0
	case p.width != nil:
		for l, w := range p.width {
			top = max(top, uint64(l)+(uint64(l)*uint64(w))>>16+1)
		}
		for top>>shift > ordering.FewGroups {
			shift++
		}
	}
	k.Groups = int(top>>shift) + 2
	last, width, random := k.Groups-1, p.width, p.knobs.Random
	k.Group = func(position int, v uint32) int {
		if v > limit {
			if skip {
				return last
			}
			v = limit
		}
		switch {
		case random:
			return 0
		case width == nil:
			return int(v)
		}
		// Move by up to width x length; 20 bits of chance.
		span := uint64(v)*uint64(width[v]) + ordering.Unit
		if width[v] == 0 {
			span = 0
		}
		return int((uint64(v) + (k.Chance(position)>>44)*span>>36) >> shift)
	}
	return k
}

// dispatch cuts an epoch with some settings.
func (p *Plan) dispatch(l bucket.Lengths, s bucket.Settings, seed, epoch uint64) *partition.Epoch {
	o := ordering.New(l, p.keys(seed, epoch))
	job := p.job
	job.Settings = s
	if p.knobs.Loose {
		o.Fill(l)
		return job.Dispatch(o, loose{p, l, o.Index}, nil)
	}
	return job.Dispatch(o, partition.Grouped(o, p.cost, p.BatchMultiple), nil)
}

// loose is a row of samples in nearly random order. The longest sample of a group says little about the others, so batches are cut by
// true lengths.
type loose struct {
	p     *Plan
	l     bucket.Lengths
	index []uint32
}

// Next implements partition.Row.
func (r loose) Next(pos int) int { return min(int(r.l[r.index[pos-1]]), r.p.Limit) }

// Take implements partition.Row.
func (r loose) Take(pos, longest int, most float64, size func(length int) int) (n, pad int) {
	for n = 1; n < pos; n++ {
		v := max(longest, r.Next(pos-n))
		if n+1 > size(v) || r.p.cost.Seconds(v, n+1) > most {
			break
		}
		longest = v
	}
	return partition.Whole(n, n, r.p.BatchMultiple), longest
}

// predict scores an epoch of seed 0 without sorting the data set. It assumes that a batch is padded to the longest length of its groups.
func (p *Plan) predict(l bucket.Lengths, s bucket.Settings, epoch uint64) partition.Found {
	e := p.dispatch(l, s, 0, epoch)
	score := e.Predict(p.Speeds, func(b partition.Placed) bucket.Measured {
		tokens := e.Order.TokensBefore(int(b.Start+b.Count)) - e.Order.TokensBefore(int(b.Start))
		return bucket.Padded(p.cost, b.Longest, int(b.Count), tokens)
	})
	score.Skipped = p.Skipped
	return partition.Found{Settings: s, Score: score, Epoch: e}
}

// Schedule cuts an epoch of the lengths that the plan was made for.
func (p *Plan) Schedule(l bucket.Lengths, seed, epoch uint64) *bucket.Schedule {
	return p.dispatch(l, p.Settings, seed, epoch).Schedule(&p.Plan, p.Of(l))
}

// Cost is what the plan predicts by: the given cost, with the plan's multiples and limits.
func (p *Plan) Cost() bucket.Cost { return p.cost }

// Rest plans the rest of an epoch for other ranks, with the same costs.
func (p *Plan) Rest(l bucket.Lengths, g bucket.Group) (bucket.Planner, error) {
	return Make(l, p.given, p.ConfigOf(g))
}

// StepBatches is the number of batches of each rank in a full step.
func (p *Plan) StepBatches() []int { return partition.StepBatches(&p.Plan) }

// device is a cost with lengths padded to a multiple, batches computed in multiples, and the limits of a step.
type device struct {
	bucket.Cost
	limits partition.Limits
}

func (d device) padded(length int) int { return partition.Up(length, d.limits.PadTo) }

// Seconds of a batch of that many samples padded to length.
func (d device) Seconds(length, batch int) float64 {
	return d.Cost.Seconds(d.padded(length), partition.Up(batch, d.limits.Multiple))
}

// Cap is the largest batch within memory and the limits.
func (d device) Cap(length int) int { return d.most(length, 1) }

// most is that of a place with this share.
func (d device) most(length int, share float64) int {
	n, tokens := d.room(length)
	return d.limits.Of(n, tokens, share)
}

func (d device) room(length int) (batch, tokens int) {
	length = d.padded(length)
	return d.Cost.Cap(length), length
}

// Breaks are the multiples next to the breaks of the cost.
func (d device) Breaks(length int) []int {
	inner := d.Cost.Breaks(d.padded(length))
	m := d.limits.Multiple
	if m == 1 {
		return inner
	}
	out := []int{m}
	for _, b := range inner {
		out = append(out, b-b%m, partition.Up(b, m))
	}
	out = slices.DeleteFunc(out, func(b int) bool { return b < 1 })
	slices.Sort(out)
	return slices.Compact(out)
}

// Bound is the lower bound of the epoch time in seconds: no schedule of these samples on
// ranks of these speeds (relative; 1: the cost's own) is shorter, whatever its batches.
//
// A batch padded to length L takes at least rate(L) = min over B of Seconds(L, B)/B per
// sample, B up to Cap(L). A sample of length l may ride in a batch of any occurring length
// L >= l, so it costs at least r(l) = min over such L of rate(L). A step lasts s; in it
// rank i does at most s times its speed of work. So the epoch lasts at least the sum of
// r(l) over all samples, divided by the sum of the speeds. Samples that fit nowhere count
// as the longest length that fits: use the plan's own bound where they are skipped.
func Bound(l bucket.Lengths, c bucket.Cost, speeds []float64) float64 {
	hist := l.Histogram()
	top := len(hist) - 1
	for top > 0 && c.Cap(top) < 1 {
		hist[top-1] += hist[top]
		top--
	}
	hist = hist[:top+1]
	_, rate := partition.Efficient(hist, c)
	return partition.Bound(hist, rate, speeds, false)
}

// Uppers are the longest lengths of n ranges with equal numbers of tokens, to be profiled: lengths on which an epoch spends more time get
// more trials. Errors are of bucket.ErrInput.
func Uppers(l bucket.Lengths, n int) ([]int, error) {
	if n < 2 || n > 4096 {
		return nil, input.Errorf("buckets %d: must be 2 to 4096", n)
	}
	hist := l.Histogram()
	rate := make([]float64, len(hist))
	for k := range rate {
		rate[k] = float64(k)
	}
	return partition.Boundaries(hist, rate, n), nil
}
