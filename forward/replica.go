package forward

import (
	"encoding/hex"
	"fmt"
)

// Chain follows a run's blocks one after the other, wherever they come from: a log, or the run's stream.
type Chain struct {
	Header *Header
	chain  []byte // hash of all blocks so far
	blocks int    // so far
	at     uint64 // position of the last block
	last   bool   // a processor asked to stop: nothing follows
}

// NewChain begins with a run's encoded header.
func NewChain(encoded []byte) (*Chain, error) {
	h, err := DecodeHeader(encoded)
	if err != nil {
		return nil, err
	}
	return &Chain{Header: h, chain: encoded[len(encoded)-chainBytes:]}, nil
}

// Steps returns how many steps the blocks so far have.
func (c *Chain) Steps() int { return min(c.blocks*BlockSteps, c.Header.Config.Steps) }

// Done says whether all of the run's blocks were read: those of its steps, or fewer if a processor asked to stop.
func (c *Chain) Done() bool { return c.last || c.blocks == c.Header.Config.blocks() }

// Follows says whether b is the block that comes next.
func (c *Chain) Follows(b []byte) bool { return !c.Done() && blockNumber(c.chain, b) == c.blocks }

// Next reads the next block. With ErrLog, data is another block, or damaged, and the chain stays as it was.
func (c *Chain) Next(data []byte) (*Block, error) {
	if !c.Follows(data) {
		return nil, fmt.Errorf("%w: block %d: checksum differs", ErrLog, c.blocks)
	}
	b, err := decodeBlock(&c.Header.Config, data)
	if err != nil {
		return nil, fmt.Errorf("%w: block %d: %w", ErrLog, c.blocks, err)
	}
	c.chain, c.at, c.last = data[len(data)-chainBytes:], b.Position, b.Last
	c.blocks++
	return b, nil
}

// Replica holds a run's weights after some of its blocks.
type Replica struct {
	Chain
	Weights *Weights

	prompt uint64
	tuning tuning
}

// NewReplica begins with the run's first weights; encoded is its header. For other weights it returns ErrWeights, and names
// the first tensor that differs.
func NewReplica(encoded []byte, w *Weights) (*Replica, error) {
	c, err := NewChain(encoded)
	if err != nil {
		return nil, err
	}
	return &Replica{Chain: *c, Weights: w, prompt: c.Header.Config.allPairs(), tuning: newTuning()}, c.Header.Check(w)
}

// Clone returns a copy with weights of its own.
func (r *Replica) Clone() *Replica {
	c := *r
	c.Weights = r.Weights.Clone()
	return &c
}

// Apply makes the next block's moves, and checks the weights after it. With ErrLog, data is not the next block, or damaged,
// and the weights stay as they were. With ErrWeights, the block's moves lead to other weights than it says.
func (r *Replica) Apply(data []byte) (*Block, error) {
	first := r.blocks
	b, err := r.Next(data)
	if err != nil {
		return nil, err
	}
	r.prompt, r.tuning = b.prompt, b.tuning
	for i, c := range b.Steps {
		r.apply(uint32(first*BlockSteps+i), c)
	}
	if sum := r.Weights.sum(); string(sum) != string(b.hash) {
		return nil, fmt.Errorf("%w: after step %d they are %s, the log says %s", ErrWeights, r.Steps(), hex.EncodeToString(sum), hex.EncodeToString(b.hash))
	}
	return b, r.Weights.check()
}

// apply makes a step's moves and takes a trial back, if there was one, in one sweep over the weights.
func (r *Replica) apply(step uint32, c Commit, tried ...term) {
	terms := c.terms(&r.Header.Config, step)
	for _, t := range tried {
		t.plus, t.minus = t.minus, t.plus
		terms = append(terms, t)
	}
	r.Weights.add(r.Header.Config.Key, terms)
}
