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

// kinds are networks of three kinds, from 5,000 to 5,000,000 weights; larger ones have fewer seeds.
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
	mlp(2, 64, 2200, 2200, 10)
	for _, c := range []struct{ channels, seeds int }{{8, 20}, {32, 5}} {
		net, err := train.Convnet(8, 8, 1, 10, c.channels)
		add(fmt.Sprintf("convolutions, %d channels", c.channels), digits, c.seeds, net, err)
	}
	for _, c := range []struct{ size, blocks, seeds int }{{16, 1, 20}, {64, 2, 3}} {
		net, err := train.Transformer(train.TransformerConfig{Tokens: len(text.Characters()), Length: 16, Size: c.size, Heads: 4, Blocks: c.blocks})
		add(fmt.Sprintf("transformer, %d wide, %d deep", c.size, c.blocks), text, c.seeds, net, err)
	}
	return all, errors.Join(errs...)
}

// defaults trains networks of all kinds by the default rate, and says how the losses at the end compare with those at the beginning.
func (w *world) defaults(b *strings.Builder) error {
	all, err := kinds()
	if err != nil {
		return err
	}
	const steps = 256
	fmt.Fprintf(b, "\n## Defaults\n\nFour processors, %d steps, everything else by default; loss on what is held out, at the end over at the beginning: largest of all seeds, median. Above 1: it ended above the loss that it began with.\n\n| network | weights | examples an input | seeds | largest | median |\n|---|---|---|---|---|---|\n", steps)
	for _, k := range all {
		if !strings.Contains(k.name, w.networks) {
			continue
		}
		for _, examples := range []int{8, 64} {
			if examples == 64 && k.weights > 1_000_000 {
				continue // minutes a run
			}
			var ratios []float64
			seeds := k.seeds
			if examples == 64 && strings.HasPrefix(k.name, "transformer") {
				seeds = min(seeds, 3) // half a minute each
			}
			for seed := range seeds {
				c := config(4, 4, steps, uint64(seed+1))
				c.Examples = []int{examples, examples}
				c.LearningRate = c.DefaultRate(k.weights, forward.FromKey)
				before, after, err := w.one(c, k)
				if err != nil {
					return err
				}
				ratios = append(ratios, after/before)
			}
			slices.Sort(ratios)
			row := fmt.Sprintf("| %s | %d | %d | %d | %.3f | %.3f |\n", k.name, k.weights, examples, len(ratios), ratios[len(ratios)-1], ratios[len(ratios)/2])
			b.WriteString(row)
			fmt.Fprint(os.Stderr, row)
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
