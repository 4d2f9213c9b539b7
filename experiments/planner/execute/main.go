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
	kind      int
	plan      planner.Plan
	predicted float64   // seconds of an iteration
	measured  []float64 // the same, in each round
}

// median is the median of the measured.
func (d *drawn) median() float64 {
	all := slices.Sorted(slices.Values(d.measured))
	return all[len(all)/2]
}

// faster says in how many rounds a plan took less than another one.
func (d *drawn) faster(other *drawn) (n int) {
	for i, s := range d.measured {
		if s < other.measured[i] {
			n++
		}
	}
	return n
}

// ordered says whether three plans, or two, took as long as predicted, compared with each other; known: whether measuring can tell, because of any
// two the same one was quicker in every round.
func ordered(plans ...*drawn) (as, known bool) {
	as, known = true, true
	for i, slow := range plans { // in the predicted order
		for _, quick := range plans[:i] {
			n := quick.faster(slow)
			as = as && quick.median() < slow.median()
			known = known && (n == 0 || n == len(slow.measured))
		}
	}
	return as, known
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
	python := flag.String("python", os.ExpandEnv("$HOME/.cache/evenkeel/venv/bin/python"), "Python with PyTorch")
	trials := flag.Int("trials", 20, "random models")
	first := flag.Int("first", 0, "number of the first of them")
	rounds := flag.Int("rounds", 5, "runs of each plan, in turn; the median counts")
	flag.Parse()
	program.Main(func(ctx context.Context) error {
		if _, err := program.Output(ctx, ".", *python, "-c", "import torch"); err != nil {
			return fmt.Errorf("%w; run .ci/python, or give -python one with PyTorch", err)
		}
		text, err := run(ctx, *python, *first, *trials, *rounds)
		fmt.Print(text)
		return err
	})
}

func run(ctx context.Context, python string, first, trials, rounds int) (string, error) {
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
	var three, two, unknown tally
	for i := first; i < first+trials; i++ {
		plans, err := trial(ctx, folder, evenkeel, python, rand.New(rand.NewPCG(uint64(i), 61)), rounds)
		if err != nil {
			return "", fmt.Errorf("trial %d: %w", i, err)
		}
		slices.SortFunc(plans, func(a, b *drawn) int { return cmp.Compare(a.predicted, b.predicted) })
		if as, known := ordered(plans...); known {
			three.count(as)
		} else {
			unknown.count(as)
		}
		for k, d := range plans {
			fmt.Fprintf(os.Stderr, "%d: %s, %s: %.1f ms predicted, %.1f measured (%.1f)\n", i, kinds[d.kind], d.plan.Stages[0].Strategies[0].Sharding, 1e3*d.predicted, 1e3*d.median(), scaled(1e3, d.measured))
			off[d.kind] = append(off[d.kind], 100*(d.predicted/d.median()-1))
			for _, quicker := range plans[:k] {
				if as, known := ordered(quicker, d); known {
					two.count(as)
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
	fmt.Fprintf(&b, "\nThree plans of which the same one is quicker than another in every round: %v in the predicted order. Other trials, by medians: %v. Two plans: %v.\n", three, unknown, two)
	return b.String(), nil
}

// tally counts how many of some are as predicted.
type tally struct{ as, all int }

func (t *tally) count(as bool) {
	if t.all++; as {
		t.as++
	}
}

func (t tally) String() string { return fmt.Sprintf("%d of %d", t.as, t.all) }

func scaled(by float64, all []float64) []float64 {
	all = slices.Clone(all)
	for i := range all {
		all[i] *= by
	}
	return all
}

// trial predicts and runs three plans of a random transformer.
func trial(ctx context.Context, folder, evenkeel, python string, rng *rand.Rand, rounds int) ([]*drawn, error) {
	blocks, batch := 2+rng.IntN(4), 8<<rng.IntN(2)
	sizes := []string{"--size", fmt.Sprint(64 << rng.IntN(3)), "--length", fmt.Sprint(16 << rng.IntN(3)), "--vocabulary", "256"}
	profile := append([]string{"-m", "evenkeel.plan", "profile", "--blocks", fmt.Sprint(blocks), "--micro-batches", "1,2,3,4", "--busy", "2", "--each", "0.2", "--out", "layers.csv", "--cluster", "cluster.yaml"}, sizes...)
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
	for range rounds {
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
	decoder := json.NewDecoder(bytes.NewReader(text))
	for i := range calls {
		var got struct {
			Seconds float64 `json:"seconds_per_iteration"`
		}
		if err := decoder.Decode(&got); err != nil {
			return nil, err
		}
		d := plans[i%len(plans)]
		d.measured = append(d.measured, got.Seconds)
	}
	return plans, nil
}
