package forward

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
)

// Commit is the outcome of a step.
type Commit struct {
	Pairs      uint64  // a bit for each pair that counted in the step it was due for
	Increments []int32 // by direction: how far the weights move along it, in units of 2^-24
	Late       []Late  // pairs that counted after the step they were due for
	LeftOut    uint64  // a bit for each pair that came with a loss of NaN or infinity or with a spike, and does not count
	Loss       float64 // mean over the pairs that counted; NaN: none did, or the commit comes from a log

	sender int // rank that sends the block if it ends with this step: the even rank of the first pair that came
}

// Late is the move of a pair that needed more than one step. It goes along what the even rank tried, and against what the odd
// rank tried.
type Late struct {
	Pair      int
	Age       int   // steps since the pair was due, 1 or more
	Increment int32 // in units of 2^-24
}

// all returns the pairs that counted, in time or late.
func (c *Commit) all() uint64 {
	pairs := c.Pairs
	for _, l := range c.Late {
		pairs |= 1 << l.Pair
	}
	return pairs
}

// Counts says whether a pair counted, in time or late.
func (c *Commit) Counts(pair int) bool { return c.all()>>pair&1 == 1 }

// terms returns a commit's moves of the weights.
func (c *Commit) terms(config *Config, step uint32) (terms []term) {
	add := func(step uint32, direction int, units int64) {
		if units != 0 {
			terms = append(terms, term{step: step, direction: uint32(direction), plus: units})
		}
	}
	for d, k := range c.Increments {
		add(step, d, int64(k))
	}
	for _, l := range c.Late {
		due := step - uint32(l.Age)
		add(due, config.direction(2*l.Pair), int64(l.Increment))
		add(due, config.direction(2*l.Pair+1), -int64(config.sign(2*l.Pair+1))*int64(l.Increment))
	}
	return terms
}

// encode appends a commit's bytes.
func (c *Commit) encode(b []byte) []byte {
	b = binary.AppendUvarint(b, c.Pairs)
	for _, k := range c.Increments {
		b = binary.AppendVarint(b, int64(k))
	}
	b = binary.AppendUvarint(b, uint64(len(c.Late)))
	for _, l := range c.Late {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(l.Pair)), uint64(l.Age))
		b = binary.AppendVarint(b, int64(l.Increment))
	}
	return b
}

// decodeCommit reads a commit and returns the bytes after it.
func decodeCommit(b []byte, config *Config) (Commit, []byte, error) {
	c := Commit{Increments: make([]int32, config.Directions), Loss: math.NaN()}
	bad := false
	unsigned := func(most uint64) uint64 {
		x, n := binary.Uvarint(b)
		if n <= 0 || x > most {
			bad = true
			return 0
		}
		b = b[n:]
		return x
	}
	increment := func() int32 {
		x, n := binary.Varint(b)
		if n <= 0 || int64(int32(x)) != x || math.Abs(float64(x)) > config.maxIncrement() {
			bad = true
			return 0
		}
		b = b[n:]
		return int32(x)
	}
	c.Pairs = unsigned(config.allPairs())
	for i := range c.Increments {
		c.Increments[i] = increment()
	}
	pairs := uint64(config.Processors / 2)
	for range unsigned(pairs) {
		l := Late{Pair: int(unsigned(pairs - 1)), Age: int(unsigned(BlockSteps - 1)), Increment: increment()}
		if l.Age == 0 || c.all()>>l.Pair&1 == 1 || bits.Len64(c.all()&^c.Pairs) > l.Pair {
			bad = true
		}
		c.Late = append(c.Late, l)
	}
	if bad {
		return Commit{}, nil, errors.New("not the outcome of a step")
	}
	return c, b, nil
}
