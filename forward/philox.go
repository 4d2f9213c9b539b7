package forward

import "math/bits"

// philox is Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011): 128 random bits of a counter and a key.
func philox(c [4]uint32, k [2]uint32) [4]uint32 {
	for range 10 {
		h0, l0 := bits.Mul32(0xD2511F53, c[0])
		h1, l1 := bits.Mul32(0xCD9E8D57, c[2])
		c = [4]uint32{h1 ^ c[1] ^ k[0], l1, h0 ^ c[3] ^ k[1], l0}
		k[0] += 0x9E3779B9
		k[1] += 0xBB67AE85
	}
	return c
}

// Values of a counter's step that stand for no step.
const (
	initialStep = 1<<32 - 1 // the first weights
	dataStep    = 1<<32 - 2 // the order of the examples
)

// stream names the random numbers of one tensor in one direction of one step.
type stream struct {
	key             [2]uint32
	step, direction uint32
	tensor          uint32
}

// block returns random block i, of 128 bits.
func (s stream) block(i int) [4]uint32 {
	return philox([4]uint32{uint32(i), s.tensor, s.direction, s.step}, s.key)
}

func keyOf(key uint64) [2]uint32 { return [2]uint32{uint32(key), uint32(key >> 32)} }
