// Command hashes prints the hashes of networks that it trained by forward passes: dense layers, convolutions and attention,
// both kinds of directions, everything that decides about a step. The tests of package forward build it for several
// processors and compare.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/forward"
	"github.com/evenkeel/evenkeel/train"
	"github.com/evenkeel/evenkeel/train/data"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "hashes:", err)
		os.Exit(1)
	}
}

func run() error {
	digits, err := data.Digits()
	if err != nil {
		return err
	}
	text, err := data.NewText(strings.NewReader(strings.Repeat("the quick brown fox jumps over the lazy dog; ", 20)), "text", 8)
	if err != nil {
		return err
	}
	mlp, err := train.MLP(64, 16, 10)
	if err != nil {
		return err
	}
	convnet, err := train.Convnet(8, 8, 1, 10, 4)
	if err != nil {
		return err
	}
	transformer, err := train.Transformer(train.TransformerConfig{Tokens: len(text.Characters()), Length: 8, Size: 8, Heads: 2, Blocks: 1})
	if err != nil {
		return err
	}
	for _, c := range []struct {
		name      string
		net       *train.Network
		set       data.Set
		kind      forward.Kind
		normalize bool
	}{{"dense", mlp, digits, forward.Rademacher, true}, {"convolution", convnet, digits, forward.Rademacher, false}, {"attention", transformer, text, forward.Gaussian, true}} {
		hash, err := trained(&forward.Config{
			Processors: 4, Directions: 2, Kind: c.kind, Key: 11, Steps: 200, Epsilon: 1e-3, LearningRate: 0.003, Schedule: "cosine",
			Examples: []int{3, 4}, Momentum: 0.7, Clip: 2.5, Normalize: c.normalize, Guard: true,
		}, c.net, c.set)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Println(c.name, hash)
	}
	return nil
}

// trained is the hash of the weights at a run's end.
func trained(c *forward.Config, net *train.Network, set data.Set) (string, error) {
	memory := forward.NewMemory()
	var all sync.WaitGroup
	errs, hashes := make([]error, c.Processors), make([]string, c.Processors)
	for rank := range c.Processors {
		w := forward.NewWeights(net, c.Key)
		header := forward.NewHeader(*c, forward.Examples{Count: set.Len()}, forward.FromKey, w)
		encoded, err := header.Encode()
		if err != nil {
			return "", err
		}
		replica, err := forward.NewReplica(encoded, w)
		if err != nil {
			return "", err
		}
		p := &forward.Processor{Replica: replica, Rank: rank, Model: forward.NewModel(net), Data: set, Bus: memory.Reader(rank), Patience: time.Hour}
		all.Go(func() {
			errs[rank] = p.Run(context.Background())
			hashes[rank] = p.Weights.Hash()
		})
	}
	all.Wait()
	return hashes[0], errors.Join(errs...)
}
