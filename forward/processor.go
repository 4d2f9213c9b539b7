package forward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"evenkeel/train"
	"evenkeel/train/data"
)

// Model computes losses: a network, or a user's own.
type Model interface {
	// Losses returns the mean losses of the two halves of a batch under weights. They must depend on these two arguments alone.
	Losses(w *Weights, b train.Batch) ([2]float32, error)
}

// Processor is one rank of a run. It joins with a Replica of the run's blocks so far, and a Bus that begins with the message
// after the last block's position.
type Processor struct {
	*Replica
	Rank  int
	Model Model
	Data  data.Set // the same for everybody
	Bus   Bus
	// Patience is the least time that the processor waits for missing pairs before it asks to go on without them; 0: 100 ms. It
	// waits longer if half of the pairs took long: twice their time.
	Patience time.Duration
	OnStep   func(step int, c Commit) error       // if not nil, called after every step
	OnBlock  func(b *Block, encoded []byte) error // if not nil, called after every block

	round   round
	counted Stats
	batch   train.Batch
	ahead   []Message     // read from the bus, and not yet processed
	steps   []Commit      // of the block so far
	sender  int           // rank that sends the block, as of the last step
	own     [][]byte      // blocks of this processor that are not yet in the stream
	agreed  []byte        // chain of the blocks that are in the stream
	early   Message       // a block that came before this processor had its own, to be compared
	took    time.Duration // of the last forward pass
}

// Stats counts what a processor did.
type Stats struct {
	Sent, Received int64         // bytes of frames
	Blocks         int64         // bytes of blocks that it sent
	Ignored        map[int]int64 // by sender: messages of other steps, repeated, damaged, or in another rank's name
	Missed         int64         // steps that were decided without this processor's pair
	Late           int64         // steps in which its pair counted, one or more steps after it was due
	LeftOut        []int64       // by pair: times that a loss of NaN or infinity, or a spike, left it out
	Absent         []int64       // by pair: steps in which it did not count
	Forwards       int64         // forward passes of two inputs
}

// Stats returns the counts so far. It must not be called during Run.
func (p *Processor) Stats() Stats { return p.counted }

// Run takes part in the run until its last block is on the bus, or an error, such as ctx's, ends it.
func (p *Processor) Run(ctx context.Context) error {
	c := &p.Header.Config
	if p.Rank < 0 || p.Rank >= c.Processors {
		return fmt.Errorf("%w: rank %d of %d processors", ErrConfig, p.Rank, c.Processors)
	}
	if p.Data.Len() != p.Header.Data.Count {
		return fmt.Errorf("%w: the run has %d examples, this processor %d", ErrConfig, p.Header.Data.Count, p.Data.Len())
	}
	p.round = round{config: c, prompt: p.prompt}
	p.agreed = p.chain
	p.counted = Stats{Ignored: map[int]int64{}, LeftOut: make([]int64, c.Processors/2), Absent: make([]int64, c.Processors/2)}
	for !p.Done() {
		step := p.Steps() + len(p.steps)
		if err := p.step(ctx, step); err != nil {
			return fmt.Errorf("forward: processor %d, step %d: %w", p.Rank, step, err)
		}
	}
	return p.finish(ctx)
}

// step runs one step.
func (p *Processor) step(ctx context.Context, step int) error {
	c := &p.Header.Config
	p.round.begin(uint32(step))
	begun := time.Now()
	tried, err := p.evaluate(ctx, step)
	if err != nil {
		return err
	}
	if err := p.decided(ctx, begun); err != nil {
		return err
	}
	counted := p.round.close()
	commit := p.round.decide(counted, &p.tuning)
	p.apply(uint32(step), commit, tried...)
	p.steps, p.sender = append(p.steps, commit), commit.sender
	p.count(&commit, counted)
	if step%checkEvery == checkEvery-1 || step == c.Steps-1 {
		if err := p.Weights.check(); err != nil {
			return err
		}
	}
	if p.OnStep != nil {
		if err := p.OnStep(step, commit); err != nil {
			return err
		}
	}
	if step%BlockSteps == BlockSteps-1 || step == c.Steps-1 {
		return p.endBlock(ctx)
	}
	if len(p.own) > 0 && step%BlockSteps == sendAnyway {
		return p.Bus.PublishBlock(ctx, p.blocks-1, p.own[len(p.own)-1])
	}
	return nil
}

// sendAnyway is the number of steps after which a processor sends a block that another one should have sent.
const sendAnyway = 16

func (p *Processor) count(c *Commit, counted []arrival) {
	came := uint64(0)
	for _, a := range counted {
		came |= 1 << a.pair
		if a.pair == p.Rank/2 && a.age > 0 {
			p.counted.Late++
		}
	}
	if came>>(p.Rank/2)&1 == 0 {
		p.counted.Missed++
	}
	for pair := range p.counted.Absent {
		if came>>pair&1 == 0 {
			p.counted.Absent[pair]++
		}
		p.counted.LeftOut[pair] += int64(c.LeftOut >> pair & 1)
	}
}

// endBlock makes the block of the last steps, and sends it if this processor is its sender.
func (p *Processor) endBlock(ctx context.Context) error {
	one := &Block{Number: p.blocks, Position: p.at, Loss: p.tuning.endBlock(p.Header.Config.Guard), prompt: p.round.prompt, hash: p.Weights.sum()}
	one.Steps, one.tuning, one.Last = p.steps, p.tuning, p.round.stop
	b := one.encode(p.chain)
	p.chain, p.steps, p.prompt = b[len(b)-chainBytes:], nil, one.prompt
	p.blocks++
	p.last = one.Last
	p.own = append(p.own, b)
	if early := p.early; early.Block != nil {
		p.early = Message{}
		if err := p.differs(one.Number, b, early); err != nil {
			return err
		}
	}
	if p.OnBlock != nil {
		if err := p.OnBlock(one, b); err != nil {
			return err
		}
	}
	if p.sender != p.Rank {
		return nil
	}
	p.counted.Blocks += int64(len(b))
	return p.Bus.PublishBlock(ctx, p.blocks-1, b)
}

// finish waits until the last block is on the bus.
func (p *Processor) finish(ctx context.Context) error {
	for len(p.own) > 0 {
		waiting, cancel := context.WithTimeout(ctx, time.Second)
		m, err := p.next(waiting)
		cancel()
		switch {
		case err == nil:
			err = p.block(m)
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			err = p.Bus.PublishBlock(ctx, p.blocks-len(p.own), p.own[0])
		}
		if err != nil {
			return fmt.Errorf("forward: processor %d, the last block: %w", p.Rank, err)
		}
	}
	return nil
}

// block compares a block on the bus with this processor's own.
func (p *Processor) block(m Message) error {
	if m.Block == nil {
		return nil
	}
	if k := p.blocks - len(p.own); len(p.own) > 0 && blockNumber(p.agreed, m.Block) == k {
		if err := p.differs(k, p.own[0], m); err != nil {
			return err
		}
		p.agreed = m.Block[len(m.Block)-chainBytes:]
		p.own = p.own[1:]
	} else if p.early.Block == nil && blockNumber(p.chain, m.Block) == p.blocks {
		p.early = m
	} else {
		p.counted.Ignored[m.Rank]++ // damaged or repeated
	}
	return nil
}

// differs returns an error if a block on the bus is not this processor's own.
func (p *Processor) differs(number int, own []byte, m Message) error {
	if string(m.Block) == string(own) {
		return nil
	}
	return fmt.Errorf("%w: block %d from processor %d differs from the block computed here from the same frames; one of the two processors is at fault", ErrWeights, number, m.Rank)
}

// decided processes messages until the step is decided, and asks to go on without pairs that take too long.
func (p *Processor) decided(ctx context.Context, begun time.Time) error {
	var half time.Duration // until half of the awaited pairs were there; 0: not yet
	asked := false
	for {
		whole := p.round.whole()
		if half == 0 && whole != 0 && 2*bits.OnesCount64(whole&p.round.prompt) >= bits.OnesCount64(p.round.prompt) {
			half = time.Since(begun)
		}
		waiting, cancel := ctx, context.CancelFunc(func() {})
		if whole != 0 && !asked {
			waiting, cancel = context.WithDeadline(ctx, p.deadline(begun, half))
		}
		m, err := p.next(waiting)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			if time.Now().Before(p.deadline(begun, half)) { // the bus was interrupted meanwhile
				continue
			}
			asked = true
			err = p.send(ctx, Frame{Step: p.round.step, Rank: uint16(p.Rank), GoOn: true})
		}
		if err != nil {
			return err
		}
		done, err := p.take(m)
		if done || err != nil {
			p.at = m.Position
			return err
		}
	}
}

// deadline returns when to ask to go on in a step that began at begun.
func (p *Processor) deadline(begun time.Time, half time.Duration) time.Time {
	d, back := begun.Add(p.patience(half)), p.Bus.Since().Add(afterInterruption)
	if back.After(d) {
		return back
	}
	return d
}

// patience returns how long a step may take; half is when half of the pairs were there, 0: they are not there yet.
func (p *Processor) patience(half time.Duration) time.Duration {
	least := cmp.Or(p.Patience, defaultPatience)
	if half == 0 {
		return max(least, withoutHalf, 4*p.took)
	}
	return max(least, 2*half)
}

const (
	defaultPatience = 100 * time.Millisecond
	withoutHalf     = 2 * time.Second
	// afterInterruption is how long the other processors may take to come back after the bus was interrupted.
	afterInterruption = 2 * time.Second
)

// next returns the next message.
func (p *Processor) next(ctx context.Context) (Message, error) {
	if len(p.ahead) > 0 {
		m := p.ahead[0]
		p.ahead = p.ahead[1:]
		return m, nil
	}
	return p.Bus.Next(ctx)
}

// take processes a message; done says that it decided the step.
func (p *Processor) take(m Message) (done bool, err error) {
	if m.Frame == nil {
		return false, p.block(m)
	}
	f, err := DecodeFrame(m.Frame)
	if m.Rank != p.Rank {
		p.counted.Received += int64(len(m.Frame))
	}
	used := false
	if err == nil {
		used, done = p.round.take(m.Rank, f)
	}
	if !used {
		p.counted.Ignored[m.Rank]++ // all processors ignore it
	}
	return done, nil
}

// Stop asks all processors to end the run with the present block; called from OnBlock, with the block that begins. If the
// run is over it does nothing.
func (p *Processor) Stop(ctx context.Context) error {
	if p.Done() {
		return nil
	}
	return p.send(ctx, Frame{Step: uint32(p.Steps()), Rank: uint16(p.Rank), Stop: true})
}

func (p *Processor) send(ctx context.Context, f Frame) error {
	p.counted.Sent += FrameBytes
	return p.Bus.Publish(ctx, f.Encode(nil))
}

// evaluate tries this rank's direction, computes the losses of its two inputs in one forward pass, and sends them. It
// returns the trial, which is still in the weights. It does nothing if the pair is not due or its losses are known.
func (p *Processor) evaluate(ctx context.Context, step int) (tried []term, err error) {
	c, pair := &p.Header.Config, p.Rank/2
	if p.round.due[pair] != uint32(step) {
		return nil, nil
	}
	if known, err := p.known(ctx, uint32(step)); known || err != nil {
		return nil, err
	}
	tried = []term{c.trial(uint32(step), p.Rank)}
	p.Weights.add(c.Key, tried)
	begun := time.Now()
	losses, err := p.Model.Losses(p.Weights, p.gather(c.examples(step, pair, p.Data.Len())))
	p.took = time.Since(begun)
	p.counted.Forwards++
	if err != nil {
		return nil, err
	}
	return tried, p.send(ctx, Frame{Step: uint32(step), Rank: uint16(p.Rank), Losses: losses})
}

// known looks ahead on the bus. It returns true if this processor's losses of a step are there, sent before a restart, or if
// losses of a later block are, so that these would come too late. A block alone may be forged.
func (p *Processor) known(ctx context.Context, step uint32) (bool, error) {
	for p.Bus.Behind() {
		m, err := p.Bus.Next(ctx)
		if err != nil {
			return false, err
		}
		p.ahead = append(p.ahead, m)
	}
	for _, m := range p.ahead {
		f, err := DecodeFrame(m.Frame)
		losses := err == nil && m.Rank == int(f.Rank) && !f.GoOn && !f.Stop
		if losses && (m.Rank == p.Rank && f.Step == step || int(f.Step) >= (p.blocks+1)*BlockSteps) {
			return true, nil
		}
	}
	return false, nil
}

// gather fills the processor's batch with examples.
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
