package forward

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"
)

// ErrKept is told of files that do not hold a run's weights.
var ErrKept = errors.New("forward: no weights of this run")

// keptMagic ends in the format's version.
const keptMagic = "EKFWDWT1"

// Keep writes the weights that a run has after a step, so that a processor that comes back need not repeat all the steps
// before: docs/reference/formats/forward-log.md has every byte. initial is the hash of the weights that the run began with.
func Keep(to io.Writer, initial string, steps int, w *Weights) error {
	h := xxh3.New()
	b := bufio.NewWriterSize(io.MultiWriter(to, h), 1<<16)
	head := binary.LittleEndian.AppendUint32([]byte(keptMagic), uint32(steps))
	_, _ = b.Write(append(head, initial...)) // Flush tells
	var four [4]byte
	for _, d := range w.data {
		for _, x := range d {
			binary.LittleEndian.PutUint32(four[:], uint32(x))
			_, _ = b.Write(four[:])
		}
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("forward: keep weights: %w", err)
	}
	if _, err := to.Write(binary.LittleEndian.AppendUint64(nil, h.Sum64())); err != nil {
		return fmt.Errorf("forward: keep weights: %w", err)
	}
	return nil
}

// Kept reads into w, which has the weights that the run begins with, what Keep wrote, and returns the number of steps that
// they have seen. Errors wrap ErrKept, and leave w in any state.
func Kept(from io.Reader, initial string, w *Weights) (steps int, err error) {
	h := xxh3.New()
	b := bufio.NewReaderSize(from, 1<<16)
	read := io.TeeReader(b, h)
	head := make([]byte, len(keptMagic)+4+len(initial))
	if _, err := io.ReadFull(read, head); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrKept, err)
	}
	switch {
	case string(head[:len(keptMagic)]) != keptMagic:
		return 0, fmt.Errorf("%w: no such file, or of another version", ErrKept)
	case string(head[len(keptMagic)+4:]) != initial:
		return 0, fmt.Errorf("%w: it began with other weights", ErrKept)
	}
	tile := make([]byte, 4*tileFloats)
	for _, d := range w.data {
		for len(d) > 0 {
			part := tile[:4*min(len(d), tileFloats)]
			if _, err := io.ReadFull(read, part); err != nil {
				return 0, fmt.Errorf("%w: %w", ErrKept, err)
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
		return 0, fmt.Errorf("%w: checksum differs", ErrKept)
	}
	return int(binary.LittleEndian.Uint32(head[len(keptMagic):])), nil
}
