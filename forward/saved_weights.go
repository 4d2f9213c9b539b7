package forward

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrSavedWeights is returned for a file that does not hold this run's weights.
var ErrSavedWeights = errors.New("forward: not the weights of this run")

// weightsMagic ends in the format's version.
const weightsMagic = "EKFWDWT2"

// Save writes the weights, so that a processor that comes back need not repeat all the steps before:
// docs/reference/formats/forward-log.md has every byte.
func (r *Replica) Save(to io.Writer) error {
	b := bufio.NewWriterSize(to, 1<<16)
	head := binary.LittleEndian.AppendUint32([]byte(weightsMagic), uint32(r.blocks))
	_, _ = b.Write(append(head, r.chain...)) // Flush returns the error
	_, _ = b.Write(r.Weights.sum())
	var four [4]byte
	for _, d := range r.Weights.data {
		for _, x := range d {
			binary.LittleEndian.PutUint32(four[:], uint32(x))
			_, _ = b.Write(four[:])
		}
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("forward: write weights: %w", err)
	}
	return nil
}

// Load is a replica with the weights that Save wrote; blocks are the run's so far, and r has none of them yet. Errors wrap
// ErrSavedWeights; r stays as it is.
func (r *Replica) Load(from io.Reader, blocks [][]byte) (*Replica, error) {
	b := bufio.NewReaderSize(from, 1<<16)
	head := make([]byte, len(weightsMagic)+4+chainBytes+32)
	if _, err := io.ReadFull(b, head); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSavedWeights, err)
	}
	if string(head[:len(weightsMagic)]) != weightsMagic {
		return nil, fmt.Errorf("%w: not a file of weights, or of another version", ErrSavedWeights)
	}
	seen := int(binary.LittleEndian.Uint32(head[len(weightsMagic):]))
	after := head[len(weightsMagic)+4:][:chainBytes]
	if seen < 1 || seen > len(blocks) || string(after) != string(blocks[seen-1][max(len(blocks[seen-1])-chainBytes, 0):]) {
		return nil, fmt.Errorf("%w: of another run, or of a block that it has not", ErrSavedWeights)
	}
	saved := r.Clone()
	saved.seen = seen
	tile := make([]byte, 4*tileFloats)
	for _, d := range saved.Weights.data {
		for len(d) > 0 {
			part := tile[:4*min(len(d), tileFloats)]
			if _, err := io.ReadFull(b, part); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrSavedWeights, err)
			}
			for i := range d[:len(part)/4] {
				d[i] = int32(binary.LittleEndian.Uint32(part[4*i:]))
			}
			d = d[len(part)/4:]
		}
	}
	if n, _ := b.Read(head[:1]); n != 0 || string(saved.Weights.sum()) != string(head[len(head)-32:]) {
		return nil, fmt.Errorf("%w: checksum differs", ErrSavedWeights)
	}
	return saved, nil
}
