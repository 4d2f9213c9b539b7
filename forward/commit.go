package forward

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
)

// Commit is the outcome of a step.
type Commit struct {
	Pairs      uint64  // that counted in their own step, a bit each
	Increments []int32 // by how much the weights move along each of the step's directions, in units of 2^-24
	Late       []Late  // pairs that counted later than the step they were due for
	NotFinite  uint64  // pairs that came with a loss of NaN or infinity, and do not count
	Loss       float64 // mean over the pairs; NaN: none counted

	sum    float64 // of the losses
	sender int     // of the block that ends with the step: the lowest rank of the pairs that came
}

// Late is the move of a pair that needed more than one step, along the direction that it tried; with Each along that of its even rank, and back along
// that of its odd one.
type Late struct {
	Pair      int
	Age       int // in steps
	Increment int32
}

// all are the pairs that counted.
func (c *Commit) all() uint64 {
	pairs := c.Pairs
	for _, l := range c.Late {
		pairs |= 1 << l.Pair
	}
	return pairs
}

// Counts says whether a pair counted, in time or late.
func (c *Commit) Counts(pair int) bool { return c.all()>>pair&1 == 1 }

// encode appends a commit.
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

// decodeCommit reads one and returns the rest.
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
