package forward

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Errors of logs.
var (
	// ErrLog is returned for a damaged log, or a file that is no log.
	ErrLog = errors.New("forward: damaged log")
	// ErrTruncated is returned if the last block of a log is incomplete; the blocks before it are good.
	ErrTruncated = errors.New("forward: the log ends within a block")
)

// LogReader reads a log: a header and blocks.
type LogReader struct {
	Header  *Header
	Encoded []byte // the header's bytes
	rest    []byte
	blocks  int // read so far
}

// NewLogReader reads the header. Errors wrap ErrLog or ErrConfig.
func NewLogReader(r io.Reader) (*LogReader, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("forward: read log: %w", err)
	}
	n := len(data)
	if n >= headerHead {
		n = min(n, headerHead+int(binary.LittleEndian.Uint32(data[len(logMagic):]))+chainBytes)
	}
	l := &LogReader{Encoded: data[:n], rest: data[n:]}
	l.Header, err = DecodeHeader(l.Encoded)
	return l, err
}

// Next returns the next block's bytes, for Replica.Apply; io.EOF after the last. ErrTruncated: the file ends within a block.
func (l *LogReader) Next() ([]byte, error) {
	if len(l.rest) == 0 {
		return nil, io.EOF
	}
	n := 0
	if len(l.rest) >= blockHead {
		n = int(binary.LittleEndian.Uint32(l.rest[4:]))
		if n > maxBlockBytes {
			return nil, fmt.Errorf("%w: block %d: its steps have %d bytes; at most %d", ErrLog, l.blocks, n, maxBlockBytes)
		}
	}
	n += blockHead + blockTail + chainBytes
	if len(l.rest) < n {
		return nil, fmt.Errorf("%w, after block %d", ErrTruncated, l.blocks)
	}
	b := l.rest[:n]
	l.rest = l.rest[n:]
	l.blocks++
	return b, nil
}

// Replay applies a log's blocks to the first weights of its run until they have so many steps; 0: to the end. At a damaged
// or incomplete block it returns an error; the weights are then those after the last good block.
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
