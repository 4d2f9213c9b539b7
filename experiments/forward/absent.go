package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/forward"
	"github.com/evenkeel/evenkeel/internal/stats"
	"github.com/evenkeel/evenkeel/train"
)

// some runs those processors of a run alone that work says something about: how long each forward pass takes at least.
func (w *world) some(c *forward.Config, work map[int]time.Duration) (*outcome, time.Duration, error) {
	memory, o := forward.NewMemory(), &outcome{}
	var all []*forward.Processor
	for rank := range c.Processors {
		pause, there := work[rank]
		if !there {
			continue
		}
		r, _, err := replica(c, w.net, w.training.Len())
		if err != nil {
			return nil, 0, err
		}
		all = append(all, &forward.Processor{Replica: r, Rank: rank, Model: &slowModel{forward.NewModel(w.net), pause}, Data: w.training, Bus: memory.Reader(rank), Patience: 20 * time.Millisecond})
	}
	memory.Seal()
	begun := time.Now()
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for i, p := range all {
		wg.Go(func() { errs[i] = p.Run(w.ctx) })
	}
	wg.Wait()
	o.weights = all[0].Weights
	for _, p := range all {
		o.stats, o.hashes = append(o.stats, p.Stats()), append(o.hashes, p.Weights.Hash())
		if p.Weights.Hash() != o.hashes[0] {
			return nil, 0, fmt.Errorf("processor %d has other weights", p.Rank)
		}
	}
	return o, time.Since(begun), errors.Join(errs...)
}

type slowModel struct {
	forward.Model
	least time.Duration
}

func (m *slowModel) Losses(w *forward.Weights, b train.Batch) ([2]float32, error) {
	begun := time.Now()
	l, err := m.Model.Losses(w, b)
	time.Sleep(m.least - time.Since(begun))
	return l, err
}

// absent is what pairs that are away or slow cost.
func (w *world) absent(b *strings.Builder) error {
	const seeds, steps = 5, 1000
	ranks := func(n int, least time.Duration) map[int]time.Duration {
		all := map[int]time.Duration{}
		for rank := range n {
			all[rank] = least
		}
		return all
	}
	fmt.Fprintf(b, "\n## Absent and slow pairs\n\nDigits, MLP 64-64-10, %d steps by default, %d seeds; loss on what is held out, mean (95%% interval).\n\n| run | loss | accuracy |\n|---|---|---|\n", steps, seeds)
	for _, c := range []struct {
		name                          string
		processors, directions, there int
	}{
		{"8 processors", 8, 8, 8}, {"8 processors, 4 of them absent throughout", 8, 8, 4}, {"4 processors", 4, 4, 4},
		{"8 processors, `pairs`", 8, 4, 8}, {"8 processors, 4 of them absent throughout, `pairs`", 8, 4, 4}, {"4 processors, `pairs`", 4, 2, 4},
	} {
		var losses, rights []float64
		for seed := range seeds {
			o, _, err := w.some(config(c.processors, c.directions, steps, uint64(seed+1)), ranks(c.there, 0))
			if err != nil {
				return err
			}
			right, loss, err := forward.Evaluate(w.net, o.weights, w.held)
			if err != nil {
				return err
			}
			losses, rights = append(losses, loss), append(rights, right)
		}
		l, r := stats.Bootstrap([][]float64{losses}), stats.Bootstrap([][]float64{rights})
		fmt.Fprintf(b, "| %s | %.3f (%.3f to %.3f) | %.3f (%.3f to %.3f) |\n", c.name, l.Mean, l.Low, l.High, r.Mean, r.Low, r.High)
	}
	const each = 40 * time.Millisecond
	work := ranks(8, each)
	work[6], work[7] = 3*each, 3*each
	o, took, err := w.some(config(8, 8, 256, 1), work)
	if err != nil {
		return err
	}
	slow := o.stats[6]
	fmt.Fprintf(b, "\nOne pair of four three times as slow as the others (40 and 120 ms a forward pass, emulated), 256 steps: it counted in %.2f of them, %d times late; a step took %.0f ms. The other pairs were absent in %d, %d and %d steps.\n",
		1-float64(slow.Missed)/256, slow.Late, took.Seconds()/256*1000, o.stats[0].Absent[0], o.stats[0].Absent[1], o.stats[0].Absent[2])
	return nil
}
