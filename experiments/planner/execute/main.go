// Command execute compares what evenkeel plan check predicts with what python3 -m evenkeel.plan run measures on two processes of this machine.
// In each trial python3 -m evenkeel.plan profile measures the layers of a random transformer, and three random plans are predicted from that
// alone and run in turn.
//
//	go run ./experiments/planner/execute
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"evenkeel/experiments/internal/program"
	"evenkeel/planner"
)

// inTurn calls python3 -m evenkeel.plan with one list of arguments after the other, but loads PyTorch once.
const inTurn = `
import json, sys
from evenkeel.plan.__main__ import main
for arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    if main():
        sys.exit(1)`

var kinds = []string{"tensor degree 2", "2 replicas", "2 stages"}

// drawn is a random plan and what became of it.
type drawn struct {
	kind                int
	plan                planner.Plan
	predicted, measured float64 // seconds of an iteration
}

// draw makes a plan of one kind for two processes: cut, shares, sharding, recomputation and micro-batch are random.
func draw(rng *rand.Rand, layers, batch int) drawn {
	d := drawn{kind: rng.IntN(len(kinds)), plan: planner.Plan{Version: planner.Version, Model: "transformer", GlobalBatch: batch, MicroBatch: 2 << rng.IntN(2)}}
	checkpoint, sharding := rng.IntN(2) == 0, planner.Replicated
	stage := func(from, to, first, count, tensor int, shares ...int) {
		d.plan.Stages = append(d.plan.Stages, planner.Stage{From: from, To: to,
			Groups:     []planner.Group{{Devices: planner.Devices{Device: "cpu", First: first, Count: count}, Tensor: tensor, MicroBatches: shares}},
			Strategies: []planner.Strategy{{From: from, To: to, Sharding: sharding, Checkpoint: checkpoint}}})
	}
	micro := d.plan.MicroBatch
	switch d.kind {
	case 0:
		stage(0, layers, 0, 2, 2, micro)
	case 1:
		sharding = []planner.Sharding{planner.Replicated, planner.Optimizer, planner.Gradients}[rng.IntN(3)]
		share := 1 + rng.IntN(micro-1)
		stage(0, layers, 0, 2, 1, share, micro-share)
	default:
		cut := 1 + rng.IntN(layers-1)
		stage(0, cut, 0, 1, 1, micro)
		stage(cut, layers, 1, 1, 1, micro)
	}
	return d
}

func main() {
	python := flag.String("python", "/usr/bin/python3", "Python with PyTorch")
	trials := flag.Int("trials", 20, "random models")
	runs := flag.Int("runs", 3, "runs of each plan, of which the median counts")
	flag.Parse()
	program.Main(func(ctx context.Context) error {
		text, err := run(ctx, *python, *trials, *runs)
		fmt.Print(text)
		return err
	})
}

func run(ctx context.Context, python string, trials, runs int) (string, error) {
	folder, err := os.MkdirTemp("", "execute")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	evenkeel, err := program.Evenkeel(ctx, folder)
	if err != nil {
		return "", err
	}
	packages, err := filepath.Abs("python")
	if err != nil {
		return "", err
	}
	if err := os.Setenv("PYTHONPATH", packages); err != nil {
		return "", err
	}
	off := make([][]float64, len(kinds))
	same, pairs, inOrder := 0, 0, 0
	for i := range trials {
		plans, err := trial(ctx, folder, evenkeel, python, rand.New(rand.NewPCG(uint64(i), 61)), runs)
		if err != nil {
			return "", fmt.Errorf("trial %d: %w", i, err)
		}
		slices.SortFunc(plans, func(a, b *drawn) int { return cmp.Compare(a.predicted, b.predicted) })
		if slices.IsSortedFunc(plans, func(a, b *drawn) int { return cmp.Compare(a.measured, b.measured) }) {
			same++
		}
		for k, d := range plans {
			fmt.Fprintf(os.Stderr, "%d: %s: %.1f ms predicted, %.1f measured\n", i, kinds[d.kind], 1e3*d.predicted, 1e3*d.measured)
			off[d.kind] = append(off[d.kind], 100*(d.predicted/d.measured-1))
			for _, quicker := range plans[:k] {
				if d.predicted > 1.1*quicker.predicted {
					pairs++
					if d.measured > quicker.measured {
						inOrder++
					}
				}
			}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| plans | number | error of the prediction, %%: median | from, to |\n|---|---|---|---|\n")
	for k, all := range off {
		if slices.Sort(all); len(all) > 0 {
			fmt.Fprintf(&b, "| %s | %d | %+.0f | %+.0f, %+.0f |\n", kinds[k], len(all), all[len(all)/2], all[0], all[len(all)-1])
		}
	}
	fmt.Fprintf(&b, "\nThe order of three plans is the predicted in %d of %d trials; that of two whose predictions differ by more than 10%%, in %d of %d.\n", same, trials, inOrder, pairs)
	return b.String(), nil
}

// trial predicts and runs three plans of a random transformer.
func trial(ctx context.Context, folder, evenkeel, python string, rng *rand.Rand, runs int) ([]*drawn, error) {
	blocks, batch := 2+rng.IntN(4), 8<<rng.IntN(2)
	sizes := []string{"--size", fmt.Sprint(64 << rng.IntN(3)), "--length", fmt.Sprint(16 << rng.IntN(3)), "--vocabulary", "256"}
	profile := append([]string{"-m", "evenkeel.plan", "profile", "--blocks", fmt.Sprint(blocks), "--micro-batches", "1,2,3,4", "--busy", "2", "--out", "layers.csv", "--cluster", "cluster.yaml"}, sizes...)
	if _, err := program.Output(ctx, folder, python, profile...); err != nil {
		return nil, err
	}
	var plans []*drawn
	for len(plans) < 3 {
		d := draw(rng, blocks+2, batch)
		if err := planner.WritePlan(filepath.Join(folder, "plan.json"), &d.plan); err != nil {
			return nil, err
		}
		priced, err := program.Output(ctx, folder, evenkeel, "plan", "check", "plan.json", "--profile", "layers.csv", "--cluster", "cluster.yaml", "--precision", "fp32", "--overlap", "off", "--calibration", "none", "--json")
		if err != nil {
			return nil, err
		}
		var got planner.Plan
		if err := json.Unmarshal(priced, &got); err != nil {
			return nil, err
		}
		d.predicted = got.Predicted.Simulated
		if slices.ContainsFunc(plans, func(p *drawn) bool { return p.predicted == d.predicted }) {
			continue // drawn before
		}
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprint(len(plans), ".json")), priced, 0o600); err != nil {
			return nil, err
		}
		plans = append(plans, &d)
	}
	var calls [][]string
	for range runs {
		for i := range plans {
			calls = append(calls, append([]string{"run", fmt.Sprint(i, ".json"), "--steps", "8", "--json"}, sizes...))
		}
	}
	arguments, err := json.Marshal(calls)
	if err != nil {
		return nil, err
	}
	text, err := program.Output(ctx, folder, python, "-c", inTurn, string(arguments))
	if err != nil {
		return nil, err
	}
	measured, decoder := make([][]float64, len(plans)), json.NewDecoder(bytes.NewReader(text))
	for i := range calls {
		var got struct {
			Seconds float64 `json:"seconds_per_iteration"`
		}
		if err := decoder.Decode(&got); err != nil {
			return nil, err
		}
		measured[i%len(plans)] = append(measured[i%len(plans)], got.Seconds)
	}
	for i, d := range plans {
		slices.Sort(measured[i])
		d.measured = measured[i][runs/2]
	}
	return plans, nil
}
