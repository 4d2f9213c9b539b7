package bucket

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/evenkeel/evenkeel/bucket/internal/input"
	"github.com/evenkeel/evenkeel/bucket/internal/ordering"
	"github.com/evenkeel/evenkeel/bucket/stepcost"
)

// What to do with a sample that fits nowhere.
const (
	Refuse   = "error"
	Skip     = "skip"
	Truncate = "truncate"
)

// Config says what to plan. Zero values mean the default.
type Config struct {
	Ranks    int       // 1 to 65536; 0 with Speeds is their number
	Speeds   []float64 // per rank, above 0, relative; nil: all 1
	Mixing   *float64  // 0 (sorted: the shortest epoch) to 1 (random order); nil: DefaultMixing
	Overlong string    // Refuse (default), Skip, Truncate
	MaxEpoch float64   // seconds; 0: none. A plan predicted to take longer is an error

	// MicroBatches of a rank in a step, at most 64. 1: one. Above: so many on the fastest rank, fewer on slower ones, and one more of
	// short samples where a rank would wait. 0: the same, with as many as it is faster than the rank at the lower quartile.
	MicroBatches int
	MaxSamples   int // of a step over all ranks; 0: as many as are efficient
	MaxTokens    int // of a step over all ranks, padding counted; 0: likewise
	// Packed: samples lie end to end in a batch, as attention of variable length computes them, and nothing is padded. They come in random order.
	Packed bool
	// PadTo and BatchMultiple, 0 or 1: none, are what lengths are padded to and what batch sizes the device computes in.
	PadTo, BatchMultiple int
}

// DefaultMixing costs about 1% of an epoch.
const DefaultMixing = 0.2

// Plan is how an epoch of a data set is cut. Seed and epoch come with Schedule.
type Plan struct {
	Version       int       `json:"version"`
	Samples       int       `json:"samples"`
	Data          string    `json:"data"` // checksum of the lengths
	Mixing        float64   `json:"mixing"`
	Ranks         int       `json:"ranks"`
	Speeds        []float64 `json:"speeds"`
	MicroBatches  int       `json:"micro_batches"`
	MaxSamples    int       `json:"max_samples"`
	MaxTokens     int       `json:"max_tokens"`
	PadTo         int       `json:"pad_to"`
	BatchMultiple int       `json:"batch_multiple"`
	Packed        bool      `json:"packed,omitempty"`
	Pairs         bool      `json:"pairs,omitempty"` // samples have two lengths, padded apart
	Bands         []Band    `json:"bands"`           // for people
	Overlong      string    `json:"overlong"`
	Limit         int       `json:"limit"` // longest length that is batched
	Prediction    string    `json:"prediction"`
	Tile          int       `json:"tile,omitempty"` // tokens of a tile, where the prediction is a fit of whole tiles

	// Anchors are the anchor durations T in seconds on the fastest rank, rising: a batch takes no longer than the largest that the
	// most efficient batch of its length reaches, unless a single sample does.
	Anchors []float64 `json:"anchors"`
	// Dither is the part of its anchor by which a batch is made shorter at most, at random: batches of other lengths then end together
	// in every epoch.
	Dither float64 `json:"dither"`
	// DitherFrom is the most efficient batch from which on that is so.
	DitherFrom int `json:"dither_from"`
	// Tolerance is by how much, relatively, the durations of the batches in a step may differ for the sake of chance.
	Tolerance float64 `json:"tolerance"`
	// EvenSteps, above 0 in small data sets, is how many steps the samples fill, with a shorter T.
	EvenSteps int `json:"even_steps"`
	// StepDurations: in a small data set without mixing each step lasts as long as is best for the epoch, in place of T.
	StepDurations bool `json:"step_durations,omitempty"`
	// BandArea of two lengths: the width of a band of sources, in the logarithm, times its batches.
	BandArea float64 `json:"band_area,omitempty"`
	// FreeCut of two lengths: batches end where the epoch takes the least work, whatever each of them lasts, in place of T.
	FreeCut           bool    `json:"free_cut,omitempty"`
	LowerBoundSeconds float64 `json:"lower_bound_seconds"`
	Score

	// Table and Memory (bytes; 0: the largest peak that ran) are what the cost comes
	// from, so that a schedule needs the plan and the lengths alone.
	Table    stepcost.Table `json:"table"`
	Memory   int64          `json:"memory_bytes"`
	Checksum string         `json:"checksum"` // of all the rest, as Write writes it

	given  Cost
	cost   Cost // with the plan's limits, or packed
	hist   []uint32
	limit  int
	best   []int     // per length: the most efficient batch
	target []float64 // per length: the anchor, no longer than that batch
	width  []uint32  // per length: its jitter
	knobs  knobs
	two    *paired     // where samples have two lengths: the cost, too
	scale  float64     // of the anchors in the predicted epoch
	last   *dispatched // of two lengths, while it is planned: the predicted epoch
}

// planVersion is that of the plan file.
const planVersion = 2

// Make plans. Errors of what was given are of ErrInput.
func Make(l Lengths, c Cost, f Config) (*Plan, error) { return makePlan(l, c, nil, f) }

// makePlan plans for one length per sample, or two.
func makePlan(l Lengths, c Cost, two *paired, f Config) (*Plan, error) {
	if err := f.fill(); err != nil {
		return nil, err
	}
	if len(l) == 0 {
		return nil, input.Errorf("no lengths")
	}
	p := &Plan{Version: planVersion, Samples: len(l), Mixing: *f.Mixing, Ranks: f.Ranks, Speeds: f.Speeds, MicroBatches: f.MicroBatches,
		MaxSamples: f.MaxSamples, MaxTokens: f.MaxTokens, PadTo: f.PadTo, BatchMultiple: f.BatchMultiple, Packed: f.Packed, Pairs: two != nil, Overlong: f.Overlong, Prediction: "formula"}
	if t, ok := c.(*stepcost.Model); ok {
		p.Prediction, p.Tile = t.Smoothed(), t.Tile()
		p.Table, p.Memory = t.Source()
	}
	if two != nil {
		if t, ok := two.of.(*stepcost.PairModel); ok {
			p.Prediction = "fit"
			p.Table, p.Memory = t.Source()
		}
	}
	full := l.histogram()
	rate, err := p.prepare(l, full, c, two)
	if err != nil {
		return nil, err
	}
	p.LowerBoundSeconds = bound(p.hist, rate, f.Speeds, p.Pairs)
	if p.Packed {
		if err := p.tunePacked(l); err != nil {
			return nil, err
		}
	} else {
		p.Anchors = searchAnchors(p.hist, p.cost, p.best, p.knobs.slack)
		p.aim(rate)
		if p.Pairs {
			p.tunePairs(l, full)
		} else {
			p.tune(l, full)
		}
	}
	if p.Pairs {
		p.Bands = p.pairBands(l, rate)
	} else {
		p.Bands = p.bands(rate)
	}
	if f.MaxEpoch > 0 && p.EpochSeconds > f.MaxEpoch {
		return nil, input.Errorf("max epoch %v s: the shortest plan is predicted to take %.6g s", f.MaxEpoch, p.EpochSeconds)
	}
	p.Data = p.checksum(l)
	return p, nil
}

// prepare derives what is not in the file.
func (p *Plan) prepare(l Lengths, full []uint32, c Cost, two *paired) (rate []float64, err error) {
	p.knobs = knobsOf(p.Mixing)
	p.hist = slices.Clone(full)
	if p.two = two; two != nil {
		two.limits = p.stepLimits()
		p.cost = two
		err = p.measurePairs(l)
	} else {
		p.given, p.cost = c, device{c, p.stepLimits()}
		err = p.measure(l)
	}
	if err != nil {
		return nil, err
	}
	if p.Packed {
		p.cost = newPacked(p.cost, p.hist)
	}
	p.best, rate = efficient(p.hist, p.cost)
	return rate, nil
}

// measure finds the longest length that fits and moves or drops what is longer.
func (p *Plan) measure(l Lengths) error {
	longest := len(p.hist) - 1
	p.limit = longest
	if err := p.checkLimits(l, p.cost.(fitter)); err != nil {
		return err
	}
	if p.cost.Cap(longest) < 1 {
		fits := sort.Search(longest, func(l int) bool { return p.cost.Cap(l+1) < 1 })
		n := 0
		for _, c := range p.hist[fits+1:] {
			n += int(c)
		}
		if p.Overlong == Refuse || fits == 0 {
			samples, verb := fmt.Sprint(n, " samples"), "fit"
			if n == 1 {
				samples, verb = "1 sample", "fits"
			}
			return input.Errorf("%s longer than %d %s into no batch (the longest is %d): the table has no such trial that ran; profile longer lengths, or skip or truncate such samples (--overlong skip)",
				samples, fits, verb, longest)
		}
		p.limit = fits
		if p.Overlong == Skip {
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

// aim finds the anchor of each length, and its jitter.
func (p *Plan) aim(rate []float64) {
	p.target = make([]float64, len(p.hist))
	for l, n := range p.hist {
		if n > 0 {
			own := p.cost.Seconds(l, p.best[l])
			if p.target[l] = own; p.best[l] > fewSamples {
				p.target[l] = min(own, anchorOf(p.Anchors, own))
			}
		}
	}
	if p.knobs.padding > 0 && p.two == nil {
		p.width = ordering.Jitter(p.hist, p.best, rate, p.knobs.padding)
	}
}

// fitter says of samples of one or of two lengths what a batch takes.
type fitter interface {
	stepLimits() limits
	// room is the largest batch within memory alone, and the padded tokens of a sample.
	room(kind int) (batch, tokens int)
	name(kind int) string
}

// checkLimits names the longest sample that a step's limits leave no batch, though memory would, and a multiple that memory holds of none.
func (p *Plan) checkLimits(l Lengths, c fitter) error {
	if err := c.stepLimits().check(p); err != nil || p.MaxTokens == 0 && p.BatchMultiple <= 1 {
		return err
	}
	most := cmp.Or(c.stepLimits().tokens, p.MaxTokens)
	largest, of := 0, 0
	for k := len(p.hist) - 1; k > 0; k-- {
		if p.hist[k] == 0 {
			continue
		}
		batch, tokens := c.room(k)
		if batch > 0 && most > 0 && tokens > most {
			return input.Errorf("max tokens %d of a step leave %d for a batch: sample %d, of %s, fits into none", p.MaxTokens, most, slices.Index(l, uint32(k)), c.name(k))
		}
		if batch > largest {
			largest, of = batch, k
		}
	}
	if largest > 0 && largest < p.BatchMultiple {
		return input.Errorf("batch multiple %d: memory holds %d samples at the most, of %s", p.BatchMultiple, largest, c.name(of))
	}
	return nil
}

// fewBatches is how many batches an epoch may have for its steps to be made equal to the last batch. With a quarter of them, other
// numbers of steps are worth a look.
const fewBatches = 4000

// manyBatches is how many batches an epoch may have for its last step to count.
const manyBatches = 100_000

// fewSteps is up to how many steps an epoch's time may jump where a slow rank takes one sample more, or none.
const fewSteps = 16

// tune finds what only a whole epoch shows: the number of steps of equal duration.
func (p *Plan) tune(l Lengths, full []uint32) {
	p.Tolerance = p.knobs.waiting
	p.Dither, p.DitherFrom = p.dither()
	p.Score = p.predict(l, full)
	if p.Steps*p.Ranks > manyBatches {
		return
	}
	// Durations that differ by the dither are dealt to so many steps: few cannot be even.
	p.Dither = min(p.Dither, .006*float64(p.Steps))
	p.EvenSteps = min(p.Steps+p.Steps/200, p.Samples) // epochs differ a little
	p.Score = p.predict(l, full)
	if p.Steps*p.Ranks <= fewBatches/4 {
		p.even(l, full)
		if p.Mixing == 0 && p.two == nil {
			q := *p
			q.StepDurations = true
			if q.Score = q.predict(l, full); q.EpochSeconds < p.EpochSeconds {
				*p = q
			}
		}
	}
}

// dither is the largest that adds no more to the work than mixing allows, of as many lengths as possible, and the batch from
// which on it counts: where few samples are left, one less leaves much of the duration.
func (p *Plan) dither() (part float64, from int) {
	least := p.dithered(0, 0)
	for _, from := range []int{4, 16, 64} {
		for _, part := range []float64{.15, .12, .1, .08, .06, .04, .03, .02} {
			if p.dithered(part, from) <= least*(1+p.knobs.slack) {
				return part, from
			}
		}
	}
	return 0, 0
}

// dithered is the work with a dither, on one rank.
func (p *Plan) dithered(part float64, from int) (sum float64) {
	for l, n := range p.hist {
		if n == 0 {
			continue
		}
		if p.best[l] < from || part == 0 {
			b := within(p.cost, l, p.best[l], p.target[l])
			sum += 3 * float64(n) * p.cost.Seconds(l, b) / float64(b)
			continue
		}
		for _, at := range []float64{1. / 6, 3. / 6, 5. / 6} {
			b := within(p.cost, l, p.best[l], p.target[l]*(1-at*part))
			sum += float64(n) * p.cost.Seconds(l, b) / float64(b)
		}
	}
	return sum
}

// even tries numbers of steps of equal duration; where they are few and ranks unequal, by the mean of several epochs: what fits one may be far off for others.
func (p *Plan) even(l Lengths, full []uint32) {
	epochs := 1
	if _, classes := slots(p.Speeds, p.MicroBatches); p.Steps <= fewSteps && len(classes) > 1 {
		epochs = 4
	}
	best, least := *p, math.Inf(1)
	worse := 0
	for n := max(1, p.Steps-1); worse < 8 && n <= min(20*(p.Steps+1), p.Samples); n += max(1, n/16) {
		q, sum := *p, 0.0
		q.EvenSteps = n
		for e := epochs - 1; e >= 0; e-- {
			q.Score = q.predictEpoch(l, full, uint64(e))
			sum += q.EpochSeconds
		}
		if worse++; sum < least {
			best, least, worse = q, sum, 0
		}
	}
	*p = best
}
