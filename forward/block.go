package forward

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// BlockSteps is the number of steps of a block; the last block of a run has the remaining ones.
const BlockSteps = 64

// Block is 64 decided steps, or a run's last ones, as a log and a run's stream have it: docs/reference/forward-protocol.md
// defines its bytes.
type Block struct {
	Number   int
	Steps    []Commit // from a log or stream without losses
	Position uint64   // of the message in the stream that decided the last step
	Loss     float64  // mean of the steps' losses; NaN: none has a loss
	Last     bool     // a processor asked to stop, so the run ends with this block
	prompt   uint64
	tuning   tuning
	hash     []byte // of the weights
}

const (
	blockHead     = 8
	blockTail     = 8 + 16 + 8 + 32 + 32
	maxBlockBytes = 1 << 20
)

// encode returns the block's bytes; before is the chain of the bytes before it.
func (b *Block) encode(before []byte) []byte {
	var steps []byte
	for i := range b.Steps {
		steps = b.Steps[i].encode(steps)
	}
	le := binary.LittleEndian
	out := le.AppendUint32(le.AppendUint32(nil, uint32(b.Number)), uint32(len(steps)))
	out = append(out, steps...)
	last := uint64(0)
	if b.Last {
		last = 1
	}
	for _, x := range []uint64{b.Position, b.prompt, last, math.Float64bits(b.tuning.square), math.Float64bits(b.tuning.scale), bitsOrNaN(b.tuning.best), math.Float64bits(b.tuning.bestError), bitsOrNaN(b.Loss)} {
		out = le.AppendUint64(out, x)
	}
	out = append(out, b.hash...)
	return append(out, chain(before, out)...)
}

// bitsOrNaN returns the bits of a float64, with the same bits for every NaN.
func bitsOrNaN(x float64) uint64 {
	if math.IsNaN(x) {
		return 0x7FF8000000000001
	}
	return math.Float64bits(x)
}

// blockNumber returns the number of a block, if its chain follows before; negative: it does not, or the block is damaged.
func blockNumber(before, b []byte) int {
	if len(b) < blockHead+blockTail+chainBytes || !bytes.Equal(chain(before, b[:len(b)-chainBytes]), b[len(b)-chainBytes:]) {
		return -1
	}
	return int(binary.LittleEndian.Uint32(b))
}

// decodeBlock reads a block whose chain was checked.
func decodeBlock(c *Config, data []byte) (*Block, error) {
	le := binary.LittleEndian
	b := &Block{Number: int(le.Uint32(data))}
	n, rest := int(le.Uint32(data[4:])), data[blockHead:]
	if n != len(rest)-blockTail-chainBytes {
		return nil, fmt.Errorf("steps have %d bytes, the block has room for %d", n, len(rest)-blockTail-chainBytes)
	}
	steps, tail := rest[:n], rest[n:]
	for range c.stepsOf(b.Number) {
		var one Commit
		var err error
		if one, steps, err = decodeCommit(steps, c); err != nil {
			return nil, fmt.Errorf("step %d: %w", b.Number*BlockSteps+len(b.Steps), err)
		}
		b.Steps = append(b.Steps, one)
	}
	if len(steps) > 0 || len(b.Steps) == 0 {
		return nil, errors.New("bytes left over")
	}
	b.Position, b.prompt = le.Uint64(tail), le.Uint64(tail[8:])
	last := le.Uint64(tail[16:])
	if b.prompt&^c.allPairs() != 0 || last > 1 {
		return nil, errors.New("pairs that the run does not have, or a mark of the last block that is neither 0 nor 1")
	}
	b.Last = last == 1
	at := func(i int) float64 { return math.Float64frombits(le.Uint64(tail[i:])) }
	b.tuning = tuning{square: at(24), scale: at(32), best: at(40), bestError: at(48)}
	if !(b.tuning.square >= 0) || !(b.tuning.scale > 0 && b.tuning.scale <= 1) || !(b.tuning.bestError >= 0) {
		return nil, errors.New("a state that no run reaches")
	}
	b.Loss = at(56)
	b.hash = tail[64:96]
	return b, nil
}

// stepsOf returns how many steps a block has.
func (c *Config) stepsOf(block int) int { return min(BlockSteps, c.Steps-block*BlockSteps) }

// blocks returns how many blocks a run has.
func (c *Config) blocks() int { return (c.Steps + BlockSteps - 1) / BlockSteps }
