package forward

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/zeebo/xxh3"
)

// Errors of logs.
var (
	// ErrLog is returned for what is not a log, or a damaged one.
	ErrLog = errors.New("forward: damaged log")
	// ErrTruncated is returned where the last block of a log is incomplete; what came before it is good.
	ErrTruncated = errors.New("forward: the log ends within a block")
	// ErrWeights is returned where weights are not those that a log begins or ends with.
	ErrWeights = errors.New("forward: other weights")
)

// Header begins a log.
type Header struct {
	Config  Config          `json:"config"`
	Task    json.RawMessage `json:"task,omitempty"` // what the program needs to make network and data again
	Initial string          `json:"initial"`        // hash of the weights to start from
}

// logMagic ends in the format's version.
const logMagic = "EKFWDLG1"

const (
	blockSteps     = 64 // a block each so many steps
	maxHeaderBytes = 1 << 20
	maxBlockBytes  = 1 << 20
)

// LogWriter writes a run's log: docs/reference/formats/forward-log.md has every byte.
type LogWriter struct {
	w     io.Writer
	chain uint64 // hash of everything so far
	steps int    // in the block
	block []byte
	bytes int64
}

// NewLogWriter writes the header.
func NewLogWriter(w io.Writer, h Header) (*LogWriter, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("forward: log: %w", err)
	}
	b := append([]byte(logMagic), binary.LittleEndian.AppendUint32(nil, uint32(len(text)))...)
	b = append(b, text...)
	l := &LogWriter{w: w, chain: xxh3.Hash(b)}
	return l, l.write(binary.LittleEndian.AppendUint64(b, l.chain))
}

func (l *LogWriter) write(b []byte) error {
	n, err := l.w.Write(b)
	l.bytes += int64(n)
	if err != nil {
		return fmt.Errorf("forward: log: %w", err)
	}
	return nil
}

// Bytes is the length of what was written.
func (l *LogWriter) Bytes() int64 { return l.bytes }

// Add notes a step's commit.
func (l *LogWriter) Add(c Commit) error {
	l.block = c.encode(l.block)
	if l.steps++; l.steps == blockSteps {
		return l.Flush()
	}
	return nil
}

// Flush ends the block: what was added is in the writer then.
func (l *LogWriter) Flush() error {
	if l.steps == 0 {
		return nil
	}
	b := binary.LittleEndian.AppendUint16(nil, uint16(l.steps))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(l.block)))
	b = append(b, l.block...)
	l.chain = xxh3.HashSeed(b, l.chain)
	l.steps, l.block = 0, l.block[:0]
	return l.write(binary.LittleEndian.AppendUint64(b, l.chain))
}

// LogReader reads a log.
type LogReader struct {
	Header Header
	r      *bufio.Reader
	chain  uint64
	block  []byte
	left   int // steps in it
	steps  int
}

// NewLogReader reads the header. Errors wrap ErrLog.
func NewLogReader(r io.Reader) (*LogReader, error) {
	l := &LogReader{r: bufio.NewReader(r)}
	start := make([]byte, len(logMagic)+4)
	if _, err := io.ReadFull(l.r, start); err != nil {
		return nil, fmt.Errorf("%w: too short for a log of forward-only training", ErrLog)
	}
	n := binary.LittleEndian.Uint32(start[len(logMagic):])
	switch {
	case string(start[:7]) != logMagic[:7]:
		return nil, fmt.Errorf("%w: not a log of forward-only training", ErrLog)
	case string(start[:8]) != logMagic:
		return nil, fmt.Errorf("%w: format version %q, this program reads %q", ErrLog, start[7], logMagic[7])
	case n > maxHeaderBytes:
		return nil, fmt.Errorf("%w: a header of %d bytes", ErrLog, n)
	}
	rest := make([]byte, n+8)
	if _, err := io.ReadFull(l.r, rest); err != nil {
		return nil, fmt.Errorf("%w: it ends within the header", ErrLog)
	}
	l.chain = xxh3.Hash(slices.Concat(start, rest[:n]))
	if l.chain != binary.LittleEndian.Uint64(rest[n:]) {
		return nil, fmt.Errorf("%w: header: checksum differs", ErrLog)
	}
	if err := json.Unmarshal(rest[:n], &l.Header); err != nil {
		return nil, fmt.Errorf("%w: header: %w", ErrLog, err)
	}
	if err := l.Header.Config.Validate(); err != nil {
		return nil, fmt.Errorf("%w: header: %w", ErrLog, err)
	}
	return l, nil
}

// Next is the next step's commit; io.EOF after the last. ErrTruncated: the file ends within a block, ErrLog: a bit is
// wrong. Every commit returned was verified.
func (l *LogReader) Next() (Commit, error) {
	if l.left == 0 {
		if err := l.readBlock(); err != nil {
			return Commit{}, err
		}
	}
	bad := func(what string) (Commit, error) {
		return Commit{}, fmt.Errorf("%w: step %d: %s", ErrLog, l.steps, what)
	}
	c, rest, err := decodeCommit(l.block, l.Header.Config.Directions)
	if err != nil {
		return bad(err.Error())
	}
	l.block = rest
	if l.left--; l.left == 0 && len(l.block) > 0 {
		return bad("bytes left over in its block")
	}
	if l.steps++; l.steps > l.Header.Config.Steps {
		return bad("beyond the last")
	}
	return c, nil
}

func (l *LogReader) readBlock() error {
	head := make([]byte, 6)
	switch n, err := io.ReadFull(l.r, head); {
	case n == 0 && errors.Is(err, io.EOF):
		return io.EOF
	case err != nil:
		return fmt.Errorf("%w, after step %d", ErrTruncated, l.steps)
	}
	l.left = int(binary.LittleEndian.Uint16(head))
	n := binary.LittleEndian.Uint32(head[2:])
	if l.left < 1 || l.left > blockSteps || n > maxBlockBytes {
		return fmt.Errorf("%w: block after step %d: %d steps in %d bytes", ErrLog, l.steps, l.left, n)
	}
	rest := make([]byte, n+8)
	if _, err := io.ReadFull(l.r, rest); err != nil {
		return fmt.Errorf("%w, after step %d", ErrTruncated, l.steps)
	}
	sum := xxh3.HashSeed(slices.Concat(head, rest[:n]), l.chain)
	if sum != binary.LittleEndian.Uint64(rest[n:]) {
		return fmt.Errorf("%w: block after step %d: checksum differs", ErrLog, l.steps)
	}
	l.chain, l.block = sum, rest[:n]
	return nil
}

// Replay applies a log to the weights it begins with, and returns the number of steps. It ends early at a damaged or
// cut block, with its error; the weights are then those after the last good block.
func Replay(l *LogReader, w *Weights) (steps int, err error) {
	if got := w.Hash(); got != l.Header.Initial {
		return 0, fmt.Errorf("%w: the log begins with %s, these are %s", ErrWeights, l.Header.Initial, got)
	}
	s := &state{config: &l.Header.Config, w: w}
	for {
		c, err := l.Next()
		if errors.Is(err, io.EOF) {
			return steps, nil
		}
		if err != nil {
			return steps, err
		}
		s.apply(uint32(steps), c.Increments, nil)
		steps++
	}
}
