package forward

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"
)

// ErrSnapshot is returned for bytes that are not a snapshot.
var ErrSnapshot = errors.New("forward: not a snapshot")

// Snapshot is the state of a run after a step. A processor that joins later begins with the snapshots so far, and needs only the frames after
// the last of them.
type Snapshot struct {
	Commits []Commit // of the steps since the snapshot before
	Weights string   // hash after them; empty: not known
	// State of the next step's round: the last one's pairs, those it waited for, and which ranks were seen and heard.
	last, expected uint64
	seen, heard    [maxProcessors]bool
}

// maxSnapshotSteps bounds a snapshot, so that it fits into a message.
const maxSnapshotSteps = 1 << 16

// Snapshot is where the processor stands, with the commits since the last snapshot; to be called by Each alone.
func (p *Processor) Snapshot(commits []Commit) Snapshot {
	return Snapshot{Commits: commits, Weights: p.Weights.Hash(), last: p.last, expected: p.round.expected, seen: p.round.seen, heard: p.round.heard}
}

// NewSnapshot is the snapshot of a run that continues a log: all pairs are expected.
func NewSnapshot(c *Config, commits []Commit) Snapshot {
	all := c.allPairs()
	return Snapshot{Commits: commits, last: all, expected: all}
}

// Follow applies snapshots, from the run's first on, so that Run continues after the last. done is how many steps Weights have
// seen already. ErrWeights: the result is not what the snapshot says.
func (p *Processor) Follow(snapshots []Snapshot, done int) error {
	var commits []Commit
	for _, m := range snapshots {
		commits = append(commits, m.Commits...)
	}
	if err := p.begin(commits, done); err != nil || len(snapshots) == 0 {
		return err
	}
	m := snapshots[len(snapshots)-1]
	if got := p.Weights.Hash(); m.Weights != "" && got != m.Weights {
		return fmt.Errorf("%w: after step %d the run has %s, this processor %s", ErrWeights, len(commits), m.Weights, got)
	}
	p.last = m.last
	p.round = round{config: p.Config, expected: m.expected, seen: m.seen, heard: m.heard}
	return nil
}

// Encode appends the snapshot's bytes: docs/reference/formats/forward-log.md has them.
func (m Snapshot) Encode(b []byte) []byte {
	start := len(b)
	le := binary.LittleEndian
	b = le.AppendUint64(le.AppendUint64(b, m.last), m.expected)
	b = appendBits(appendBits(b, m.seen), m.heard)
	b = append(binary.AppendUvarint(b, uint64(len(m.Weights))), m.Weights...)
	b = binary.AppendUvarint(b, uint64(len(m.Commits)))
	for _, c := range m.Commits {
		b = c.encode(b)
	}
	return le.AppendUint64(b, xxh3.Hash(b[start:]))
}

// DecodeSnapshot reads a snapshot of a run. Errors wrap ErrSnapshot.
func DecodeSnapshot(c *Config, b []byte) (Snapshot, error) {
	const fixed = 8 + 8 + maxProcessors/8 + maxProcessors/8
	le := binary.LittleEndian
	n := len(b) - 8
	if n < fixed || xxh3.Hash(b[:n]) != le.Uint64(b[n:]) {
		return Snapshot{}, fmt.Errorf("%w: checksum differs", ErrSnapshot)
	}
	m := Snapshot{last: le.Uint64(b), expected: le.Uint64(b[8:]), seen: bitsOf(b[16:]), heard: bitsOf(b[16+maxProcessors/8:])}
	b = b[fixed:n]
	length, k := binary.Uvarint(b)
	if k <= 0 || length > uint64(len(b)-k) {
		return Snapshot{}, fmt.Errorf("%w: hash of weights", ErrSnapshot)
	}
	m.Weights, b = string(b[k:k+int(length)]), b[k+int(length):]
	steps, k := binary.Uvarint(b)
	if k <= 0 || steps > maxSnapshotSteps {
		return Snapshot{}, fmt.Errorf("%w: number of steps", ErrSnapshot)
	}
	b = b[k:]
	for range steps {
		var one Commit
		var err error
		if one, b, err = decodeCommit(b, c.Directions); err != nil {
			return Snapshot{}, fmt.Errorf("%w: %w", ErrSnapshot, err)
		}
		m.Commits = append(m.Commits, one)
	}
	if len(b) > 0 {
		return Snapshot{}, fmt.Errorf("%w: bytes left over", ErrSnapshot)
	}
	return m, nil
}

func appendBits(b []byte, bits [maxProcessors]bool) []byte {
	var packed [maxProcessors / 8]byte
	for i, bit := range bits {
		if bit {
			packed[i/8] |= 1 << (i % 8)
		}
	}
	return append(b, packed[:]...)
}

func bitsOf(b []byte) (bits [maxProcessors]bool) {
	for i := range bits {
		bits[i] = b[i/8]>>(i%8)&1 == 1
	}
	return bits
}

// encode appends a commit as logs and snapshots have it.
func (c Commit) encode(b []byte) []byte {
	b = binary.AppendUvarint(b, c.Pairs)
	for _, k := range c.Increments {
		b = binary.AppendVarint(b, int64(k))
	}
	return b
}

// decodeCommit reads one and returns the rest.
func decodeCommit(b []byte, directions int) (Commit, []byte, error) {
	c := Commit{Increments: make([]int32, directions)}
	var n int
	if c.Pairs, n = binary.Uvarint(b); n <= 0 {
		return Commit{}, nil, errors.New("invalid pairs")
	}
	b = b[n:]
	for i := range c.Increments {
		k, n := binary.Varint(b)
		if n <= 0 || int64(int32(k)) != k {
			return Commit{}, nil, errors.New("invalid increment")
		}
		c.Increments[i], b = int32(k), b[n:]
	}
	return c, b, nil
}
