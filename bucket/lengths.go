package bucket

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"

	"evenkeel/bucket/stepcost"
)

// MaxLength is the largest length of a sample. A histogram has an entry for each length up to the longest, so this bounds memory.
const MaxLength = stepcost.MaxLength

// Lengths is one length per sample, 1 to MaxLength, in the data set's order. Package lengthfile reads them.
type Lengths []uint32

// Histogram counts samples per length: entry n is the number of samples of length n. There must be one sample.
func (l Lengths) Histogram() []uint32 {
	n := make([]uint32, slices.Max(l)+1)
	for _, v := range l {
		n[v]++
	}
	return n
}

// Checksum identifies the lengths: XXH3 of their little-endian bytes, in hexadecimal.
func (l Lengths) Checksum() string {
	h, buf := xxh3.New(), []byte{}
	for part := range slices.Chunk(l, 1<<14) {
		buf, _ = binary.Append(buf[:0], binary.LittleEndian, []uint32(part)) // fails for types without a fixed size alone
		_, _ = h.Write(buf)
	}
	return fmt.Sprintf("%016x", h.Sum64())
}
