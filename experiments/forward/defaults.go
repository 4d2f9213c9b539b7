package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/forward"
	"github.com/evenkeel/evenkeel/train"
	"github.com/evenkeel/evenkeel/train/data"
)

// kind is a network with its data.
type kind struct {
	name           string
	net            *train.Network
	training, held data.Set
	seeds, weights int
}

// kinds are networks of three kinds, from 5,000 to 5,000,000 weights; the largest have fewer seeds.
func kinds() ([]kind, error) {
	digits, err := data.Digits()
	if err != nil {
		return nil, err
	}
	book, err := os.ReadFile(filepath.Join("docs", "guides", "serve.md"))
	if err != nil {
		return nil, err
	}
	text, err := data.NewText(strings.NewReader(string(book)), "text", 16)
	if err != nil {
		return nil, err
	}
	var all []kind
	var errs []error
	add := func(name string, set data.Set, seeds int, net *train.Network, err error) {
		errs = append(errs, err)
		k := kind{name: name, net: net, seeds: seeds}
		if net != nil {
			k.weights = forward.NewWeights(net, 1).Len()
		}
		k.training, k.held = data.Split(set, 5)
		all = append(all, k)
	}
	mlp := func(seeds int, sizes ...int) {
		net, err := train.MLP(sizes...)
		add(fmt.Sprint("MLP ", sizes), digits, seeds, net, err)
	}
	mlp(20, 64, 64, 10)
	mlp(20, 64, 256, 256, 10)
	mlp(5, 64, 800, 800, 10)
	mlp(3, 64, 2200, 2200, 10)
	for _, c := range []struct{ channels, seeds int }{{8, 20}, {32, 20}} {
		net, err := train.Convnet(8, 8, 1, 10, c.channels)
		add(fmt.Sprintf("convolutions, %d channels", c.channels), digits, c.seeds, net, err)
	}
	for _, c := range []struct{ size, blocks, seeds int }{{16, 1, 20}, {64, 2, 3}} {
		net, err := train.Transformer(train.TransformerConfig{Tokens: len(text.Characters()), Length: 16, Size: c.size, Heads: 4, Blocks: c.blocks})
		add(fmt.Sprintf("transformer, %d wide, %d deep", c.size, c.blocks), text, c.seeds, net, err)
	}
	return all, errors.Join(errs...)
}

// seedsOf is how many seeds a row has: those that take minutes a run have fewer.
func (k *kind) seedsOf(examples int) int {
	switch {
	case examples == 64 && k.weights > 1_000_000:
		return 0
	case examples == 64 && k.weights > 100_000:
		return min(k.seeds, 5)
	}
	return k.seeds
}

// defaults trains networks of all kinds by the default rate, and says how the losses at the end compare with those at the beginning. Runs that
// are in a file already are taken from there, so that it may end early and be called again.
func (w *world) defaults(b *strings.Builder) error {
	all, err := kinds()
	if err != nil {
		return err
	}
	done, err := w.openRuns()
	if err != nil {
		return err
	}
	const steps = 256
	fmt.Fprintf(b, "\n## Defaults\n\nFour processors, %d steps, everything else by default; loss on what is held out, at the end over at the beginning: largest of all seeds, median. Above 1: it ended above the loss that it began with.\n\n| network | weights | examples an input | seeds | largest | median |\n|---|---|---|---|---|---|\n", steps)
	for _, k := range all {
		for _, examples := range []int{8, 64} {
			var ratios []float64
			for seed := range k.seedsOf(examples) {
				r, err := done.get(fmt.Sprintf("%s, %d examples, seed %d", k.name, examples, seed), func() (before, after float64, err error) {
					c := config(4, 4, steps, uint64(seed+1))
					c.Examples = []int{examples, examples}
					c.LearningRate = c.DefaultRate(k.weights, forward.FromKey)
					return w.one(c, k)
				})
				if err != nil {
					return err
				}
				ratios = append(ratios, r.After/r.Before)
			}
			if len(ratios) == 0 {
				continue
			}
			slices.Sort(ratios)
			fmt.Fprintf(b, "| %s | %d | %d | %d | %.3f | %.3f |\n", k.name, k.weights, examples, len(ratios), ratios[len(ratios)-1], ratios[len(ratios)/2])
		}
	}
	return nil
}

// one trains, and returns the loss on what is held out before and after.
func (w *world) one(c *forward.Config, k kind) (before, after float64, err error) {
	memory := forward.NewMemory()
	var all []*forward.Processor
	for rank := range c.Processors {
		r, _, err := replica(c, k.net, k.training.Len())
		if err != nil {
			return 0, 0, err
		}
		all = append(all, &forward.Processor{Replica: r, Rank: rank, Model: forward.NewModel(k.net), Data: k.training, Bus: memory.Reader(rank), Patience: time.Hour})
	}
	memory.Seal()
	if _, before, err = forward.Evaluate(k.net, all[0].Weights, k.held); err != nil {
		return 0, 0, err
	}
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for i, p := range all {
		wg.Go(func() { errs[i] = p.Run(w.ctx) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, 0, err
	}
	_, after, err = forward.Evaluate(k.net, all[0].Weights, k.held)
	return before, after, err
}
