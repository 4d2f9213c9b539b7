package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"evenkeel/forward"
	"evenkeel/train"
	"evenkeel/train/data"
)

// large returns a network of 4.2 million weights, and made-up data.
func large() (*train.Network, data.Set, error) {
	net, err := train.MLP(1024, 1600, 1600, 10)
	if err != nil {
		return nil, nil, err
	}
	made, err := data.NewSynthetic(1000, 1024, 10, 1)
	if err != nil {
		return nil, nil, err
	}
	set := &kept{Set: made, inputs: make([]float32, 1000*1024), targets: make([]int32, 1000)}
	for i := range 1000 {
		made.Sample(i, set.inputs[i*1024:][:1024], set.targets[i:][:1])
	}
	return net, set, nil
}

// kept holds samples in memory, so that making them up takes no time.
type kept struct {
	data.Set
	inputs  []float32
	targets []int32
}

func (k *kept) Sample(i int, inputs []float32, targets []int32) {
	copy(inputs, k.inputs[i*1024:])
	targets[0] = k.targets[i]
}

// costs compares the time of a step of a large network with its own forward pass and with one of float32 weights, in turns,
// and compares their memory.
func costs(_ *world) error {
	net, set, err := large()
	if err != nil {
		return err
	}
	const steps, examples, cold = 100, 16, 5
	inference, ours, err := memories(net, set, examples) // first, so that tables that are made once count
	if err != nil {
		return err
	}
	fmt.Printf("Memory allocated to the end of the first pass or step: inference (float32 weights and activations) %.2f MB, a forward-only processor %.2f MB: %.3f of it.\n\n", inference/1e6, ours/1e6, ours/inference)
	fmt.Print("| processors | a step over its own forward pass, from fixed point | over one of float32 weights |\n|---|---|---|\n")
	for _, n := range []int{2, 4, 64} {
		if err := cost(net, set, n, steps, cold, examples); err != nil {
			return err
		}
	}
	return nil
}

// cost prints what a step costs beside a forward pass.
func cost(net *train.Network, set data.Set, processors, steps, cold, examples int) error {
	c := config(processors, processors, steps, 1)
	for p := range c.Examples {
		c.Examples[p] = examples
	}
	p, err := processor(c, net, set, 0, newEcho(processors))
	if err != nil {
		return err
	}
	timed := &timedModel{Model: p.Model}
	p.Model = timed
	floats := p.Weights.Values(net)
	pass, err := net.NewPass(2*examples, false)
	if err != nil {
		return err
	}
	var own, float []float64
	begun := time.Now()
	p.OnStep = func(step int, _ forward.Commit) error {
		whole := time.Since(begun).Seconds()
		begun = time.Now()
		_, err := pass.Loss(floats, timed.batch)
		if step >= cold { // caches are cold in the first steps
			own, float = append(own, whole/timed.seconds), append(float, whole/time.Since(begun).Seconds())
		}
		begun = time.Now()
		return err
	}
	if err := p.Run(context.Background()); err != nil {
		return err
	}
	fmt.Printf("| %d | %s | %s |\n", processors, quartiles(own), quartiles(float))
	return nil
}

// quartiles formats the median and, in brackets, the quartiles.
func quartiles(x []float64) string {
	slices.Sort(x)
	at := func(q float64) float64 { return x[int(q*float64(len(x)-1))] }
	return fmt.Sprintf("%.3f (%.3f to %.3f)", at(0.5), at(0.25), at(0.75))
}

// echo answers every frame of rank 0 with the others', so that one processor runs alone.
type echo struct {
	forward.Bus
	others []forward.Bus
}

func newEcho(processors int) echo {
	memory := forward.NewMemory()
	e := echo{Bus: memory.Reader(0)}
	for rank := 1; rank < processors; rank++ {
		e.others = append(e.others, memory.Reader(rank))
	}
	return e
}

func (e echo) Publish(ctx context.Context, frame []byte) error {
	f, err := forward.DecodeFrame(frame)
	err = errors.Join(err, e.Bus.Publish(ctx, frame))
	for i, other := range e.others {
		f.Rank, f.Losses[0] = uint16(i+1), f.Losses[0]+1e-3 // so that all directions move
		err = errors.Join(err, other.Publish(ctx, f.Encode(nil)))
	}
	return err
}

// timedModel keeps the time and the batch of the last forward pass.
type timedModel struct {
	forward.Model
	seconds float64
	batch   train.Batch
}

func (m *timedModel) Losses(w *forward.Weights, b train.Batch) ([2]float32, error) {
	begun := time.Now()
	l, err := m.Model.Losses(w, b)
	m.seconds, m.batch = time.Since(begun).Seconds(), b
	return l, err
}

// memories returns the bytes allocated for a forward pass, and for a step.
func memories(net *train.Network, set data.Set, examples int) (inference, ours float64, err error) {
	allocated := func(work func() error) (float64, error) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := work()
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc) - float64(before.TotalAlloc), err
	}
	batch := train.Batch{Inputs: make([]float32, 2*examples*net.InputSize()), Targets: make([]int32, 2*examples)}
	inference, err = allocated(func() error {
		v := net.NewValues()
		net.Initialize(v, rand.New(rand.NewPCG(1, 2)))
		pass, err := net.NewPass(2*examples, false)
		if err != nil {
			return err
		}
		_, err = pass.Loss(v, batch)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	inference += float64(4 * len(batch.Inputs)) // a processor gathers its own
	ours, err = allocated(func() error {
		c := config(2, 1, 1, 1)
		c.Examples = []int{examples}
		p, err := processor(c, net, set, 0, newEcho(2))
		if err != nil {
			return err
		}
		return p.Run(context.Background())
	})
	return inference, ours, err
}
