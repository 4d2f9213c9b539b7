package forward

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"
)

// ErrSavedWeights is returned for a file that does not hold this run's weights.
var ErrSavedWeights = errors.New("forward: not the weights of this run")

// weightsMagic ends in the format's version.
const weightsMagic = "EKFWDWT1"

// WriteWeights writes the weights that a run has after a step, so that a processor that comes back need not repeat all the steps
// before: docs/reference/formats/forward-log.md has every byte. initial is the hash of the weights that the run began with.
func WriteWeights(to io.Writer, initial string, steps int, w *Weights) error {
	h := xxh3.New()
	b := bufio.NewWriterSize(io.MultiWriter(to, h), 1<<16)
	head := binary.LittleEndian.AppendUint32([]byte(weightsMagic), uint32(steps))
	_, _ = b.Write(append(head, initial...)) // Flush returns the error
	var four [4]byte
	for _, d := range w.data {
		for _, x := range d {
			binary.LittleEndian.PutUint32(four[:], uint32(x))
			_, _ = b.Write(four[:])
		}
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("forward: write weights: %w", err)
	}
	if _, err := to.Write(binary.LittleEndian.AppendUint64(nil, h.Sum64())); err != nil {
		return fmt.Errorf("forward: write weights: %w", err)
	}
	return nil
}

// ReadWeights reads into w, which has the weights that the run begins with, what WriteWeights wrote, and returns the number of steps that
// they have seen. Errors wrap ErrSavedWeights, and leave w in any state.
func ReadWeights(from io.Reader, initial string, w *Weights) (steps int, err error) {
	h := xxh3.New()
	b := bufio.NewReaderSize(from, 1<<16)
	read := io.TeeReader(b, h)
	head := make([]byte, len(weightsMagic)+4+len(initial))
	if _, err := io.ReadFull(read, head); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrSavedWeights, err)
	}
	switch {
	case string(head[:len(weightsMagic)]) != weightsMagic:
		return 0, fmt.Errorf("%w: not a file of weights, or of another version", ErrSavedWeights)
	case string(head[len(weightsMagic)+4:]) != initial:
		return 0, fmt.Errorf("%w: the run began with other weights", ErrSavedWeights)
	}
	tile := make([]byte, 4*tileFloats)
	for _, d := range w.data {
		for len(d) > 0 {
			part := tile[:4*min(len(d), tileFloats)]
			if _, err := io.ReadFull(read, part); err != nil {
				return 0, fmt.Errorf("%w: %w", ErrSavedWeights, err)
			}
			for i := range d[:len(part)/4] {
				d[i] = int32(binary.LittleEndian.Uint32(part[4*i:]))
			}
			d = d[len(part)/4:]
		}
	}
	sum := h.Sum64()
	var last [9]byte
	if n, _ := io.ReadFull(b, last[:]); n != 8 || binary.LittleEndian.Uint64(last[:]) != sum {
		return 0, fmt.Errorf("%w: checksum differs", ErrSavedWeights)
	}
	return int(binary.LittleEndian.Uint32(head[len(weightsMagic):])), nil
}
