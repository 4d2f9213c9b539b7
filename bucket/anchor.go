package bucket

import (
	"math"
	"slices"
	"sort"

	"github.com/evenkeel/evenkeel/bucket/internal/input"
)

// Band is a range of lengths and what the middle of the data set there gets, for people.
type Band struct {
	Upper   int     `json:"upper"`            // longest length, of two the longest source; the shortest is the one before's plus 1
	Target  int     `json:"target,omitempty"` // where there are two, the longest
	Samples int     `json:"samples"`          // in the data set
	Batch   int     `json:"batch"`            // samples of a batch of the longest on the fastest rank; of two lengths the mean in the predicted epoch
	Seconds float64 `json:"seconds"`          // predicted of such a batch there
}

// searchAnchors is the anchor search (Huawei, training method for sequence models): durations are recorded by length and
// batch, an anchor duration is chosen among them, and a length takes the largest batch that lasts no longer.
//
// Departures. The patent has one anchor T and moves it until the epoch time meets a condition. Here lengths are not gathered in
// buckets, and there may be several anchors, rising by a factor at least: a length takes the largest that its most efficient
// batch reaches. Few anchors let batches of many lengths share a step; many keep all batches efficient. The factor is the
// largest with which the work of the samples is within slack of the least; 1 makes every recorded duration an anchor.
func searchAnchors(hist []uint32, c Cost, best []int, slack float64) []float64 {
	var records []float64
	for l, n := range hist {
		if n > 0 && best[l] > fewSamples {
			records = append(records, c.Seconds(l, best[l]))
		}
	}
	if len(records) == 0 {
		return []float64{0}
	}
	slices.Sort(records)
	records = slices.Compact(records)
	longest := records[len(records)-1]
	if slack <= 0 {
		return []float64{longest} // none below it is any use
	}
	least := work(hist, c, best, nil)
	low, high := 1.0, longest/records[0]*(1+1e-9)
	found := ladder(records, high)
	if work(hist, c, best, found) <= least*(1+slack) {
		return found
	}
	for range 12 {
		middle := math.Sqrt(low * high)
		if a := ladder(records, middle); work(hist, c, best, a) <= least*(1+slack) {
			low, found = middle, a
		} else {
			high = middle
		}
	}
	if low == 1 {
		return []float64{longest}
	}
	return found
}

// fewSamples is the largest batch that no anchor makes smaller: one sample less would leave much of the duration unused.
const fewSamples = 16

// ladder is the shortest duration, and then always the next that is longer by more than the factor.
func ladder(records []float64, factor float64) (out []float64) {
	for _, r := range records {
		if len(out) == 0 || r > out[len(out)-1]*factor {
			out = append(out, r)
		}
	}
	return out
}

// work is the time of all samples in full batches, on one rank.
func work(hist []uint32, c Cost, best []int, anchors []float64) (sum float64) {
	for l, n := range hist {
		if n > 0 {
			b := best[l]
			if anchors != nil && b > fewSamples {
				b = within(c, l, b, anchorOf(anchors, c.Seconds(l, b)))
			}
			sum += float64(n) * c.Seconds(l, b) / float64(b)
		}
	}
	return sum
}

// anchorOf is the largest anchor up to a duration, or the least.
func anchorOf(anchors []float64, seconds float64) float64 {
	if len(anchors) == 1 {
		return anchors[0]
	}
	return anchors[max(0, sort.Search(len(anchors), func(i int) bool { return anchors[i] > seconds*(1+1e-9) })-1)]
}

// within is the largest batch up to top that lasts no longer than the limit, at least 1.
func within(c Cost, length, top int, limit float64) int {
	if c.Seconds(length, top) <= limit*(1+1e-9) {
		return top
	}
	return max(1, sort.Search(top, func(b int) bool { return c.Seconds(length, b+1) > limit*(1+1e-9) }))
}

// bands are twelve of equal work.
func (p *Plan) bands(rate []float64) (out []Band) {
	for _, u := range boundaries(p.hist, rate, 12) {
		b := p.best[u]
		if most := p.target[u]; b > fewSamples && !p.Packed {
			b = within(p.cost, u, b, most*p.scale)
		} else {
			b = within(p.cost, u, b, most)
		}
		out = append(out, Band{Upper: u, Batch: b, Seconds: p.cost.Seconds(u, b)})
	}
	for l, n := range p.hist {
		if n > 0 {
			out[sort.Search(len(out)-1, func(k int) bool { return out[k].Upper >= l })].Samples += int(n)
		}
	}
	return out
}

// boundaries cuts the lengths of a histogram into at most n ranges of equal work, samples times rate, and returns their
// upper lengths. Each is a length that occurs, the last the longest.
func boundaries(hist []uint32, rate []float64, n int) []int {
	var total float64
	hi := 0
	for l, c := range hist {
		if c > 0 {
			hi = l
			total += float64(c) * rate[l]
		}
	}
	var out []int
	sum := 0.0
	for l, c := range hist {
		if c == 0 {
			continue
		}
		sum += float64(c) * rate[l]
		if l == hi || sum >= total*float64(len(out)+1)/float64(n) && len(out) < n-1 {
			out = append(out, l)
		}
	}
	return out
}

// Uppers are the longest lengths of n ranges of equal count of samples times length, for profiling: where the
// time of an epoch is spent, the trials are. Errors are of ErrInput.
func (l Lengths) Uppers(n int) ([]int, error) {
	if n < 2 || n > 4096 {
		return nil, input.Errorf("buckets %d: must be 2 to 4096", n)
	}
	hist := l.histogram()
	rate := make([]float64, len(hist))
	for k := range rate {
		rate[k] = float64(k)
	}
	return boundaries(hist, rate, n), nil
}
