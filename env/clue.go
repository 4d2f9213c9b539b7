package env

import (
	"math"
	"slices"
)

// clue says how long after an event a spell of slowness begins: the node's last spell, that of the node before it, or the last one
// of many nodes together. It is a renewal process whose lags have a logistic distribution around a moving average.
type clue struct {
	lag, off     float64    // mean and mean absolute deviation, seconds
	prior        float64    // deviation relative to the lag, as good as one more lag
	count        float64    // lags in the means
	hits, misses float64    // spells that began when they should, with forgetting
	from         float64    // the event, on the tracker's clock; 0: none
	last         float64    // newest spell, a stray one too
	newest       [3]float64 // times between spells
	strays       int        // spells in a row that came at other times
}

const (
	lagRate   = 0.2  // of the moving averages
	leastOff  = 0.15 // of a round: no onset is foreseen better
	seenOff   = 0.3  // of a round: no onset is seen better
	reach     = 3.0  // deviations within which a spell comes as foreseen
	clueKeep  = 0.85 // forgetting factor of hits and misses
	fleetKeep = 0.97 // the same for what all nodes have in common
	proven    = 0.5  // spells that came as foreseen, from which a clue is believed
	toldAfter = 2.5  // rounds until a spell is told from a spike
	unseen    = 0.4  // of a miss: a spell that was not seen may have met a node that was ready for it
)

// spread is the standard deviation of the lag, in seconds, for rounds of unit seconds.
func (c *clue) spread(unit float64) float64 {
	n := max(c.count, 1)
	s := 1.25 * ((n-1)*c.off + c.prior*c.lag) / n * math.Sqrt(1+1/n)
	return math.Sqrt(max(s*s-seenOff*seenOff*unit*unit, leastOff*leastOff*unit*unit))
}

// odds is the share of spells that come as foreseen.
func (c *clue) odds() float64 { return (c.hits + 0.5) / (c.hits + c.misses + 1) }

// judge notes so many spells that came as foreseen, and that did not.
func (c *clue) judge(hits, misses, keep float64) {
	keep = math.Pow(keep, hits+misses)
	c.hits, c.misses = keep*c.hits+hits, keep*c.misses+misses
}

// learn takes in a spell that began at a time. One that begins long before it should is a stray, and one after twice or three
// times the lag shows that others were missed. After three strays in a row the lag is their median.
func (c *clue) learn(at, unit float64) {
	switch lag := at - c.from; {
	case c.from == 0:
	case c.count == 0:
		c.lag, c.count = lag, 1
	default:
		hit, spread := false, c.spread(unit)
		for k := 1.0; k <= 3 && !hit; k++ {
			if math.Abs(lag-k*c.lag) < reach*spread*math.Sqrt(k) {
				lag, hit = lag/k, true
			}
		}
		c.judge(flag(hit), flag(!hit), clueKeep)
		c.newest = [3]float64{at - c.last, c.newest[0], c.newest[1]}
		c.last = at
		switch {
		case hit:
			c.strays = 0
			by, trust := lag-c.lag, 1.0
			if c.count > 1 { // the steadier the lags, the less a spell that was seen at a slightly different time moves the next one
				trust = c.off / (c.off + 0.5*unit)
			}
			c.count++
			c.off += max(lagRate, 1/(c.count-1)) * (math.Abs(by) - c.off)
			c.lag += max(lagRate, 1/c.count) * trust * by
			c.from, c.last = at-(1-trust)*by, at
			return
		case c.strays < 2:
			if c.strays++; lag < c.lag {
				return
			}
		default:
			sorted := c.newest
			slices.Sort(sorted[:])
			c.lag, c.off, c.count, c.strays = sorted[1], (sorted[2]-sorted[0])/4, 2, 0
		}
	}
	c.from, c.last = at, at
}

// average takes in a lag, which counts as at most so much off the mean.
func (c *clue) average(lag, most float64) {
	if c.count++; c.count == 1 {
		c.lag = lag
		return
	}
	by := clip(lag-c.lag, most)
	c.off += max(lagRate, 1/(c.count-1)) * (math.Abs(by) - c.off)
	c.lag += max(lagRate, 1/c.count) * by
}

// in is how many seconds after now the next spell should begin.
func (c *clue) in(now float64) float64 { return c.from + c.lag - now }

// overdue says whether the time of the spell is over.
func (c *clue) overdue(now, unit float64) bool {
	return c.count > 0 && c.from > 0 && -c.in(now) > reach*c.spread(unit)+toldAfter*unit
}

// chance is that of a spell to begin within unit seconds from now on, unless the clue fails; 0 until one has come as foreseen.
func (c *clue) chance(now, unit float64) float64 {
	if c.hits < proven || c.from == 0 {
		return 0
	}
	scale, odds := 0.55*c.spread(unit), c.odds()
	before, after := logistic(-c.in(now)/scale), logistic((unit-c.in(now))/scale)
	return odds * (after - before) / (odds*(1-before) + 1 - odds)
}

func logistic(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
