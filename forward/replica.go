package forward

import (
	"encoding/hex"
	"fmt"
	"slices"
)

// Chain are a run's blocks one after the other, wherever they come from: a log, or the run's stream.
type Chain struct {
	Header *Header
	chain  []byte // hash of all so far
	blocks int
	at     uint64 // position of the last block
	last   bool   // nothing follows: somebody asked to stop
}

// NewChain begins with a run's header.
func NewChain(encoded []byte) (*Chain, error) {
	h, err := DecodeHeader(encoded)
	if err != nil {
		return nil, err
	}
	return &Chain{Header: h, chain: encoded[len(encoded)-chainBytes:]}, nil
}

// Steps is how many steps the blocks have.
func (c *Chain) Steps() int { return min(c.blocks*BlockSteps, c.Header.Config.Steps) }

// Done says that all of the run's blocks were read: those of its steps, or fewer if a rank asked to stop.
func (c *Chain) Done() bool { return c.last || c.blocks == c.Header.Config.blocks() }

// Follows says whether b is the block that comes next.
func (c *Chain) Follows(b []byte) bool { return !c.Done() && blockNumber(c.chain, b) == c.blocks }

// Next is the next block. ErrLog: it is another, or damaged; the chain is then as it was.
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

// Replica is a run's weights after some of its blocks.
type Replica struct {
	Chain
	Weights *Weights

	state  state
	seen   int // blocks that Weights had seen before the first was applied
	prompt uint64
	tuning tuning
}

// NewReplica begins with the weights that a run begins with; encoded is its header. It refuses other weights, and names the first tensor
// that differs.
func NewReplica(encoded []byte, w *Weights) (*Replica, error) {
	c, err := NewChain(encoded)
	if err != nil {
		return nil, err
	}
	r := &Replica{Chain: *c, Weights: w, prompt: c.Header.Config.allPairs(), tuning: newTuning()}
	r.state = state{config: &c.Header.Config, w: w}
	return r, c.Header.Check(w)
}

// Clone is a copy with weights of its own.
func (r *Replica) Clone() *Replica {
	c := *r
	c.Weights = r.Weights.Clone()
	c.state.w, c.state.past = c.Weights, slices.Clone(r.state.past)
	return &c
}

// Apply makes the next block's moves, and checks the weights after it. ErrLog: it is not the next block, or damaged; the weights are then as
// they were. ErrWeights: it leads to others than it says.
func (r *Replica) Apply(data []byte) (*Block, error) {
	first := r.blocks
	b, err := r.Next(data)
	if err != nil {
		return nil, err
	}
	for i, c := range b.Steps {
		step := uint32(first*BlockSteps + i)
		if first < r.seen {
			r.state.terms(step, c) // for momentum
		} else {
			r.state.apply(step, c, nil)
		}
	}
	r.prompt, r.tuning = b.prompt, b.tuning
	if r.blocks < r.seen {
		return b, nil
	}
	if sum := r.Weights.sum(); string(sum) != string(b.hash) {
		return nil, fmt.Errorf("%w: after step %d they are %s, the log says %s", ErrWeights, r.Steps(), hex.EncodeToString(sum), hex.EncodeToString(b.hash))
	}
	return b, r.Weights.check()
}

// state is a processor's weights between steps, with what momentum needs of the steps before.
type state struct {
	config *Config
	w      *Weights
	past   []past // the newest last
}

// past are the moves of a step.
type past []term

// try moves the weights to + or - epsilon along a direction: the first seed.
func (s *state) try(step uint32, direction int, sign int64) {
	s.w.add(s.config.Kind, s.config.Key, []term{s.trial(step, direction, sign)})
}

func (s *state) trial(step uint32, direction int, sign int64) term {
	eps := toUnits(s.config.Epsilon)
	if sign < 0 {
		return term{step: step, direction: uint32(direction), minus: eps}
	}
	return term{step: step, direction: uint32(direction), plus: eps}
}

// apply undoes the trial, if there was one (the second seed), and makes a step's moves (the third), in one sweep over the
// weights.
func (s *state) apply(step uint32, c Commit, tried *term) {
	terms := s.terms(step, c)
	if tried != nil {
		terms = append(terms, term{step: tried.step, direction: tried.direction, plus: tried.minus, minus: tried.plus})
	}
	s.w.add(s.config.Kind, s.config.Key, terms)
}

// terms are the moves of a step: its own, which are remembered, and what momentum repeats of earlier ones.
func (s *state) terms(step uint32, c Commit) []term {
	var own past
	for d, k := range c.Increments {
		if k != 0 {
			own = append(own, term{step: step, direction: uint32(d), plus: int64(k)})
		}
	}
	for _, l := range c.Late {
		if l.Increment == 0 {
			continue
		}
		t := term{step: step - uint32(l.Age), direction: uint32(s.config.direction(2 * l.Pair)), plus: int64(l.Increment)}
		own = append(own, t)
		if s.config.Estimator == Each {
			t.direction, t.plus = uint32(s.config.direction(2*l.Pair+1)), -t.plus
			own = append(own, t)
		}
	}
	terms := slices.Clone(own)
	share := 1.0
	for i := len(s.past) - 1; i >= 0; i-- {
		share *= s.config.Momentum
		for _, t := range s.past[i] {
			if t.plus = nearest(t.plus*toUnits(share), unitBits); t.plus != 0 {
				terms = append(terms, t)
			}
		}
	}
	if n := s.config.memory(); n > 0 {
		s.past = append(s.past, own)
		s.past = s.past[max(0, len(s.past)-n):]
	}
	return terms
}
