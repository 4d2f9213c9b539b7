package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"evenkeel/forward"
	"evenkeel/train"
)

// device computes one forward pass after the other; each takes the time pass.
type device struct {
	mu   sync.Mutex
	pass time.Duration
}

// onDevice is a model on an emulated device: it waits until the device would be done.
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

// until trains on a number of devices until the mean loss of 20 steps reaches the goal. It returns the time and the number
// of steps, 0 if the run's steps are not enough.
func (w *world) until(c *forward.Config, goal float64, devices int, pass time.Duration) (steps int, took time.Duration, err error) {
	all := make([]*device, devices)
	for i := range all {
		all[i] = &device{pass: pass}
	}
	begun := time.Now()
	_, err = w.train(c, c.Processors, func(p *forward.Processor) {
		p.Model = &onDevice{p.Model, all[p.Rank*devices/c.Processors]}
		var seen []float64
		p.OnStep = func(step int, commit forward.Commit) error {
			if seen = append(seen, commit.Loss); len(seen) < 20 || mean(seen[len(seen)-20:]) > goal {
				return nil
			}
			if p.Rank == 0 {
				steps, took = step+1, time.Since(begun)
			}
			return errReached
		}
	})
	if errors.Is(err, errReached) || errors.Is(err, forward.ErrOverflow) {
		err = nil
	}
	return steps, took, err
}

func mean(all []float64) (mean float64) {
	for _, x := range all {
		mean += x / float64(len(all))
	}
	return mean
}

// scale compares eight processors, each with its own device, with one pair on a single device.
func (w *world) scale() error {
	const goal, most, seeds = 0.7, 6000, 3
	const pass = 10 * time.Millisecond
	fmt.Print("| devices | rate | steps | wall time |\n|---|---|---|---|\n")
	var times [2]float64
	for i, devices := range []int{1, 8} {
		processors := max(devices, 2)
		best, bestRate := 0, 0.0
		for _, rate := range []float64{1.0 / 256, 1.0 / 128, 1.0 / 64, 1.0 / 32, 1.0 / 16, 1.0 / 8} {
			sum := 0
			for seed := range seeds {
				c := config(processors, processors, most, uint64(seed+1))
				c.LearningRate, c.Schedule = rate, forward.Constant
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
			c.LearningRate, c.Schedule = bestRate, forward.Constant
			_, took, err := w.until(c, goal, devices, pass)
			if err != nil {
				return err
			}
			times[i] += took.Seconds() / seeds
		}
		fmt.Printf("| %d | %g | %.0f | %.1f s |\n", devices, bestRate, float64(best)/seeds, times[i])
	}
	fmt.Printf("\nEight take %.3f of the time of one.\n", times[1]/times[0])
	return nil
}
