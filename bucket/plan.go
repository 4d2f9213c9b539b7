package bucket

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/evenkeel/evenkeel/bucket/internal/input"
	"github.com/evenkeel/evenkeel/bucket/stepcost"
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
	Limit      int       `json:"limit"` // longest length that is batched
	Prediction string    `json:"prediction"`

	// EvenSteps, above 0 in small data sets, is how many steps of equal duration sorted
	// dispatch cuts, where these pad and idle less than batches of the most efficient size.
	EvenSteps int `json:"even_steps"`
	// SlowestBatches is how many batches the slowest rank has in a step of sorted
	// dispatch; a rank twice as fast has twice as many.
	SlowestBatches    int                `json:"slowest_batches"`
	AnchorSeconds     float64            `json:"anchor_seconds"`
	AnchorEpochT      float64            `json:"anchor_epoch_seconds"` // by T alone
	Modes             map[string]float64 `json:"modes"`                // predicted epoch seconds of each
	LowerBoundSeconds float64            `json:"lower_bound_seconds"`
	Score

	// Table and Memory (bytes; 0: the largest peak that ran) are what the cost comes
	// from, so that a schedule needs the plan and the lengths alone.
	Table    stepcost.Table `json:"table"`
	Memory   int64          `json:"memory_bytes"`
	Checksum string         `json:"checksum"` // of all the rest, as Write writes it

	cost  Cost
	hist  []uint32
	limit int
	best  []int   // per length: the most efficient batch
	sizes [][]int // per bucket and rank
}

// planVersion is that of the plan file.
const planVersion = 1

// Make plans. Errors of what was given are of ErrInput.
func Make(l Lengths, c Cost, f Config) (*Plan, error) {
	if err := f.fill(); err != nil {
		return nil, err
	}
	if len(l) == 0 {
		return nil, input.Errorf("no lengths")
	}
	p := &Plan{Version: planVersion, Ranks: f.Ranks, Speeds: f.Speeds, Rule: f.Rule, Overlong: f.Overlong,
		SlowestBatches: 1, Samples: len(l), cost: c, Modes: map[string]float64{}, Prediction: "formula"}
	if t, ok := c.(*stepcost.Model); ok {
		p.Prediction = t.Smoothed()
		p.Table, p.Memory = t.Source()
	}
	p.hist = l.histogram()
	if err := p.measure(f.Overlong); err != nil {
		return nil, err
	}
	var rate []float64
	p.best, rate = efficient(p.hist, c)
	p.LowerBoundSeconds = bound(p.hist, rate, f.Speeds)
	best := math.Inf(1)
	var keep Plan
	for _, mode := range []string{Sorted, Mixed, Same} {
		if f.Mode != Auto && f.Mode != mode {
			continue
		}
		q := *p
		q.Mode = mode
		if err := q.anchor(f, rate, mode != Mixed); err != nil {
			return nil, err
		}
		q.Score = q.predict()
		if mode == Sorted {
			q = q.tune()
		}
		p.Modes[mode] = q.EpochSeconds
		if q.EpochSeconds < best {
			best, keep = q.EpochSeconds, q
		}
	}
	if f.MaxEpoch > 0 && keep.EpochSeconds > f.MaxEpoch {
		return nil, input.Errorf("max epoch %v s: the shortest plan is predicted to take %.6g s", f.MaxEpoch, keep.EpochSeconds)
	}
	keep.Data = l.Checksum()
	return &keep, nil
}

// fill sets defaults and refuses what cannot be.
func (f *Config) fill() error {
	if err := f.fillSpeeds(); err != nil {
		return err
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
			return input.Errorf("%s %q: must be one of %v", c.name, *c.value, c.allowed)
		}
	}
	return f.checkBoundaries()
}

func (f *Config) fillSpeeds() error {
	if f.Ranks == 0 && len(f.Speeds) > 0 {
		f.Ranks = len(f.Speeds)
	}
	if f.Ranks < 1 || f.Ranks > 65536 {
		return input.Errorf("ranks %d: must be 1 to 65536", f.Ranks)
	}
	if f.Speeds == nil {
		f.Speeds = slices.Repeat([]float64{1}, f.Ranks)
	}
	if len(f.Speeds) != f.Ranks {
		return input.Errorf("speeds: %d of them for %d ranks", len(f.Speeds), f.Ranks)
	}
	for i, v := range f.Speeds {
		if !(v > 0) || math.IsInf(v, 0) {
			return input.Errorf("speeds: rank %d has %v; must be above 0", i, v)
		}
	}
	return nil
}

func (f *Config) checkBoundaries() error {
	if f.Buckets != 0 && (f.Buckets < 2 || f.Buckets > 4096) {
		return input.Errorf("buckets %d: must be 2 to 4096", f.Buckets)
	}
	for i, u := range f.Boundaries {
		if u < 1 || i > 0 && u <= f.Boundaries[i-1] {
			return input.Errorf("boundaries: %d is not above the one before", u)
		}
	}
	if len(f.Boundaries) == 1 {
		return input.Errorf("boundaries: at least two buckets")
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
			samples, verb := fmt.Sprint(n, " samples"), "fit"
			if n == 1 {
				samples, verb = "1 sample", "fits"
			}
			return input.Errorf("%s longer than %d %s into no batch (the longest is %d): the table has no such trial that ran; profile longer lengths, or skip or truncate such samples",
				samples, fits, verb, longest)
		}
		p.limit = fits
		if overlong == Skip {
			p.Skipped = n
			if n == p.Samples {
				return input.Errorf("every sample is longer than %d and would be skipped", fits)
			}
		} else {
			p.hist[fits] += uint32(n)
		}
	}
	p.Limit = p.limit
	p.hist = p.hist[:p.limit+1]
	return nil
}

// choices of the number of buckets.
var choices = []int{8, 16, 32, 64}

// anchor searches T, over the number of buckets too unless given.
func (p *Plan) anchor(f Config, rate []float64, same bool) error {
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
			return input.Errorf("boundaries: the last, %d, is below the longest length, %d", last, p.limit)
		}
		counts, pts := make([]int, len(bounds)), make([][]point, len(bounds))
		for l, c := range p.hist {
			if c > 0 {
				counts[sort.SearchInts(bounds, l)] += int(c)
			}
		}
		for k, u := range bounds {
			if pts[k] = points(p.cost, u); len(pts[k]) == 0 {
				return input.Errorf("boundaries: no batch of length %d fits into memory", u)
			}
		}
		a, ok := searchAnchor(counts, pts, p.Ranks, same)
		if !ok || a.seconds >= best {
			continue
		}
		best = a.seconds
		p.AnchorSeconds, p.AnchorEpochT = a.T, a.byT
		p.Buckets = nil
		for k, u := range bounds {
			q := a.pick[k]
			p.Buckets = append(p.Buckets, Bucket{u, counts[k], q.batch, q.seconds})
		}
	}
	p.share()
	return nil
}

// share gives slower ranks the batch that they finish in the bucket's duration.
func (p *Plan) share() {
	fastest := slices.Max(p.Speeds)
	p.sizes = nil
	for _, k := range p.Buckets {
		sizes := make([]int, p.Ranks)
		for r, v := range p.Speeds {
			sizes[r] = k.Batch
			if v < fastest {
				sizes[r] = max(1, sort.Search(k.Batch, func(b int) bool { return p.cost.Seconds(k.Upper, b+1) > k.Seconds*v/fastest }))
			}
		}
		p.sizes = append(p.sizes, sizes)
	}
}

// fewBatches is how many batches an epoch may have for steps of equal duration to be worth
// a look.
const fewBatches = 4000

// tune is the plan with the predicted best of several numbers of batches per step, where
// speeds differ, and of several numbers of steps of equal duration, where batches are few.
func (p *Plan) tune() Plan {
	best := *p
	try := func(k, steps int) bool {
		q := *p
		q.SlowestBatches, q.EvenSteps = k, steps
		q.Score = q.predict()
		better := q.EpochSeconds < best.EpochSeconds
		if better {
			best = q
		}
		return better
	}
	for k := 2; k <= 16 && trimmed(slots(p.Speeds, k-1)); k++ {
		try(k, 0)
	}
	if k := best.SlowestBatches; best.Steps*len(slots(p.Speeds, k)) <= fewBatches {
		worse := 0
		for n := best.Steps; worse < 8 && n <= 20*(best.Steps+1); n += max(1, n/16) {
			if worse++; try(k, n) {
				worse = 0
			}
		}
	}
	return best
}
