package bucket

import (
	"math"
	"slices"
	"sort"
)

// Dispatch modes.
const (
	Auto   = "auto"   // the one with the smallest predicted epoch time
	Same   = "same"   // all ranks of a step take the same bucket
	Mixed  = "mixed"  // a step mixes buckets under the anchor
	Sorted = "sorted" // batches sorted by duration, a group a step
)

// What to do with a sample that fits nowhere.
const (
	Refuse   = "error"
	Skip     = "skip"
	Truncate = "truncate"
)

// Config says what to plan. Zero values mean the default.
type Config struct {
	Ranks      int       // 1 to 65536; 0 with Speeds is their number
	Speeds     []float64 // per rank, above 0, relative; nil: all 1
	Mode       string    // dispatch mode; "" is Auto
	Rule       string    // of boundaries: EqualCost (default), EqualCount, Geometric
	Buckets    int       // 2 to 4096; 0: chosen
	Boundaries []int     // upper lengths, rising, instead of Rule and Buckets
	MaxEpoch   float64   // seconds; 0: none. A plan predicted to take longer is an error
	Overlong   string    // Refuse (default), Skip, Truncate
}

// Plan is how an epoch of a data set is cut. Seed and epoch come with Schedule.
type Plan struct {
	Version    int       `json:"version"`
	Samples    int       `json:"samples"`
	Data       string    `json:"data"` // checksum of the lengths
	Mode       string    `json:"mode"`
	Ranks      int       `json:"ranks"`
	Speeds     []float64 `json:"speeds"`
	Rule       string    `json:"boundaries"`
	Buckets    []Bucket  `json:"buckets"`
	Overlong   string    `json:"overlong"`
	Limit      int       `json:"limit"`        // longest length that is batched
	Prediction string    `json:"prediction"`   // of seconds: fit, isotonic or formula
	Memory     int64     `json:"memory_bytes"` // limit; 0: the largest peak in the table
	Table      Table     `json:"table"`        // what was planned with

	AnchorSeconds     float64            `json:"anchor_seconds"`
	AnchorEpochT      float64            `json:"anchor_epoch_seconds"` // by T alone
	Modes             map[string]float64 `json:"modes"`                // predicted epoch seconds of each
	LowerBoundSeconds float64            `json:"lower_bound_seconds"`
	Score

	cost  Cost
	full  []uint32 // of all lengths
	hist  []uint32 // of those batched
	limit int
	best  []int   // per length: the most efficient batch
	sizes [][]int // per bucket and rank
}

// PlanVersion is that of the plan file.
const PlanVersion = 1

// Make plans. Errors of what was given are of ErrInput.
func Make(l Lengths, c Cost, f Config) (*Plan, error) {
	if err := f.fill(); err != nil {
		return nil, err
	}
	if len(l) == 0 {
		return nil, badf("no lengths")
	}
	p := &Plan{Version: PlanVersion, Ranks: f.Ranks, Speeds: f.Speeds, Rule: f.Rule, Overlong: f.Overlong,
		Samples: len(l), cost: c, Modes: map[string]float64{}, Prediction: "formula"}
	var keepData string
	if t, ok := c.(*TableCost); ok {
		p.Prediction, p.Table, p.Memory = t.Smoothed(), t.table, t.given
	}
	both(func() { keepData = l.Checksum() }, func() { p.full = l.histogram() })
	p.hist = slices.Clone(p.full)
	if err := p.measure(f.Overlong); err != nil {
		return nil, err
	}
	rate := make([]float64, len(p.hist))
	speed := 0.0
	for _, v := range f.Speeds {
		speed += v
	}
	p.best = make([]int, len(p.hist))
	for n := 1; n <= p.limit; n++ {
		if p.hist[n] > 0 {
			p.best[n], rate[n] = efficient(c, n)
			p.LowerBoundSeconds += float64(p.hist[n]) * rate[n] / speed
		}
	}
	best := math.Inf(1)
	var keep Plan
	for _, mode := range []string{Sorted, Mixed, Same} {
		if f.Mode != Auto && f.Mode != mode {
			continue
		}
		q := *p
		q.Mode = mode
		estimate, err := q.anchor(f, rate, mode != Mixed)
		if err != nil {
			return nil, err
		}
		// A mode that its own search puts behind need not be laid out.
		if mode != Sorted && estimate*slices.Max(f.Speeds)*float64(f.Ranks)/speed >= best {
			p.Modes[mode] = estimate * slices.Max(f.Speeds) * float64(f.Ranks) / speed
			continue
		}
		q.Score = q.predict()
		p.Modes[mode] = q.EpochSeconds
		if q.EpochSeconds < best {
			best, keep = q.EpochSeconds, q
		}
	}
	if f.MaxEpoch > 0 && keep.EpochSeconds > f.MaxEpoch {
		return nil, badf("max epoch %v s: the shortest plan is predicted to take %.6g s", f.MaxEpoch, keep.EpochSeconds)
	}
	keep.Data = keepData
	return &keep, nil
}

func (f *Config) fill() error {
	if f.Ranks == 0 && len(f.Speeds) > 0 {
		f.Ranks = len(f.Speeds)
	}
	if f.Ranks < 1 || f.Ranks > 65536 {
		return badf("ranks %d: must be 1 to 65536", f.Ranks)
	}
	if f.Speeds == nil {
		for range f.Ranks {
			f.Speeds = append(f.Speeds, 1)
		}
	}
	if len(f.Speeds) != f.Ranks {
		return badf("speeds: %d of them for %d ranks", len(f.Speeds), f.Ranks)
	}
	for i, v := range f.Speeds {
		if !(v > 0) || math.IsInf(v, 0) {
			return badf("speeds: rank %d has %v; must be above 0", i, v)
		}
	}
	for _, c := range []struct {
		name    string
		value   *string
		allowed []string
	}{
		{"mode", &f.Mode, []string{Auto, Same, Mixed, Sorted}},
		{"boundaries", &f.Rule, []string{EqualCost, EqualCount, Geometric}},
		{"overlong", &f.Overlong, []string{Refuse, Skip, Truncate}},
	} {
		if *c.value == "" {
			*c.value = c.allowed[0]
		}
		if !slices.Contains(c.allowed, *c.value) {
			return badf("%s %q: must be one of %v", c.name, *c.value, c.allowed)
		}
	}
	if f.Buckets != 0 && (f.Buckets < 2 || f.Buckets > 4096) {
		return badf("buckets %d: must be 2 to 4096", f.Buckets)
	}
	for i, u := range f.Boundaries {
		if u < 1 || i > 0 && u <= f.Boundaries[i-1] {
			return badf("boundaries: %d is not above the one before", u)
		}
	}
	if len(f.Boundaries) == 1 {
		return badf("boundaries: at least two buckets")
	}
	return nil
}

// measure finds the longest length that fits and moves or drops what is longer.
func (p *Plan) measure(overlong string) error {
	longest := len(p.hist) - 1
	p.limit = longest
	if p.cost.Cap(longest) < 1 {
		fits := sort.Search(longest, func(l int) bool { return p.cost.Cap(l+1) < 1 })
		n := 0
		for _, c := range p.hist[fits+1:] {
			n += int(c)
		}
		if overlong == Refuse || fits == 0 {
			return badf("%d samples longer than %d fit into no batch (the longest is %d): the table has no such trial that ran; profile longer lengths, or skip or truncate them", n, fits, longest)
		}
		p.limit = fits
		if overlong == Skip {
			p.Skipped = n
			if n == p.Samples {
				return badf("every sample is longer than %d and would be skipped", fits)
			}
		} else {
			p.hist[fits] += uint32(n)
		}
	}
	p.Limit = p.limit
	p.hist = p.hist[:p.limit+1]
	return nil
}

// efficient is the batch size with the least time per sample, and that time: over the
// cap and sizes a twentieth apart below it.
func efficient(c Cost, length int) (batch int, rate float64) {
	top := c.Cap(length)
	rate = math.Inf(1)
	for b := top; b >= 1; b = min(b-1, b*20/21) {
		if r := c.Seconds(length, b) / float64(b); r < rate {
			batch, rate = b, r
		}
	}
	return batch, rate
}

// choices of the number of buckets.
var choices = []int{8, 16, 32, 64}

// anchor searches T, over the number of buckets too unless given. It returns the epoch
// time that the search predicts with all ranks as fast as the fastest.
func (p *Plan) anchor(f Config, rate []float64, same bool) (seconds float64, err error) {
	tries := choices
	if f.Buckets > 0 {
		tries = []int{f.Buckets}
	}
	if f.Boundaries != nil {
		tries = []int{len(f.Boundaries)}
	}
	best := math.Inf(1)
	for _, n := range tries {
		bounds := f.Boundaries
		if bounds == nil {
			bounds = boundaries(p.hist, rate, f.Rule, n)
		} else if last := bounds[len(bounds)-1]; last < p.limit {
			return 0, badf("boundaries: the last, %d, is below the longest length, %d", last, p.limit)
		}
		counts, pts := make([]int, len(bounds)), make([][]point, len(bounds))
		for l, c := range p.hist {
			if c > 0 {
				counts[sort.SearchInts(bounds, l)] += int(c)
			}
		}
		for k, u := range bounds {
			if pts[k] = points(p.cost, u); len(pts[k]) == 0 {
				return 0, badf("boundaries: no batch of length %d fits into memory", u)
			}
		}
		a, ok := searchAnchor(counts, pts, p.Ranks, same)
		if !ok || a.seconds >= best {
			continue
		}
		best = a.seconds
		p.AnchorSeconds, p.AnchorEpochT = a.T, a.byT
		p.Buckets, p.sizes = nil, nil
		fastest := slices.Max(p.Speeds)
		for k, u := range bounds {
			q := a.pick[k]
			p.Buckets = append(p.Buckets, Bucket{u, counts[k], q.batch, q.seconds})
			sizes := make([]int, p.Ranks)
			for r, v := range p.Speeds {
				sizes[r] = q.batch
				if v < fastest {
					sizes[r] = max(1, sort.Search(q.batch, func(b int) bool { return p.cost.Seconds(u, b+1) > q.seconds*v/fastest }))
				}
			}
			p.sizes = append(p.sizes, sizes)
		}
	}
	return best, nil
}

// groups are the lengths shuffled together: each its own (sorted) or by bucket. Overlong
// lengths come last, or with the limit's.
func (p *Plan) groups(n int) []uint32 {
	g := make([]uint32, n)
	for l := range g {
		switch {
		case l > p.limit && p.Overlong == Truncate:
			g[l] = g[p.limit]
		case p.Mode == Sorted:
			g[l] = uint32(min(l, p.limit+1))
		case l > p.limit:
			g[l] = uint32(len(p.Buckets))
		default:
			g[l] = uint32(sort.Search(len(p.Buckets), func(k int) bool { return p.Buckets[k].Upper >= l }))
		}
	}
	return g
}

func (p *Plan) cut(o *order, seed, epoch uint64) ([]uint32, []Batch) {
	if p.Mode == Sorted {
		return p.cutSorted(o, seed, epoch)
	}
	return p.cutAnchor(o, seed, epoch, p.Mode == Same)
}

// predict scores the epoch 0 of seed 0 by the histogram alone: in a bucket every batch
// is taken as padded to the bucket's length.
func (p *Plan) predict() Score {
	group := p.groups(len(p.hist))
	o := newOrder(p.hist, group, 0, 0)
	steps, batches := p.cut(o, 0, 0)
	s := newScorer(p.cost, p.Speeds)
	sum := make([]int, len(p.hist)+1) // of lengths, before each
	at := make([]int, len(p.hist)+1)  // positions before each length
	for l, c := range p.hist {
		sum[l+1] = sum[l] + l*int(c)
		at[l+1] = at[l] + int(c)
	}
	before := func(pos int) int {
		l := sort.SearchInts(at, pos)
		if l == 0 {
			return 0
		}
		return sum[l-1] + (pos-at[l-1])*(l-1)
	}
	for i := range len(steps) - 1 {
		for _, b := range batches[steps[i]:steps[i+1]] {
			end := int(b.Start + b.Count)
			var longest int
			if p.Mode == Sorted {
				longest = sort.SearchInts(at, end) - 1
			} else {
				longest = p.Buckets[sort.SearchInts(o.start, end)-1].Upper
			}
			s.batch(int(b.Rank), longest, int(b.Count), before(end)-before(int(b.Start)))
		}
		s.step()
	}
	score := s.score()
	score.Skipped = p.Skipped
	return score
}

// Schedule cuts an epoch of the lengths that the plan was made for.
func (p *Plan) Schedule(l Lengths, seed, epoch uint64) *Schedule {
	group := p.groups(len(p.full))
	o := newOrder(p.full, group, seed, epoch)
	s := &Schedule{Ranks: p.Ranks, Skipped: p.Skipped, lengths: l, order: o}
	s.Steps, s.Batches = p.cut(o, seed, epoch)
	return s
}
