package main

import (
	"fmt"
	"sync"
	"time"

	"evenkeel/forward"
	"evenkeel/internal/stats"
	"evenkeel/train"
)

// absent shows the cost of absent or slow pairs.
func (w *world) absent() error {
	const seeds, steps = 5, 1000
	fmt.Print("| run | loss (95% interval) | accuracy |\n|---|---|---|\n")
	for _, c := range []struct {
		name                          string
		processors, directions, there int
	}{
		{"8 processors", 8, 8, 8}, {"8 processors, 4 of them absent throughout", 8, 8, 4}, {"4 processors", 4, 4, 4},
		{"8 processors, `pairs`", 8, 4, 8}, {"8 processors, 4 of them absent throughout, `pairs`", 8, 4, 4}, {"4 processors, `pairs`", 4, 2, 4},
	} {
		var losses, rights []float64
		for seed := range seeds {
			all, err := w.train(config(c.processors, c.directions, steps, uint64(seed+1)), c.there, func(p *forward.Processor) { p.Patience = 20 * time.Millisecond })
			if err != nil {
				return err
			}
			right, loss, err := forward.Evaluate(w.net, all[0].Weights, w.held)
			if err != nil {
				return err
			}
			losses, rights = append(losses, loss), append(rights, right)
		}
		l, r := stats.Bootstrap([][]float64{losses}), stats.Bootstrap([][]float64{rights})
		fmt.Printf("| %s | %.3f (%.3f to %.3f) | %.3f (%.3f to %.3f) |\n", c.name, l.Mean, l.Low, l.High, r.Mean, r.Low, r.High)
	}
	const pass = 40 * time.Millisecond
	begun := time.Now()
	all, err := w.train(config(8, 8, 256, 1), 8, func(p *forward.Processor) {
		p.Patience = 20 * time.Millisecond
		p.Model = &onDevice{p.Model, &device{pass: pass}}
		if p.Rank >= 6 {
			p.Model = &onDevice{p.Model, &device{pass: 3 * pass}}
		}
	})
	if err != nil {
		return err
	}
	slow, others := all[6].Stats(), all[0].Stats().Absent
	fmt.Printf("\nOne pair of four three times as slow as the others (40 and 120 ms a forward pass, emulated), 256 steps: it counted in %.2f of them, %d times late; a step took %.0f ms. The other pairs were absent in %d, %d and %d steps.\n",
		1-float64(slow.Missed)/256, slow.Late, time.Since(begun).Seconds()/256*1000, others[0], others[1], others[2])
	return nil
}

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
