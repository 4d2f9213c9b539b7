package main

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/forward"
)

// warmed is a way to find a rate on the way. It is told the loss of every block, and gives what the default rate is multiplied with in the next one.
type warmed func(block int, loss float64) float64

// ramp is the usual warm-up, in four steps; the first is a quarter.
func ramp(block int, _ float64) float64 { return min(1, 0.25*float64(block+2)) }

// doubling begins with a quarter and doubles the rate as long as the loss falls as much as in the block before, up to four times the default; then it goes back by one.
func doubling() warmed {
	factor, before, fell, found := 0.25, math.NaN(), 0.0, false
	return func(_ int, loss float64) float64 {
		if found {
			return factor
		}
		now := before - loss
		switch {
		case math.IsNaN(before):
			factor *= 2
		case now < fell || factor == 4:
			factor, found = factor/2, true
		default:
			fell = now
			factor *= 2
		}
		before = loss
		return factor
	}
}

// trained is a run of a kind of network with a rate that changes from block to block; it returns the loss on what is held out.
func (w *world) trained(k kind, steps int, seed uint64, factor float64, how func() warmed) (float64, error) {
	c := config(8, 8, steps, seed)
	c.LearningRate = c.DefaultRate(k.weights, forward.FromKey) * factor
	for p := range c.Examples {
		c.Examples[p] = 16
	}
	base := c.LearningRate
	if how != nil {
		c.LearningRate = base / 4
	}
	memory := forward.NewMemory()
	var all []*forward.Processor
	for rank := range c.Processors {
		r, _, err := replica(c, k.net, k.training.Len())
		if err != nil {
			return 0, err
		}
		p := &forward.Processor{Replica: r, Rank: rank, Model: forward.NewModel(k.net), Data: k.training, Bus: memory.Reader(rank), Patience: time.Hour}
		if how != nil { // every processor finds the same
			next := how()
			p.End = func(b *forward.Block, _ []byte) error {
				p.Header.Config.LearningRate = base * next(b.Number, b.Loss)
				return nil
			}
		}
		all = append(all, p)
	}
	memory.Seal()
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for i, p := range all {
		wg.Go(func() { errs[i] = p.Run(w.ctx) })
	}
	wg.Wait()
	if err := errors.Join(errs...); errors.Is(err, forward.ErrOverflow) {
		return math.Inf(1), nil
	} else if err != nil {
		return 0, err
	}
	_, loss, err := forward.Evaluate(k.net, all[0].Weights, k.held)
	return loss, err
}

// probed tries five rates for a block each, from the start, and trains with the best of them, divided by a number, for the steps that are left.
func (w *world) probed(k kind, steps int, seed uint64, divided float64) (float64, error) {
	best, lowest := 1.0, math.Inf(1)
	factors := []float64{0.25, 0.5, 1, 2, 4}
	for _, f := range factors {
		loss, err := w.trained(k, forward.BlockSteps, seed, f, nil)
		if err != nil {
			return 0, err
		}
		if loss < lowest {
			best, lowest = f, loss
		}
	}
	return w.trained(k, steps-len(factors)*forward.BlockSteps, seed, best/divided, nil)
}

// warmup compares the default rate with ways to find one.
func (w *world) warmup(b *strings.Builder) error {
	const steps, seeds = 1024, 3
	done, err := w.openRuns()
	if err != nil {
		return err
	}
	all, err := kinds()
	if err != nil {
		return err
	}
	ways := []struct {
		name string
		run  func(k kind, seed uint64) (float64, error)
	}{
		{"default", func(k kind, seed uint64) (float64, error) { return w.trained(k, steps, seed, 1, nil) }},
		{"half of it", func(k kind, seed uint64) (float64, error) { return w.trained(k, steps, seed, 0.5, nil) }},
		{"twice", func(k kind, seed uint64) (float64, error) { return w.trained(k, steps, seed, 2, nil) }},
		{"ramp", func(k kind, seed uint64) (float64, error) {
			return w.trained(k, steps, seed, 1, func() warmed { return ramp })
		}},
		{"doubling", func(k kind, seed uint64) (float64, error) { return w.trained(k, steps, seed, 1, doubling) }},
		{"probed", func(k kind, seed uint64) (float64, error) { return w.probed(k, steps, seed, 1) }},
		{"probed, half", func(k kind, seed uint64) (float64, error) { return w.probed(k, steps, seed, 2) }},
	}
	fmt.Fprintf(b, "\n## Warm-ups\n\nEight processors, %d steps, 16 examples an input, mean of %d seeds: loss on what is held out, over that by the default rate.\n\n| network |", steps, seeds)
	for _, way := range ways {
		fmt.Fprintf(b, " %s |", way.name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(ways)) + "\n")
	for _, k := range all {
		if k.weights > 100_000 {
			continue
		}
		fmt.Fprintf(b, "| %s |", k.name)
		first := 0.0
		for i, way := range ways {
			mean := 0.0
			for seed := range uint64(seeds) {
				r, err := done.get(fmt.Sprintf("warm-up, %s, %s, seed %d", k.name, way.name, seed), func() (_, loss float64, err error) {
					loss, err = way.run(k, seed+21)
					return 0, min(loss, math.MaxFloat64), err
				})
				if err != nil {
					return err
				}
				mean += r.After / seeds
			}
			if i == 0 {
				first = mean
			}
			fmt.Fprintf(b, " %.3f |", mean/first)
		}
		b.WriteString("\n")
	}
	return nil
}
