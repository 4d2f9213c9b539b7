package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Data is numbered samples; package data has some.
type Data interface {
	// Len is the number of samples.
	Len() int
	// Sample writes sample i, the same whenever it is asked for.
	Sample(i int, inputs []float32, targets []int32)
}

// Config says how to train.
type Config struct {
	// MicroBatches is the samples that each node takes in a step; they may differ. Their sum is the global batch.
	MicroBatches []int
	Optimizer    Optimizer
	// Seed of the initial weights and of the order of the data, up to 2^53.
	Seed uint64
	// LinkBytesPerSecond slows the exchange down to that of a network; 0: as fast as memory.
	LinkBytesPerSecond float64
	// Sequential turns the overlap off: first all gradients, then all exchanges, updates, and a save that the step
	// waits for. The results are the same bits.
	Sequential bool
	// Timeline records what each node does when.
	Timeline bool
}

// Validate reports everything that is wrong; errors wrap ErrUsage.
func (c Config) Validate() error {
	errs := []error{c.Optimizer.validate()}
	if len(c.MicroBatches) == 0 {
		errs = append(errs, fmt.Errorf("%w: no nodes", ErrUsage))
	}
	for i, b := range c.MicroBatches {
		if b < 1 {
			errs = append(errs, fmt.Errorf("%w: node %d has a micro-batch of %d samples; want at least 1", ErrUsage, i, b))
		}
	}
	if c.Seed > 1<<53 {
		errs = append(errs, fmt.Errorf("%w: seed %d; want at most 2^53", ErrUsage, c.Seed))
	}
	if !(c.LinkBytesPerSecond >= 0) || math.IsInf(c.LinkBytesPerSecond, 0) {
		errs = append(errs, fmt.Errorf("%w: link of %v bytes per second; want 0 or more", ErrUsage, c.LinkBytesPerSecond))
	}
	return errors.Join(errs...)
}

// Trainer trains one network on nodes that are goroutines, each with its own replica. A step gives the same bits
// whatever runs beside it. It serves one goroutine.
type Trainer struct {
	net    *Network
	data   Data
	config Config

	nodes   []*node
	ring    *ring
	sampler *Order
	saver   saver
	scale   float64 // 1 / targets of the global batch
	step    uint64  // steps done

	begun time.Time
	mu    sync.Mutex
	spans []Span
}

// node is one worker: a replica and its part of the batch.
type node struct {
	number    int
	weights   *Values
	gradients *Values
	moments   []*Values
	pass      *Pass
	batch     Batch
	loss      float64 // its share of the mean
}

// New makes a trainer with new weights.
func New(net *Network, data Data, c Config) (*Trainer, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	t := &Trainer{net: net, data: data, config: c, ring: newRing(len(c.MicroBatches), c.LinkBytesPerSecond), begun: time.Now()}
	t.config.MicroBatches = slices.Clone(c.MicroBatches)
	var err error
	if t.sampler, err = NewOrder(data.Len(), c.Seed); err != nil {
		return nil, err
	}
	samples := 0
	for i, b := range c.MicroBatches {
		n, err := newNode(net, i, b, c.Optimizer.Moments())
		if err != nil {
			return nil, err
		}
		samples += b
		t.nodes = append(t.nodes, n)
	}
	t.scale = 1 / float64(samples*net.positions)
	net.Initialize(t.nodes[0].weights, rand.New(rand.NewPCG(c.Seed, 0)))
	t.spread()
	t.saver.trainer = t
	return t, nil
}

func newNode(net *Network, number, samples, moments int) (*node, error) {
	n := &node{number: number, batch: Batch{
		Inputs:  make([]float32, samples*net.InputSize()),
		Targets: make([]int32, samples*net.positions),
	}}
	all := make([]*Values, 2+moments)
	for i := range all {
		all[i] = net.NewValues()
	}
	n.weights, n.gradients, n.moments = all[0], all[1], all[2:]
	var err error
	n.pass, err = net.NewPass(samples, true)
	return n, err
}

// spread copies node 0's state to all others.
func (t *Trainer) spread() {
	for _, n := range t.nodes[1:] {
		n.weights.Copy(t.nodes[0].weights)
		for i, m := range t.nodes[0].moments {
			n.moments[i].Copy(m)
		}
	}
}

// Steps is how many steps were done, those before a Restore included.
func (t *Trainer) Steps() uint64 { return t.step }

// Samples is how many samples were trained on.
func (t *Trainer) Samples() uint64 { return t.sampler.cursor }

// Step trains one step and returns the mean loss of its batch, before the update. The context ends waiting for a slot
// of the checkpoint; a step that has begun to compute is finished.
func (t *Trainer) Step(ctx context.Context) (loss float64, _ error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := t.saver.begin(ctx); err != nil {
		return 0, err
	}
	if err := t.fill(); err != nil {
		t.saver.save.Abort()
		t.saver.save = nil
		return 0, err
	}
	var all sync.WaitGroup
	for _, n := range t.nodes {
		all.Go(func() {
			if t.config.Sequential {
				t.sequential(n)
			} else {
				t.overlapped(n)
			}
		})
	}
	all.Wait()
	for _, n := range t.nodes {
		loss += n.loss
	}
	t.step++
	return loss, t.saver.commit(begun)
}

// fill takes the next samples, the first ones for node 0. After an error the trainer is of no use.
func (t *Trainer) fill() error {
	width, targets := t.net.InputSize(), t.net.positions
	for k, n := range t.nodes {
		for i := range t.config.MicroBatches[k] {
			sample, err := t.sampler.Next()
			if err != nil {
				return err
			}
			t.data.Sample(sample, n.batch.Inputs[i*width:][:width], n.batch.Targets[i*targets:][:targets])
		}
		if _, err := t.net.check(n.batch); err != nil {
			return err
		}
	}
	return nil
}
