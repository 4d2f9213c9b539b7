package forward

import (
	"math"
)

// A step moves no weight by more than maxMove, in units of 2^-24, so that checkEvery steps stay within fixed point.
const (
	maxMove    = 1 << 25
	checkEvery = 16
)

// maxIncrement is what remains of maxMove for one move.
func (c *Config) maxIncrement() float64 {
	most := maxMove / float64(c.terms()) * (1 - c.Momentum)
	if c.Kind == Gaussian {
		most /= 5 // no entry of a direction is larger
	}
	return math.Floor(most)
}

// tuning is what steps learn about the size of the next ones.
type tuning struct {
	square      float64 // running mean of the pairs' squared half differences
	scale       float64 // of the rate
	best, error float64 // mean loss of the best block, and its squared standard error

	losses, squares float64 // of the block so far
	counted         int
}

func newTuning() tuning { return tuning{scale: 1, best: math.NaN()} }

const (
	averaged  = 32    // steps that the running mean remembers
	leastMean = 1e-13 // below it half differences are rounding
	guardAt   = 4     // standard errors
)

// decide computes a commit from the losses, in the order of pairs and in float64, rounded once.
func (r *round) decide(counted []arrival, t *tuning) Commit {
	c := r.config
	commit := Commit{Increments: make([]int32, c.Directions), Loss: math.NaN(), sender: 2 * counted[0].pair}
	for _, a := range counted {
		if a.age == 0 {
			commit.sender = 2 * a.pair
			break
		}
	}
	var finite []arrival
	slopes := make([]float64, c.Processors) // by rank; of Paired by the even one
	for _, a := range counted {
		even, odd := r.losses[2*a.pair], r.losses[2*a.pair+1]
		l := [4]float64{float64(even[0]), float64(odd[0]), float64(even[1]), float64(odd[1])}
		if !allFinite(l[:]) {
			commit.NotFinite |= 1 << a.pair
			continue
		}
		finite = append(finite, a)
		slopes[2*a.pair], slopes[2*a.pair+1] = (l[0]+l[2])/2, (l[1]+l[3])/2
		if c.Estimator != Each {
			slopes[2*a.pair] = ((l[0] - l[1]) + (l[2] - l[3])) / 4
		}
		for _, x := range l {
			commit.sum += x
		}
	}
	if len(finite) == 0 {
		return commit
	}
	commit.Loss = commit.sum / float64(4*len(finite))
	t.losses += commit.Loss
	t.squares += float64(commit.Loss * commit.Loss)
	t.counted++
	ranks := c.contrasts(finite, slopes)
	divisor := c.Epsilon
	if c.Normalize {
		divisor = t.divisor(r.step, ranks, slopes)
	}
	c.move(&commit, finite, slopes, divisor, t.scale, r.step)
	return commit
}

func allFinite(all []float64) bool {
	for _, x := range all {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return false
		}
	}
	return true
}

// contrasts turns mean losses of Each into what they are above the mean of all, and late ones into half of what they are above the other half's. It
// returns the ranks whose differences say how large they are.
func (c *Config) contrasts(finite []arrival, slopes []float64) (ranks []int) {
	if c.Estimator != Each {
		for _, a := range finite {
			ranks = append(ranks, 2*a.pair)
		}
		return ranks
	}
	mean := 0.0
	for _, a := range finite {
		if even, odd := 2*a.pair, 2*a.pair+1; a.age > 0 {
			slopes[even] = (slopes[even] - slopes[odd]) / 2
		} else {
			ranks = append(ranks, even, odd)
			mean += slopes[even]
			mean += slopes[odd]
		}
	}
	mean /= float64(len(ranks))
	for _, rank := range ranks {
		slopes[rank] -= mean
	}
	return ranks
}

// move sets a commit's increments.
func (c *Config) move(commit *Commit, finite []arrival, slopes []float64, unit, scale float64, step uint32) {
	all, came := 0, 0 // examples
	for _, n := range c.Examples {
		all += n
	}
	for _, a := range finite {
		came += c.Examples[a.pair]
	}
	// The root of both: a step of fewer pairs goes as far as one of all pairs, as in a run that has only these pairs and its own default rate.
	divisor := math.Sqrt(float64(all) * float64(came))
	if c.Estimator == Each {
		divisor *= 2 // of both ranks
	}
	factor := c.rate(int(step)) * scale / divisor
	increment := func(s float64) int32 {
		x := math.RoundToEven(-s * factor * (1 << unitBits))
		return int32(min(max(x, -c.maxIncrement()), c.maxIncrement()))
	}
	weighed := func(rank int) float64 {
		x := slopes[rank] / unit
		if c.Clip > 0 {
			x = min(max(x, -c.Clip), c.Clip)
		}
		return float64(float64(c.Examples[rank/2]) * x)
	}
	sums := make([]float64, c.Directions)
	for _, a := range finite {
		if a.age > 0 {
			commit.Late = append(commit.Late, Late{a.pair, int(a.age), increment(weighed(2 * a.pair))})
			continue
		}
		commit.Pairs |= 1 << a.pair
		sums[c.direction(2*a.pair)] += weighed(2 * a.pair)
		if c.Estimator == Each {
			sums[c.direction(2*a.pair+1)] += weighed(2*a.pair + 1)
		}
	}
	for d, s := range sums {
		commit.Increments[d] = increment(s)
	}
}

// divisor is the running root mean square of slopes, this step's included.
func (t *tuning) divisor(step uint32, ranks []int, slopes []float64) float64 {
	if len(ranks) > 0 {
		mean := 0.0
		for _, rank := range ranks {
			mean += float64(slopes[rank] * slopes[rank])
		}
		mean /= float64(len(ranks))
		t.square += (mean - t.square) / float64(min(step+1, averaged))
	}
	return math.Sqrt(max(t.square, leastMean))
}

// endBlock returns the mean loss of a block, and halves the rate if it was worse than that of the best one by more than chance.
func (t *tuning) endBlock(guard bool) float64 {
	n := float64(t.counted)
	mean := t.losses / n // NaN without losses
	if guard && n > 0 {
		variance := max(0, t.squares/n-float64(mean*mean))
		e := variance / n
		switch {
		case math.IsNaN(t.best) || mean < t.best:
			t.best, t.error = mean, e
		case mean-t.best > guardAt*math.Sqrt(e+t.error):
			t.scale /= 2
			t.best, t.error = mean, e
		}
	}
	t.losses, t.squares, t.counted = 0, 0, 0
	return mean
}
