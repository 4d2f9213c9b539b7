package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/forward"
	"github.com/evenkeel/evenkeel/train"
)

// device computes one forward pass after the other, each of which takes a time.
type device struct {
	mu   sync.Mutex
	pass time.Duration
}

// onDevice is a model on a device, emulated: it waits until the device would be done.
type onDevice struct {
	forward.Model
	device *device
}

func (m *onDevice) Losses(w *forward.Weights, b train.Batch) ([2]float32, error) {
	m.device.mu.Lock()
	defer m.device.mu.Unlock()
	begun := time.Now()
	l, err := m.Model.Losses(w, b)
	time.Sleep(m.device.pass - time.Since(begun))
	return l, err
}

// errReached ends a run at its goal.
var errReached = errors.New("reached")

// until trains until the mean loss of 20 steps is at most a goal, on so many devices; it returns steps and time.
func (w *world) until(c *forward.Config, goal float64, devices int, pass time.Duration) (steps int, took time.Duration, err error) {
	memory := forward.NewMemory()
	all := make([]*device, devices)
	for i := range all {
		all[i] = &device{pass: pass}
	}
	var losses []float64
	var wg sync.WaitGroup
	errs := make([]error, c.Processors)
	begun := time.Now()
	for rank := range c.Processors {
		r, _, err := replica(c, w.net, w.training.Len())
		if err != nil {
			return 0, 0, err
		}
		p := &forward.Processor{Replica: r, Rank: rank, Model: &onDevice{forward.NewModel(w.net), all[rank*devices/c.Processors]}, Data: w.training, Bus: memory.Reader(rank), Patience: time.Hour}
		var seen []float64
		p.Each = func(step int, commit forward.Commit) error {
			if seen = append(seen, commit.Loss); stepsTo(seen, goal) == 0 {
				return nil
			}
			if rank == 0 {
				took, losses = time.Since(begun), seen
			}
			return errReached
		}
		wg.Go(func() { errs[rank] = p.Run(w.ctx) })
	}
	memory.Seal()
	wg.Wait()
	for _, err := range errs {
		if err != nil && !errors.Is(err, errReached) && !errors.Is(err, forward.ErrOverflow) {
			return 0, 0, err
		}
	}
	return len(losses), took, nil
}

// scale compares eight processors, each with a device, with one device that computes both halves of one pair.
func (w *world) scale(b *strings.Builder) error {
	const goal, most, seeds = 0.7, 6000, 3
	const pass = 10 * time.Millisecond
	fmt.Fprintf(b, "\n## Eight processors and one\n\nDigits, MLP 64-64-10, 32 examples an input, constant rates: until the mean loss of 20 steps is %.1f, mean of %d seeds, each at the best rate of a grid in powers of two (steps, then time; a device is emulated: it waits until a forward pass of two inputs has taken %d ms). One processor tries two directions, one after the other.\n\n| devices | rate | steps | wall time |\n|---|---|---|---|\n", goal, seeds, pass.Milliseconds())
	var times [2]float64
	for i, devices := range []int{1, 8} {
		processors := max(devices, 2)
		best, bestRate := 0, 0.0
		for _, rate := range []float64{1.0 / 256, 1.0 / 128, 1.0 / 64, 1.0 / 32, 1.0 / 16, 1.0 / 8} {
			sum := 0
			for seed := range seeds {
				c := config(processors, processors, most, uint64(seed+1))
				c.LearningRate, c.Schedule = rate, "constant"
				steps, _, err := w.until(c, goal, processors, 0)
				if err != nil {
					return err
				}
				if steps == 0 {
					sum = 0
					break
				}
				sum += steps
			}
			if sum > 0 && (best == 0 || sum < best) {
				best, bestRate = sum, rate
			}
		}
		if best == 0 {
			return fmt.Errorf("%d devices do not get there", devices)
		}
		for seed := range seeds {
			c := config(processors, processors, most, uint64(seed+1))
			c.LearningRate, c.Schedule = bestRate, "constant"
			_, took, err := w.until(c, goal, devices, pass)
			if err != nil {
				return err
			}
			times[i] += took.Seconds() / seeds
		}
		fmt.Fprintf(b, "| %d | %g | %.0f | %.1f s |\n", devices, bestRate, float64(best)/seeds, times[i])
	}
	fmt.Fprintf(b, "\nEight take %.3f of the time of one; target 1/6 = 0.167.\n", times[1]/times[0])
	return nil
}
