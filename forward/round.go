package forward

import "math"

// round collects the frames of one step. It is a function of the frames in their order, which is the same for all
// processors, so that all reach the same decision.
type round struct {
	config   *Config
	step     uint32
	expected uint64 // pairs that the round waits for
	seen     [maxProcessors]bool
	losses   [maxProcessors][2]float32
	heard    [maxProcessors]bool // since a round last waited for it without success, in time or too late: the processor is at work
}

// memory is how many steps a frame may be late to show that its processor is at work.
const memory = 1024

// begin starts the round of a step; last are the pairs that took part in the one before. Pairs that did not are waited for
// again once both halves were heard after they failed, if only too late.
func (r *round) begin(c *Config, step uint32, last uint64) {
	expected, heard := last, r.heard
	for p := range c.Processors / 2 {
		for rank := 2 * p; rank <= 2*p+1; rank++ {
			if r.expected&^last>>p&1 == 1 && !r.seen[rank] {
				heard[rank] = false // the round waited without success
			}
		}
		if heard[2*p] && heard[2*p+1] {
			expected |= 1 << p
		}
	}
	*r = round{config: c, step: step, expected: expected, heard: heard}
}

// whole are the complete pairs: both frames have arrived.
func (r *round) whole() uint64 {
	pairs := uint64(0)
	for p := range r.config.Processors / 2 {
		if r.seen[2*p] && r.seen[2*p+1] {
			pairs |= 1 << p
		}
	}
	return pairs
}

// take processes a frame. done says that the step is decided, with the pairs that count. Frames of other steps, of
// unknown ranks and repeated ones change nothing.
func (r *round) take(f Frame) (pairs uint64, done bool) {
	if int(f.Rank) >= r.config.Processors {
		return 0, false
	}
	if f.Step != r.step {
		if late := r.step - f.Step; !f.Commit && late >= 1 && late <= memory {
			r.heard[f.Rank] = true
		}
		return 0, false
	}
	if f.Commit {
		// Whoever proposed it had seen the frames of these pairs, so everybody has.
		if f.Pairs == 0 || f.Pairs&^r.whole() != 0 {
			return 0, false
		}
		return f.Pairs, true
	}
	if r.seen[f.Rank] {
		return 0, false
	}
	r.seen[f.Rank], r.heard[f.Rank], r.losses[f.Rank] = true, true, f.Losses
	whole := r.whole()
	if whole == 0 || r.expected&^whole != 0 {
		return 0, false
	}
	return whole, true
}

// Commit is the outcome of a step: the pairs that took part, and for each direction by how much the weights move along
// it, in units of 2^-24.
type Commit struct {
	Pairs      uint64
	Increments []int32
	Dropped    int // pairs that took part and whose losses were not finite
	Loss       float64
}

// A step moves no weight by more than maxMove, in units of 2^-24, so that checkEvery steps stay within fixed point.
const (
	maxMove    = 1 << 25
	checkEvery = 16
)

// maxIncrement is what remains of maxMove for one direction.
func (c *Config) maxIncrement() float64 {
	most := maxMove / float64(c.Directions) * (1 - c.Momentum)
	if c.Kind == Gaussian {
		most /= 5 // no entry of a direction is larger
	}
	return most
}

// decide computes a commit from the losses, in the order of ranks and in float64, rounded once.
func (r *round) decide(pairs uint64) Commit {
	c := r.config
	commit := Commit{Increments: make([]int32, c.Directions)}
	slopes := make([]float64, c.Directions)
	total, sum, square, n := 0.0, 0.0, 0.0, 0.0
	for p := range c.Processors / 2 {
		if pairs>>p&1 == 0 {
			continue
		}
		plus, minus := r.losses[2*p], r.losses[2*p+1]
		difference, finite := 0.0, true
		for i := range 2 {
			a, b := float64(plus[i]), float64(minus[i])
			difference += a - b
			finite = finite && !math.IsNaN(a-b) && !math.IsInf(a, 0) && !math.IsInf(b, 0)
		}
		if !finite {
			commit.Dropped++
			continue
		}
		commit.Pairs |= 1 << p
		for i := range 2 {
			for _, l := range []float64{float64(plus[i]), float64(minus[i])} {
				sum += l
				square += float64(l * l)
				n++
			}
		}
		slope := difference / 2 / (2 * c.Epsilon)
		if c.Clip > 0 {
			slope = min(max(slope, -c.Clip), c.Clip)
		}
		d, weight := c.direction(p), float64(c.Examples[p])
		slopes[d] += float64(slope * weight)
		total += weight
	}
	if commit.Pairs == 0 {
		return commit
	}
	commit.Loss = sum / n
	scale := c.rate(int(r.step)) / total // of a slope times examples: the mean over all examples
	if c.Normalize {
		if variance := square/n - float64(commit.Loss*commit.Loss); variance > 1e-12 {
			scale /= math.Sqrt(variance)
		}
	}
	for d, s := range slopes {
		x := math.Round(-s * scale * (1 << unitBits))
		commit.Increments[d] = int32(min(max(x, -c.maxIncrement()), c.maxIncrement()))
	}
	return commit
}
