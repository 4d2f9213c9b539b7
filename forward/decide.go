package forward

import (
	"math"
	"slices"
)

// A step moves no weight by more than maxMove, in units of 2^-24, so that checkEvery steps stay within fixed point.
const (
	maxMove    = 1 << 25
	checkEvery = 16
)

// maxIncrement returns the largest increment: maxMove, shared among the ranks.
func (c *Config) maxIncrement() float64 { return math.Floor(maxMove / float64(c.Processors)) }

// tuning is the state, besides the weights, that a step leaves to the next: the scales of slopes and of the rate.
type tuning struct {
	square    float64 // running mean of squared slopes
	scale     float64 // factor of the rate, halved by the guard
	best      float64 // mean loss of the best block; NaN: no block yet
	bestError float64 // its squared standard error

	losses, squares float64 // of the block so far: sums of the steps' losses and of their squares
	counted         int     // steps in these sums
}

func newTuning() tuning { return tuning{scale: 1, best: math.NaN()} }

const (
	averaged  = 32      // steps that the running mean remembers
	leastMean = 1e-13   // a smaller mean square is rounding noise
	guardAt   = 4       // standard errors
	spikeAt   = 16 * 16 // times the mean square before the step; of N slopes, no one's square exceeds N times their mean
)

// pairLosses are the losses of a pair that counts, each for its two inputs.
type pairLosses struct {
	arrival
	even, odd [2]float64
}

func (l *pairLosses) all() [4]float64 { return [4]float64{l.even[0], l.odd[0], l.even[1], l.odd[1]} }

// means returns the mean loss of each half.
func (l *pairLosses) means() []float64 {
	return []float64{(l.even[0] + l.even[1]) / 2, (l.odd[0] + l.odd[1]) / 2}
}

func (l *pairLosses) finite() bool {
	for _, x := range l.all() {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return false
		}
	}
	return true
}

// slope is the slope of the loss along what a rank tried, times epsilon.
type slope struct {
	arrival
	rank  int
	value float64
}

// decide computes a commit from the losses of the pairs that count. It computes in float64, in the order of pairs, and
// rounds once: docs/reference/forward-protocol.md has the formulas.
func (r *round) decide(counted []arrival, t *tuning) Commit {
	c := r.config
	commit := Commit{Increments: make([]int32, c.Directions), Loss: math.NaN(), sender: sender(counted)}
	var finite []pairLosses
	sum := 0.0
	for _, a := range counted {
		even, odd := r.losses[2*a.pair], r.losses[2*a.pair+1]
		l := pairLosses{a, [2]float64{float64(even[0]), float64(even[1])}, [2]float64{float64(odd[0]), float64(odd[1])}}
		if !l.finite() {
			commit.LeftOut |= 1 << a.pair
			continue
		}
		finite = append(finite, l)
	}
	if len(finite) == 0 {
		return commit
	}
	for _, s := range c.slopes(finite, median) {
		if t.square > 0 && s.value*s.value > spikeAt*max(t.square, leastMean) {
			commit.LeftOut |= 1 << s.pair
		}
	}
	all := len(finite)
	finite = slices.DeleteFunc(finite, func(l pairLosses) bool { return commit.LeftOut>>l.pair&1 == 1 })
	slopes := c.slopes(finite, mean)
	unit := t.unit(r.step, slopes, float64(2*(all-len(finite))))
	if len(finite) == 0 {
		return commit
	}
	for _, l := range finite {
		for _, x := range l.all() {
			sum += x
		}
	}
	commit.Loss = sum / float64(4*len(finite))
	t.losses += commit.Loss
	t.squares += float64(commit.Loss * commit.Loss)
	t.counted++
	c.move(&commit, finite, slopes, unit, t.scale, r.step)
	return commit
}

// sender returns the even rank of the first pair that came in time, or else of the first that came late.
func sender(counted []arrival) int {
	for _, a := range counted {
		if a.age == 0 {
			return 2 * a.pair
		}
	}
	return 2 * counted[0].pair
}

// slopes returns those of all ranks: the rank's loss above a center of the losses that are compared. With Each these are all
// that came in time, else those of a pair; a late pair had other weights and examples, and is compared with itself.
func (c *Config) slopes(finite []pairLosses, center func(losses []float64) float64) (slopes []slope) {
	var prompt []float64
	for _, l := range finite {
		if l.age == 0 {
			prompt = append(prompt, l.means()...)
		}
	}
	for _, l := range finite {
		compared := l.means()
		if c.Estimator == Each && l.age == 0 {
			compared = slices.Clone(prompt)
		}
		middle := center(compared)
		for half, x := range l.means() {
			slopes = append(slopes, slope{l.arrival, 2*l.pair + half, float64(c.sign(half)) * (x - middle)})
		}
	}
	return slopes
}

func mean(losses []float64) float64 {
	sum := 0.0
	for _, l := range losses {
		sum += l
	}
	return sum / float64(len(losses))
}

// median is what one loss, however large, cannot move far.
func median(losses []float64) float64 {
	slices.Sort(losses)
	return (losses[len(losses)/2-1] + losses[len(losses)/2]) / 2
}

// unit returns the running root mean square of slopes, this step's included. Each of the spikes counts as twice the mean before:
// a few change little, and where all slopes are spikes, the scale follows.
func (t *tuning) unit(step uint32, slopes []slope, spikes float64) float64 {
	sum, n := float64(spikes*2)*max(t.square, leastMean), spikes
	for _, s := range slopes {
		sum += float64(s.value * s.value)
		n++
	}
	switch mean := sum / n; {
	case !(mean > 0): // no slopes, or losses that a trial does not change
	case t.square == 0:
		t.square = mean
	default:
		if step == 1 { // the first step had nothing to tell a spike by
			t.square = min(t.square, 16*mean)
		}
		t.square += (mean - t.square) / float64(min(step+1, averaged))
	}
	return math.Sqrt(max(t.square, leastMean))
}

// move sets a commit's increments from slopes, which it divides by unit.
func (c *Config) move(commit *Commit, finite []pairLosses, slopes []slope, unit, scale float64, step uint32) {
	all, came := 0, 0 // examples of all pairs of the run, and of those that count
	for _, n := range c.Examples {
		all += n
	}
	for _, l := range finite {
		came += c.Examples[l.pair]
	}
	// The geometric mean makes a step of fewer pairs as long as in a run that has only these pairs and its own default rate.
	factor := c.rate(int(step)) * scale / (2 * math.Sqrt(float64(all)*float64(came)))
	increment := func(sum float64) int32 {
		x := math.RoundToEven(-sum * factor * (1 << unitBits))
		return int32(min(max(x, -c.maxIncrement()), c.maxIncrement()))
	}
	sums := make([]float64, c.Directions)
	for _, s := range slopes {
		x := s.value / unit
		if c.Clip > 0 {
			x = min(max(x, -c.Clip), c.Clip)
		}
		weighted := float64(float64(c.Examples[s.pair]) * x)
		if s.age > 0 {
			if s.rank%2 == 0 { // the odd rank's is the same, reversed
				commit.Late = append(commit.Late, Late{s.pair, int(s.age), increment(weighted)})
			}
			continue
		}
		commit.Pairs |= 1 << s.pair
		sums[c.direction(s.rank)] += weighted
	}
	for d, sum := range sums {
		commit.Increments[d] = increment(sum)
	}
}

// endBlock returns the mean loss of a block. With guard it halves the rate if that mean exceeds the best block's by more
// than chance.
func (t *tuning) endBlock(guard bool) float64 {
	n := float64(t.counted)
	mean := t.losses / n // NaN without losses
	if guard && n > 0 {
		e := max(0, t.squares/n-float64(mean*mean)) / n
		switch {
		case math.IsNaN(t.best) || mean < t.best:
			t.best, t.bestError = mean, e
		case mean-t.best > guardAt*math.Sqrt(e+t.bestError):
			t.scale /= 2
			t.best, t.bestError = mean, e
		}
	}
	t.losses, t.squares, t.counted = 0, 0, 0
	return mean
}
