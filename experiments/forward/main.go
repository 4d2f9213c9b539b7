// Command forward prints the tables of docs/results/forward.md that need no PyTorch.
//
//	go run ./experiments/forward -part peers        # MeZO, FZOO and an evolution strategy at equal forward passes
//	go run ./experiments/forward -part long         # a long run, and back-propagation
//	go run ./experiments/forward -part absent       # absent or slow pairs
//	go run ./experiments/forward -part agreement    # the same weights in processes, builds and replays; bytes sent
//	go run ./experiments/forward -part costs        # time and memory of a step, on an idle machine
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"evenkeel/experiments/internal/program"
	"evenkeel/forward"
	"evenkeel/train"
	"evenkeel/train/data"
)

var parts = map[string]func(*world) error{
	"peers": (*world).peers, "long": (*world).long, "absent": (*world).absent, "agreement": (*world).agreement, "costs": costs,
}

func main() {
	part := flag.String("part", "", "peers, long, absent, agreement or costs")
	steps := flag.Int("steps", 10_000, "steps of parts long and agreement")
	flag.Parse()
	program.Main(func(ctx context.Context) error {
		run := parts[*part]
		if run == nil {
			return errors.New("-part: peers, long, absent, agreement or costs")
		}
		w := &world{ctx: ctx, steps: *steps}
		digits, err := data.Digits()
		if err != nil {
			return err
		}
		w.training, w.held = data.Split(digits, 5)
		if w.net, err = train.MLP(64, 64, 10); err != nil {
			return err
		}
		fmt.Printf("%s, %d cores, %s/%s\n\n", time.Now().Format(time.DateOnly), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
		return run(w)
	})
}

// world is what runs share: the digits, and an MLP 64-64-10 of 4,810 weights.
type world struct {
	ctx            context.Context
	net            *train.Network
	training, held data.Set
	steps          int
}

// config returns the default configuration of evenkeel forward train; with half as many directions as processors, that of
// --estimator pairs.
func config(processors, directions, steps int, key uint64) *forward.Config {
	c := &forward.Config{Processors: processors, Estimator: forward.Paired, Directions: directions, Key: key, Steps: steps, Epsilon: 1e-3, Schedule: forward.Cosine, Clip: 3, Guard: true}
	if directions == processors {
		c.Estimator = forward.Each
	}
	for range processors / 2 {
		c.Examples = append(c.Examples, 32)
	}
	c.LearningRate = c.DefaultRate(4810)
	return c
}

// processor returns a rank of a new run.
func processor(c *forward.Config, net *train.Network, training data.Set, rank int, bus forward.Bus) (*forward.Processor, error) {
	weights := forward.NewWeights(net, c.Key)
	h := forward.NewHeader(*c, forward.Examples{Count: training.Len()}, forward.FromKey, weights)
	encoded, err := h.Encode()
	if err != nil {
		return nil, err
	}
	r, err := forward.NewReplica(encoded, weights)
	return &forward.Processor{Replica: r, Rank: rank, Model: forward.NewModel(net), Data: training, Bus: bus, Patience: time.Hour}, err
}

// train runs ranks of a run on the digits, each in a goroutine. If change is not nil, it may alter a rank before it runs.
func (w *world) train(c *forward.Config, ranks int, change func(*forward.Processor)) ([]*forward.Processor, error) {
	memory, all := forward.NewMemory(), make([]*forward.Processor, ranks)
	for rank := range all {
		p, err := processor(c, w.net, w.training, rank, memory.Reader(rank))
		if err != nil {
			return nil, err
		}
		if all[rank] = p; change != nil {
			change(p)
		}
	}
	memory.Seal()
	var group errgroup.Group
	for _, p := range all {
		group.Go(func() error { return p.Run(w.ctx) })
	}
	return all, group.Wait()
}
