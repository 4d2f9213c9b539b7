package forward

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/evenkeel/evenkeel/train"
	"github.com/evenkeel/evenkeel/train/data"
)

// Model computes losses: a network, or a user's own.
type Model interface {
	// Losses are the mean losses of the two halves of a batch under weights. It must be a function of both alone.
	Losses(w *Weights, b train.Batch) ([2]float32, error)
}

// Processor is one of a run's processors.
type Processor struct {
	Config  *Config
	Rank    int // negative: an observer, which follows the run without taking part
	Model   Model
	Data    data.Set // the same for everybody
	Weights *Weights // to start from; the processor's own, changed by Run
	Bus     Bus
	// Timeout is how long it waits for others before it proposes to go on without; 0: Timeout.
	Timeout time.Duration
	// Each, if not nil, is called at the end of every step.
	Each func(step int, c Commit) error

	round   round
	last    uint64 // the pairs of the step before
	counted Stats
	batch   train.Batch
	state   *state // after Begin or Follow
	start   int
}

// Stats counts what a processor did.
type Stats struct {
	Sent, Received int64 // bytes of frames
	Ignored        int64 // frames of other steps, repeated ones, and what was no frame
	Missed         int64 // steps that were decided without this processor's pair
	Dropped        int64 // pairs whose losses were not finite, over all steps
	Forwards       int64 // forward passes of two inputs
}

// Stats are the counts so far; not to be called during Run.
func (p *Processor) Stats() Stats { return p.counted }

// Begin applies the commits of a run's first steps, from a log, so that Run continues after them.
func (p *Processor) Begin(commits []Commit) error { return p.begin(commits, 0) }

// begin is Begin with weights that have seen the first done steps already.
func (p *Processor) begin(commits []Commit, done int) error {
	if len(commits) > p.Config.Steps || done > len(commits) {
		return fmt.Errorf("%w: %d commits and weights after %d steps, of %d", ErrConfig, len(commits), done, p.Config.Steps)
	}
	p.state = &state{config: p.Config, w: p.Weights}
	for step, c := range commits {
		if step < done {
			p.state.remember(uint32(step), c.Increments)
		} else {
			p.state.apply(uint32(step), c.Increments, nil)
		}
	}
	p.start, p.last = len(commits), p.Config.allPairs()
	return nil
}

// Run takes part in the run until its last step. A processor that joins late, or again, first catches up
// from the frames of the others. It ends early with ctx's error.
func (p *Processor) Run(ctx context.Context) error {
	if err := p.Config.Validate(); err != nil {
		return err
	}
	if p.Rank >= p.Config.Processors {
		return fmt.Errorf("%w: rank %d of %d processors", ErrConfig, p.Rank, p.Config.Processors)
	}
	if p.state == nil {
		if err := p.begin(nil, 0); err != nil {
			return err
		}
	}
	s := p.state
	for step := p.start; step < p.Config.Steps; step++ {
		pairs, tried, err := p.step(ctx, s, step)
		if err != nil {
			return fmt.Errorf("forward: processor %d, step %d: %w", p.Rank, step, err)
		}
		p.last = pairs
		commit := p.round.decide(pairs)
		s.apply(uint32(step), commit.Increments, tried)
		p.counted.Dropped += int64(commit.Dropped)
		if p.Rank >= 0 && pairs>>(p.Rank/2)&1 == 0 {
			p.counted.Missed++
		}
		if step%checkEvery == checkEvery-1 || step == p.Config.Steps-1 {
			if err := s.w.check(); err != nil {
				return fmt.Errorf("step %d: %w", step, err)
			}
		}
		if p.Each != nil {
			if err := p.Each(step, commit); err != nil {
				return err
			}
		}
	}
	return nil
}

// step goes through one step up to its decision. If it tried a direction, the weights are still moved along it.
func (p *Processor) step(ctx context.Context, s *state, step int) (pairs uint64, tried *term, err error) {
	p.round.begin(p.Config, uint32(step), p.last)
	for p.Bus.Behind() { // perhaps the step is decided already
		if pairs, done, err := p.next(ctx); done || err != nil {
			return pairs, nil, err
		}
	}
	if p.Rank >= 0 && !p.round.seen[p.Rank] { // else it was sent before a restart
		if tried, err = p.evaluate(ctx, s, step); err != nil {
			return 0, tried, err
		}
	}
	patience := p.Timeout
	if patience == 0 {
		patience = Timeout
	}
	for {
		waiting, cancel := context.WithTimeout(ctx, patience)
		pairs, done, err := p.next(waiting)
		cancel()
		switch {
		case err == nil && done:
			return pairs, tried, nil
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			if whole := p.round.whole(); whole != 0 && p.Rank >= 0 {
				err = p.send(ctx, Frame{Step: uint32(step), Rank: uint16(p.Rank), Commit: true, Pairs: whole})
			} else {
				err = nil // no pair is complete: go on waiting
			}
		}
		if err != nil {
			return 0, tried, err
		}
	}
}

// next takes in the next frame.
func (p *Processor) next(ctx context.Context) (pairs uint64, done bool, err error) {
	b, err := p.Bus.Next(ctx)
	if err != nil {
		return 0, false, err
	}
	if len(b) == 0 {
		return 0, false, nil
	}
	f, err := DecodeFrame(b)
	if err != nil {
		p.counted.Ignored++
		return 0, false, nil //nolint:nilerr // ignored by all processors alike
	}
	if int(f.Rank) != p.Rank {
		p.counted.Received += int64(len(b))
	}
	if f.Step != p.round.step || !f.Commit && int(f.Rank) < p.Config.Processors && p.round.seen[f.Rank] {
		p.counted.Ignored++
	}
	pairs, done = p.round.take(f)
	return pairs, done, nil
}

func (p *Processor) send(ctx context.Context, f Frame) error {
	p.counted.Sent += FrameBytes
	return p.Bus.Publish(ctx, f.Encode(nil))
}

// evaluate moves the weights along the pair's direction, plus on even ranks and minus on odd ones, computes the losses of
// the pair's two inputs in one forward pass and sends them.
func (p *Processor) evaluate(ctx context.Context, s *state, step int) (*term, error) {
	pair, sign := p.Rank/2, int64(1-2*(p.Rank%2))
	direction := p.Config.direction(pair)
	s.try(uint32(step), direction, sign)
	tried := s.trial(uint32(step), direction, sign)
	losses, err := p.Model.Losses(p.Weights, p.gather(p.Config.examples(step, pair, p.Data.Len())))
	p.counted.Forwards++
	if err != nil {
		return &tried, err
	}
	return &tried, p.send(ctx, Frame{Step: uint32(step), Rank: uint16(p.Rank), Losses: losses})
}

// examples are those of a pair's two inputs, drawn with replacement.
func (c *Config) examples(step, pair, of int) []int {
	s := stream{keyOf(c.Key), dataStep, uint32(step), uint32(pair)}
	picked := make([]int, 2*c.Examples[pair])
	for i := range picked {
		picked[i] = int(uint64(s.block(i / 4)[i%4]) * uint64(of) >> 32)
	}
	return picked
}

// gather fills the processor's batch with samples.
func (p *Processor) gather(samples []int) train.Batch {
	inputs, targets, _, _ := p.Data.Shape()
	if len(p.batch.Targets) != len(samples)*targets {
		p.batch = train.Batch{Inputs: make([]float32, len(samples)*inputs), Targets: make([]int32, len(samples)*targets)}
	}
	for i, n := range samples {
		p.Data.Sample(n, p.batch.Inputs[i*inputs:][:inputs], p.batch.Targets[i*targets:][:targets])
	}
	return p.batch
}
