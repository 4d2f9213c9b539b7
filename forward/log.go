package forward

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Errors of logs.
var (
	// ErrLog is returned for what is not a log, or a damaged one.
	ErrLog = errors.New("forward: damaged log")
	// ErrTruncated is returned where the last block of a log is incomplete; what came before it is good.
	ErrTruncated = errors.New("forward: the log ends within a block")
)

// LogReader reads a log: a header and blocks.
type LogReader struct {
	Header  *Header
	Encoded []byte // the header's bytes
	r       *bufio.Reader
	blocks  int
}

// NewLogReader reads the header. Errors wrap ErrLog or ErrConfig.
func NewLogReader(r io.Reader) (*LogReader, error) {
	l := &LogReader{r: bufio.NewReader(r)}
	const fixed = len(logMagic) + 4
	start := make([]byte, fixed)
	if _, err := io.ReadFull(l.r, start); err != nil {
		return nil, fmt.Errorf("%w: too short for a log of forward-only training", ErrLog)
	}
	n := min(binary.LittleEndian.Uint32(start[len(logMagic):]), maxHeaderBytes)
	rest := make([]byte, n+chainBytes)
	if string(start[:len(logMagic)]) == logMagic { // else DecodeHeader says what it is
		if _, err := io.ReadFull(l.r, rest); err != nil {
			return nil, fmt.Errorf("%w: it ends within the header", ErrLog)
		}
	}
	l.Encoded = slices.Concat(start, rest)
	var err error
	l.Header, err = DecodeHeader(l.Encoded)
	return l, err
}

// Next is the next block's bytes, for Replica.Apply; io.EOF after the last. ErrTruncated: the file ends within a block.
func (l *LogReader) Next() ([]byte, error) {
	head := make([]byte, blockHead)
	switch n, err := io.ReadFull(l.r, head); {
	case n == 0 && errors.Is(err, io.EOF):
		return nil, io.EOF
	case err != nil:
		return nil, fmt.Errorf("%w, after block %d", ErrTruncated, l.blocks)
	}
	n := binary.LittleEndian.Uint32(head[4:])
	if n > maxBlockBytes {
		return nil, fmt.Errorf("%w: block %d: steps in %d bytes", ErrLog, l.blocks, n)
	}
	b := make([]byte, blockHead+n+blockTail+chainBytes)
	copy(b, head)
	if _, err := io.ReadFull(l.r, b[blockHead:]); err != nil {
		return nil, fmt.Errorf("%w, after block %d", ErrTruncated, l.blocks)
	}
	l.blocks++
	return b, nil
}

// Replay applies a log to the first weights of its run, as far as the block that contains the last of so many steps; 0: to
// the end. It ends early at a damaged or cut block, with its error; the weights are then those after the last good block.
func Replay(l *LogReader, w *Weights, steps int) (*Replica, error) {
	r, err := NewReplica(l.Encoded, w)
	if err != nil {
		return r, err
	}
	for steps == 0 || r.Steps() < steps {
		b, err := l.Next()
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err == nil {
			_, err = r.Apply(b)
		}
		if err != nil {
			return r, err
		}
	}
	return r, nil
}
