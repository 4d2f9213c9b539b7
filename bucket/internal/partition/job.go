// Package partition cuts an epoch of ordered samples into batches that last about as long as an anchor duration, and combines batches that
// end together into steps. It does not know what a length means, so it serves samples of one length (package plain) and of two (paired).
package partition

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sort"

	"evenkeel/bucket"
	"evenkeel/bucket/internal/ordering"
)

// Job says what batches cost and how long they may last.
type Job struct {
	Cost   bucket.Cost
	Hist   []uint32
	Best   []int     // by length: the most efficient batch
	Target []float64 // by length: the anchor duration, at most that of the most efficient batch
	// Size is the largest batch of a length to cut, and Cap the largest that memory and the limits of a step allow, for a place with this share.
	Size, Cap    func(length int, share float64) int
	LongestBatch float64 // seconds of the longest batch in the last steps
	// Ranks, their speeds and the number of batches in a step, as in bucket.Config.
	Speeds       []float64
	MicroBatches int
	bucket.Settings
}

// Row is the samples of an epoch in order. Batches are cut off its end.
type Row interface {
	// Next is the length of a batch that begins with the sample before a position.
	Next(pos int) int
	// Take returns the number of samples before a position, at least one, that make a batch of up to most seconds and size(pad) samples,
	// and pad, the length that they are padded to. longest is Next(pos).
	Take(pos, longest int, most float64, size func(length int) int) (n, pad int)
}

// Cut is a batch before it has a rank.
type Cut struct {
	Start, Count uint32
	Longest      int     // to which it is padded
	Seconds      float64 // divided by the share of its class
}

// Placed is a batch, and the length to which it is padded.
type Placed struct {
	bucket.Batch
	Longest int
}

// Epoch is an epoch that was cut.
type Epoch struct {
	Order   *ordering.Order
	Steps   []uint32
	Batches []Placed
	Scale   float64 // of the anchors
}

// Schedule is the schedule of the epoch.
func (e *Epoch) Schedule(p *bucket.Plan, of bucket.Samples) *bucket.Schedule {
	batches := make([]bucket.Batch, len(e.Batches))
	for i, b := range e.Batches {
		batches[i] = b.Batch
	}
	of.Order = e.Order
	return bucket.NewSchedule(p.Ranks, p.Skipped, e.Steps, batches, of)
}

// Predict scores the epoch; measure is what a batch takes.
func (e *Epoch) Predict(speeds []float64, measure func(Placed) bucket.Measured) bucket.Score {
	s := bucket.NewScorer(speeds)
	for i := range len(e.Steps) - 1 {
		for _, b := range e.Batches[e.Steps[i]:e.Steps[i+1]] {
			s.Batch(int(b.Rank), measure(b))
		}
		s.Step()
	}
	return s.Score()
}

// Dispatch cuts an epoch: batches of the anchor duration, from the longest sample down; steps of random batches of similar duration; and
// last steps of what is left. free, if given, cuts the whole order into batches instead, if all places have the same share.
func (j *Job) Dispatch(o *ordering.Order, row Row, free func(places int) []Cut) *Epoch {
	r := rand.New(rand.NewPCG(o.Seed, ordering.Mix(o.Epoch, 0)))
	d := &dealer{r: r}
	d.ranks, d.classes = slots(j.Speeds, j.MicroBatches)
	d.cutter = cutter{Job: j, order: o, row: row, classes: d.classes, places: len(d.ranks), shift: r.Float64(), enough: 2, late: j.EvenSteps / 10}
	if d.few = j.EvenSteps > 0 && j.EvenSteps*len(j.Speeds) <= fewBatches; d.few {
		d.enough = max(2, min(8, slices.Max(j.Best)))
	}
	end, scale := o.Batched(), 1.0
	if free != nil && len(d.classes) == 1 {
		d.cuts = [][]Cut{free(d.places)}
		d.cycles = (len(d.cuts[0]) + d.places - 1) / d.places
	} else {
		if j.EvenSteps > 0 {
			scale = d.even(j.EvenSteps, end)
		}
		d.cuts, d.cycles, d.rest, _ = d.all(scale, end)
	}
	d.windows()
	out := d.assemble()
	out.Scale = scale
	return out
}

// SortCuts sorts batches, the longest first, those of the same duration by their position.
func SortCuts(c []Cut) {
	slices.SortFunc(c, func(a, b Cut) int { return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Start, b.Start)) })
}

// LongestStep is the longest duration of a most efficient batch over all lengths.
func (j *Job) LongestStep() (seconds float64) {
	for l, n := range j.Hist {
		if n > 0 {
			seconds = max(seconds, j.Cost.Seconds(l, j.Best[l]))
		}
	}
	return seconds
}

// grouped is a row whose batches are padded to the longest length of their groups.
type grouped struct {
	order    *ordering.Order
	cost     bucket.Cost
	multiple int
	group    int
}

// Grouped is a row that does not look at single samples: batches are padded to the longest length of their groups.
func Grouped(o *ordering.Order, c bucket.Cost, multiple int) Row {
	return &grouped{o, c, multiple, o.Groups() - 1}
}

func (g *grouped) Next(pos int) int {
	if g.group+1 < g.order.Groups() && g.order.Start(g.group+1) < pos {
		g.group = g.order.GroupAt(pos - 1)
	}
	for g.order.Start(g.group) >= pos {
		g.group--
	}
	return g.order.Pad(g.group)
}

func (g *grouped) Take(pos, longest int, most float64, size func(length int) int) (n, pad int) {
	n = size(longest)
	if g.cost.Seconds(longest, n) > most {
		n = max(1, sort.Search(n, func(b int) bool { return g.cost.Seconds(longest, b+1) > most }))
	}
	return Whole(min(n, pos), n, g.multiple), longest
}
