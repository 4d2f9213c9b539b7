package forward

import "math/bits"

// examples returns the examples of a pair's two inputs in a step, out of a number of them. Each example comes once an epoch;
// with Each all pairs have the same ones in a step.
func (c *Config) examples(step, pair, of int) []int {
	before, each := 0, 0 // positions of earlier pairs, and of a whole step
	for p, n := range c.Examples {
		if p < pair {
			before += 2 * n
		}
		each += 2 * n
	}
	if c.Estimator == Each {
		before, each = 0, 2*c.Examples[pair]
	}
	picked := make([]int, 2*c.Examples[pair])
	at := step*each + before
	for i := range picked {
		picked[i] = int(c.shuffled(uint32((at+i)%of), uint32((at+i)/of), uint32(of)))
	}
	return picked
}

// shuffled returns the example at place v of an epoch. Each epoch has its own permutation of 0 to of-1: a Feistel network
// over the least even number of bits that holds them, repeated until the value is in range (Black and Rogaway, "Ciphers with
// arbitrary finite domains", 2002).
func (c *Config) shuffled(v, epoch, of uint32) uint32 {
	half := max((bits.Len32(of-1)+1)/2, 1)
	mask := uint32(1)<<half - 1
	for {
		left, right := v>>half, v&mask
		for round := range uint32(4) {
			word := philox([4]uint32{right, round, epoch, dataStep}, keyOf(c.Key))[0]
			left, right = right, left^word&mask
		}
		if v = left<<half | right; v < of {
			return v
		}
	}
}
