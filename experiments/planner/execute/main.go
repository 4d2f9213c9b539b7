// Command execute compares what evenkeel plan check predicts with what python3 -m evenkeel.plan run measures on this machine, with a process
// for each device. In each round python3 -m evenkeel.plan profile measures the layers, then every plan is predicted from that and run.
//
//	go run ./experiments/planner/execute
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"evenkeel/experiments/internal/program"
	"evenkeel/planner"
)

var sizes = []string{"--size", "128", "--length", "32", "--vocabulary", "256"}

// example is a plan of a transformer of four blocks.
type example struct {
	name  string
	busy  int // processes at work, as many as devices
	batch int
	micro int
	stage []planner.Stage
}

func stage(from, to, first, count, tensor int, shares []int, sharding planner.Sharding, checkpoint bool) planner.Stage {
	return planner.Stage{From: from, To: to, Groups: []planner.Group{{Devices: planner.Devices{Device: "cpu", First: first, Count: count}, Tensor: tensor, MicroBatches: shares}},
		Strategies: []planner.Strategy{{From: from, To: to, Sharding: sharding, Checkpoint: checkpoint}}}
}

var examples = []example{
	{"tensor degree 2", 2, 8, 2, []planner.Stage{stage(0, 6, 0, 2, 2, []int{2}, planner.Replicated, false)}},
	{"tensor degree 2, recomputed", 2, 8, 2, []planner.Stage{stage(0, 6, 0, 2, 2, []int{2}, planner.Replicated, true)}},
	{"2 replicas", 2, 8, 4, []planner.Stage{stage(0, 6, 0, 2, 1, []int{2, 2}, planner.Replicated, false)}},
	{"2 replicas, 3 and 1 samples", 2, 8, 4, []planner.Stage{stage(0, 6, 0, 2, 1, []int{3, 1}, planner.Replicated, false)}},
	{"2 replicas, optimizer sharded", 2, 8, 4, []planner.Stage{stage(0, 6, 0, 2, 1, []int{2, 2}, planner.Optimizer, false)}},
	{"2 replicas, gradients sharded", 2, 8, 4, []planner.Stage{stage(0, 6, 0, 2, 1, []int{2, 2}, planner.Gradients, false)}},
	{"2 stages", 2, 16, 2, []planner.Stage{stage(0, 3, 0, 1, 1, []int{2}, planner.Replicated, false), stage(3, 6, 1, 1, 1, []int{2}, planner.Replicated, false)}},
	{"2 stages, the second longer", 2, 16, 2, []planner.Stage{stage(0, 2, 0, 1, 1, []int{2}, planner.Replicated, false), stage(2, 6, 1, 1, 1, []int{2}, planner.Replicated, false)}},
	{"4 processes on 2 cores: 2 stages of tensor degree 2", 4, 16, 2, []planner.Stage{stage(0, 3, 0, 2, 2, []int{2}, planner.Replicated, false), stage(3, 6, 2, 2, 2, []int{2}, planner.Replicated, false)}},
	{"4 processes on 2 cores: 2 replicas of tensor degree 2", 4, 8, 4, []planner.Stage{stage(0, 6, 0, 4, 2, []int{2, 2}, planner.Replicated, false)}},
}

func main() {
	python := flag.String("python", "/usr/bin/python3", "Python with PyTorch")
	rounds := flag.Int("rounds", 3, "rounds over all plans")
	flag.Parse()
	program.Main(func(ctx context.Context) error {
		text, err := run(ctx, *python, *rounds)
		fmt.Print(text)
		return err
	})
}

func run(ctx context.Context, python string, rounds int) (string, error) {
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
	measured, off := make([][]float64, len(examples)), make([][]float64, len(examples))
	for range rounds {
		busy := 0
		for i, e := range examples {
			if e.busy != busy { // measured in every round, as the load of the machine changes
				busy = e.busy
				profile := append([]string{"-m", "evenkeel.plan", "profile", "--blocks", "4", "--micro-batches", "1,2,3", "--busy", fmt.Sprint(busy), "--each", "0.15", "--out", "layers.csv", "--cluster", "cluster.yaml"}, sizes...)
				if _, err := program.Output(ctx, folder, python, profile...); err != nil {
					return "", err
				}
			}
			seconds, predicted, err := e.run(ctx, folder, evenkeel, python)
			if err != nil {
				return "", fmt.Errorf("%s: %w", e.name, err)
			}
			measured[i], off[i] = append(measured[i], seconds), append(off[i], 100*(predicted/seconds-1))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| plan | measured, ms | error of the prediction, %%: median of %d | each round |\n|---|---|---|---|\n", rounds)
	for i, e := range examples {
		var each []string
		for _, v := range off[i] {
			each = append(each, fmt.Sprintf("%+.0f", v))
		}
		slices.Sort(measured[i])
		slices.Sort(off[i])
		fmt.Fprintf(&b, "| %s | %.0f | %+.0f | %s |\n", e.name, 1e3*measured[i][rounds/2], off[i][rounds/2], strings.Join(each, ", "))
	}
	return b.String(), nil
}

// run predicts and runs the plan.
func (e *example) run(ctx context.Context, folder, evenkeel, python string) (seconds, predicted float64, err error) {
	p := &planner.Plan{Version: planner.Version, Model: "transformer", GlobalBatch: e.batch, MicroBatch: e.micro, Stages: e.stage}
	if err := planner.WritePlan(filepath.Join(folder, "plan.json"), p); err != nil {
		return 0, 0, err
	}
	priced, err := program.Output(ctx, folder, evenkeel, "plan", "check", "plan.json", "--profile", "layers.csv", "--cluster", "cluster.yaml", "--precision", "fp32", "--overlap", "off", "--calibration", "none", "--json")
	if err != nil {
		return 0, 0, err
	}
	if err := os.WriteFile(filepath.Join(folder, "priced.json"), priced, 0o600); err != nil {
		return 0, 0, err
	}
	text, err := program.Output(ctx, folder, python, append([]string{"-m", "evenkeel.plan", "run", "priced.json", "--steps", "8", "--json"}, sizes...)...)
	if err != nil {
		return 0, 0, err
	}
	var got struct {
		Seconds   float64 `json:"seconds_per_iteration"`
		Predicted float64 `json:"plan_seconds"`
	}
	err = json.Unmarshal(text, &got)
	return got.Seconds, got.Predicted, err
}
