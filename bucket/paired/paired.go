// Package paired plans batches of samples with two lengths, a source and a target, as for translation. A batch pads its sources to its
// longest source and its targets to its longest target.
//
// New joins the lengths, Make plans, and the plan's Schedule cuts the epochs.
package paired

import (
	"math"
	"slices"
	"sort"

	"evenkeel/bucket"
	"evenkeel/bucket/internal/input"
	"evenkeel/bucket/internal/ordering"
	"evenkeel/bucket/internal/partition"
	"evenkeel/bucket/stepcost"
)

// Plan is a plan with the histogram of its lengths and its costs. Where a function of package bucket takes lengths, pass Pairs.Kinds.
type Plan struct {
	bucket.Plan
	cost  *cost
	knobs partition.Knobs
	job   partition.Job
	order bands
}

// Make plans. Errors of what was given are of bucket.ErrInput.
func Make(l *Pairs, c Cost, f bucket.Config) (*Plan, error) { return plan(l.Kinds, l.shapes, c, f) }

func plan(l bucket.Lengths, shapes []shape, c Cost, f bucket.Config) (*Plan, error) {
	if err := check(&f); err != nil {
		return nil, err
	}
	if err := f.Complete(); err != nil {
		return nil, err
	}
	if len(l) == 0 {
		return nil, input.Errorf("no lengths")
	}
	p := &Plan{Plan: bucket.NewPlan(f, len(l))}
	p.Pairs = true
	p.From(c)
	rate, err := p.prepare(l, shapes, c)
	if err != nil {
		return nil, err
	}
	p.LowerBoundSeconds = partition.Bound(p.job.Hist, rate, f.Speeds, true)
	p.Anchors = partition.SearchAnchors(p.job.Hist, p.cost, p.job.Best, p.knobs.Slack)
	p.job.Aim(p.Anchors)
	found := p.tune(l)
	p.Settings, p.Score = found.Settings, found.Score
	p.Bands = p.bands(l, rate, found.Epoch)
	p.Data = (&Pairs{l, shapes}).Checksum()
	return p, nil
}

// Bind joins a plan that was read with the lengths it was made for; others are an error.
func Bind(file *bucket.Plan, l *Pairs) (*Plan, error) {
	f := file.Config()
	if err := check(&f); err != nil {
		return nil, err
	}
	if err := file.CheckData(true, len(l.Kinds), l.Checksum()); err != nil {
		return nil, err
	}
	c, err := stepcost.NewPair(file.Table, file.Memory)
	if err != nil {
		return nil, err
	}
	p := &Plan{Plan: *file}
	if _, err := p.prepare(l.Kinds, l.shapes, c); err != nil {
		return nil, err
	}
	p.job.Aim(p.Anchors)
	p.order = p.layOut(p.BandArea)
	return p, nil
}

// check refuses settings for samples of one length.
func check(f *bucket.Config) error {
	switch {
	case f.Overlong == bucket.Truncate:
		return input.Errorf("overlong %s: of two lengths it is not said which is to be cut; skip such samples, or cut them beforehand", bucket.Truncate)
	case f.MicroBatches > 1:
		return input.Errorf("micro batches %d: not where samples have two lengths; say 1, or leave this out: faster ranks then have several", f.MicroBatches)
	}
	return nil
}

// prepare derives what is not in the file. rate is the least time per sample of each kind.
func (p *Plan) prepare(l bucket.Lengths, shapes []shape, c Cost) (rate []float64, err error) {
	p.knobs = partition.KnobsOf(p.Mixing)
	limits, err := partition.StepLimits(&p.Plan)
	if err != nil {
		return nil, err
	}
	p.cost = &cost{of: c, shapes: shapes, limits: limits, none: make([]bool, len(shapes))}
	hist := l.Histogram()
	name := func(kind int) string { return shapes[kind].String() }
	if err := partition.CheckLimits(&p.Plan, l, hist, limits.Tokens, p.cost.room, name); err != nil {
		return nil, err
	}
	if err := p.fit(l, hist); err != nil {
		return nil, err
	}
	best, rate := partition.Efficient(hist, p.cost)
	p.job = partition.Job{Cost: p.cost, Hist: hist, Best: best, Size: p.cost.most, Cap: p.cost.most, Speeds: p.Speeds, MicroBatches: p.MicroBatches}
	p.job.LongestBatch = p.job.LongestStep()
	return rate, nil
}

// fit drops the samples that fit into no batch.
func (p *Plan) fit(l bucket.Lengths, hist []uint32) error {
	two := p.cost
	p.Limit = 1
	missing, first := 0, -1
	for k, n := range hist {
		switch {
		case n == 0:
		case two.Cap(k) > 0:
			p.Limit = max(p.Limit, two.shapes[k].Source, two.shapes[k].Target)
		default:
			if missing += int(n); first < 0 {
				first = k
			}
			two.none[k], hist[k] = true, 0
		}
	}
	switch {
	case missing > 0 && p.Overlong == bucket.Refuse:
		return input.Errorf("%d of the samples fit into no batch, as sample %d (%v): the table has no trial as long in both that ran: profile longer lengths, or skip such samples (--overlong skip)",
			missing, slices.Index(l, uint32(first)), two.shapes[first])
	case missing == len(l):
		return input.Errorf("none of the samples fits into a batch; all would be skipped")
	}
	p.Skipped = missing
	return nil
}

// tune finds the area of the bands and then the number of steps, by cutting whole epochs.
func (p *Plan) tune(l bucket.Lengths) partition.Found {
	// By epoch; they depend only on the bands.
	var orders map[uint64]*ordering.Order
	predict := func(s bucket.Settings, epoch uint64) partition.Found {
		if orders[epoch] == nil {
			orders[epoch] = p.newOrder(l, 0, epoch)
		}
		e := p.dispatch(l, orders[epoch], s)
		score := e.Predict(p.Speeds, func(b partition.Placed) bucket.Measured {
			return p.cost.Measure(kindsOf(l, e.Order.Index[b.Start:b.Start+b.Count]))
		})
		score.Skipped = p.Skipped
		return partition.Found{Settings: s, Score: score, Epoch: e}
	}
	setArea := func(area float64) {
		p.job.BandArea, orders = area, map[uint64]*ordering.Order{}
		p.order = p.layOut(area)
	}
	best, least := 0.0, math.Inf(1)
	for _, area := range []float64{.25, .5, 1, 2, 4} {
		setArea(area)
		x := predict(p.job.Settings, 0)
		if work := x.EpochSeconds / x.Imbalance; work < least { // without what the last step leaves empty
			best, least = area, work
		}
	}
	setArea(best)
	found := p.job.Tune(p.knobs, p.Samples, predict)
	if found.Steps*p.Ranks <= partition.ManyBatches && !p.knobs.Random {
		s := found.Settings
		s.FreeCut = true
		if free := predict(s, 0); free.EpochSeconds < found.EpochSeconds {
			found = free
		}
	}
	return found
}

// layOut are the bands of an area.
func (p *Plan) layOut(area float64) bands {
	b := newBands(area, p.knobs.Padding)
	for k, n := range p.job.Hist {
		if n > 0 {
			b.Add(p.cost.shapes[k].Source, float64(n)/float64(partition.Within(p.cost, k, p.job.Best[k], p.job.Target[k])))
		}
	}
	return b
}

// newOrder orders an epoch by bands of similar sources, or at random.
func (p *Plan) newOrder(l bucket.Lengths, seed, epoch uint64) *ordering.Order {
	k := ordering.NewKeys(seed, epoch)
	k.Limit, k.Groups = bucket.MaxLength, 2
	group := func(int, uint32) int { return 0 }
	if !p.knobs.Random {
		b := p.order.Lay(p.cost.shapes, p.cost.none, float64(k.Salt>>11)/(1<<53))
		k.Groups = b.Groups() + 1
		group = func(position int, kind uint32) int { return b.Group(p.cost.shapes[kind], k.Chance(position)) }
	}
	k.Group = func(position int, kind uint32) int {
		if p.cost.none[kind] {
			return k.Groups - 1
		}
		return group(position, kind)
	}
	return ordering.New(l, k)
}

// dispatch cuts an epoch with some settings.
func (p *Plan) dispatch(l bucket.Lengths, o *ordering.Order, s bucket.Settings) *partition.Epoch {
	if o.Index == nil {
		o.Fill(l)
	}
	r := &row{cost: p.cost, kinds: l, index: o.Index, sides: make([]shape, len(o.Index))}
	for at, i := range o.Index {
		r.sides[at] = p.cost.shapes[l[i]]
	}
	job := p.job
	job.Settings = s
	var free func(places int) []partition.Cut
	if s.FreeCut {
		free = func(places int) []partition.Cut { return r.cutFreely(o.Batched(), places) }
	}
	return job.Dispatch(o, r, free)
}

func kindsOf(l bucket.Lengths, samples []uint32) []uint32 {
	out := make([]uint32, len(samples))
	for k, i := range samples {
		out[k] = l[i]
	}
	return out
}

// Schedule cuts an epoch of the kinds that the plan was made for.
func (p *Plan) Schedule(l bucket.Lengths, seed, epoch uint64) *bucket.Schedule {
	e := p.dispatch(l, p.newOrder(l, seed, epoch), p.Settings)
	return e.Schedule(&p.Plan, p.Of(l))
}

// Of are the samples of the plan's schedules. Their tokens are those of the targets, over which losses are means.
func (p *Plan) Of(l bucket.Lengths) bucket.Samples {
	return p.Sized(bucket.Samples{Lengths: l, Limit: p.Limit, Skips: func(kind uint32) bool { return p.cost.none[kind] },
		Tokens: func(samples []uint32) (n int) {
			for _, i := range samples {
				n += p.cost.shapes[l[i]].Target
			}
			return n
		}})
}

// Cost is what the plan predicts by. Its lengths are kinds, or encode the longest source and target of a batch.
func (p *Plan) Cost() bucket.Cost { return p.cost }

// Rest plans the rest of an epoch for other ranks, with the same costs.
func (p *Plan) Rest(l bucket.Lengths, g bucket.Group) (bucket.Planner, error) {
	return plan(l, p.cost.shapes, p.cost.of, p.ConfigOf(g))
}

// StepBatches is the number of batches of each rank in a full step.
func (p *Plan) StepBatches() []int { return partition.StepBatches(&p.Plan) }

// bands are twelve ranges of sources of equal work, with the longest target in each. Batch and seconds are means over the batches of
// their samples in the predicted epoch, because batches of the same lengths differ in size.
func (p *Plan) bands(l bucket.Lengths, rate []float64, e *partition.Epoch) (out []bucket.Band) {
	var counts []uint32
	var mean []float64 // of the rate, by source
	for k, n := range p.job.Hist {
		if s := p.cost.shapes[k].Source; n > 0 {
			for len(counts) <= s {
				counts, mean = append(counts, 0), append(mean, 0)
			}
			counts[s] += n
			mean[s] += (rate[k] - mean[s]) * float64(n) / float64(counts[s])
		}
	}
	for _, u := range partition.Boundaries(counts, mean, 12) {
		out = append(out, bucket.Band{Upper: u})
	}
	of := func(kind uint32) int {
		return sort.Search(len(out)-1, func(b int) bool { return out[b].Upper >= p.cost.shapes[kind].Source })
	}
	for k, n := range p.job.Hist {
		if n > 0 {
			b := &out[of(uint32(k))]
			b.Samples, b.Target = b.Samples+int(n), max(b.Target, p.cost.shapes[k].Target)
		}
	}
	filled := make([]float64, len(out)) // batches
	for _, b := range e.Batches {
		samples := e.Order.Index[b.Start : b.Start+b.Count]
		length, _, _ := p.cost.longest(kindsOf(l, samples))
		seconds := p.cost.Seconds(length, len(samples)) / p.Speeds[b.Rank]
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
