package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"evenkeel/agent"
	"evenkeel/bucket"
	"evenkeel/bucket/plain"
	"evenkeel/checkpoint"
	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/cluster/sim"
	"evenkeel/ddqn"
	"evenkeel/ddqn/learn"
	"evenkeel/env"
	"evenkeel/experiments/internal/fleet"
	"evenkeel/forward"
	"evenkeel/internal/matrix"
	"evenkeel/planner"
	"evenkeel/planner/layerprofile"
	"evenkeel/train"
	"evenkeel/train/data"
)

const nodes = 1000

// subjects is one thing of every room, the one that it does most.
var subjects = append([]subject{
	{"allocate", "a plain bisection", allocate},
	{"round", "sorting 20,000 numbers", simulate},
	{"microsteps", "sorting 20,000 numbers", microSteps},
	{"observe", "sorting 20,000 numbers", observe},
	{"decide", "the products of its network, by three loops", decide},
	{"update", "the products of its network, by three loops", update},
	{"product", "three loops", kernel},
	{"bucket", "sorting as many numbers", buckets},
	{"plan", "sorting 100,000 numbers", plan},
	{"checkpoint", "copying its bytes", save},
	{"forward", "the products of its network, by three loops", forwardPass},
	{"train", "the products of its network, by three loops", trainStep},
}, decisionSubjects()...)

// mixed is a cluster of several types of devices, all profiled.
func mixed() (*cluster.Cluster, []cluster.Performance, error) {
	c, err := fleet.Mixed("llama-3b-512-fp16", nodes, 24, "a100-40g", "a10g", "a6000", "p40", "t4")
	if err != nil {
		return nil, nil, err
	}
	rng, perf := rand.New(rand.NewPCG(1, 1)), c.Nominal()
	for i := range perf {
		perf[i].PerSample *= 1 + rng.Float64()
		perf[i].Overhead = 0.01 * rng.Float64()
	}
	return c, perf, nil
}

func allocate() (op, twin func() error, err error) {
	c, perf, err := mixed()
	if err != nil {
		return nil, nil, err
	}
	var a cluster.Allocator
	sizes, plain := make([]int, nodes), make([]int, nodes)
	op = func() error {
		_, err := a.Allocate(c, nil, perf, sizes)
		return err
	}
	twin = func() error {
		_, err := bisection(c, perf, plain)
		return err
	}
	return op, twin, nil
}

// drifting is a simulated cluster, and sizes for it.
func drifting() (*cluster.Cluster, *sim.Simulator, cluster.Plan, error) {
	c, perf, err := mixed()
	if err != nil {
		return nil, nil, cluster.Plan{}, err
	}
	conditions, err := cluster.Preset("drift")
	if err != nil {
		return nil, nil, cluster.Plan{}, err
	}
	p := cluster.Plan{Sizes: make([]int, nodes)}
	_, err = cluster.Allocate(c, nil, perf, p.Sizes)
	return c, sim.New(c, conditions, 1), p, err
}

func simulate() (op, twin func() error, err error) {
	_, s, p, err := drifting()
	op = func() error {
		_, err := s.Round(context.Background(), p)
		return err
	}
	return op, sorting(20_000), err
}

// reports are some rounds' reports, to be used again and again.
func reports() (*cluster.Cluster, cluster.Plan, []*cluster.Report, error) {
	c, s, p, err := drifting()
	if err != nil {
		return nil, p, nil, err
	}
	var all []*cluster.Report
	for range 8 {
		r, err := s.Round(context.Background(), p)
		if err != nil {
			return nil, p, nil, err
		}
		kept := *r
		kept.Nodes = slices.Clone(r.Nodes)
		all = append(all, &kept)
	}
	return c, p, all, nil
}

func observe() (op, twin func() error, err error) {
	c, _, all, err := reports()
	if err != nil {
		return nil, nil, err
	}
	t := env.NewTracker(c)
	var rows []float32
	k := 0
	op = func() error {
		t.Observe(all[k%len(all)])
		rows = t.Rows(rows, [env.Objectives]float64{1})
		k++
		return nil
	}
	return op, sorting(20_000), nil
}

func decide() (op, twin func() error, err error) {
	c, p, all, err := reports()
	if err != nil {
		return nil, nil, err
	}
	trained, err := agent.Embedded()
	if err != nil {
		return nil, nil, err
	}
	a := trained.NewAgent(c, cluster.Objectives{Speed: 1}.Weights())
	k := 0
	op = func() error {
		k++
		return a.Decide(all[k%len(all)], nil, &p)
	}
	return op, products([3]int{nodes, 64, env.Features}, [3]int{nodes, 64, 64}), nil
}

func update() (op, twin func() error, err error) {
	rng := rand.New(rand.NewPCG(1, 2))
	spec := ddqn.Spec{Features: 32, Actions: 24, Objectives: 3, Hidden: []int{64, 64}}
	net, err := ddqn.NewNetwork(spec, rng)
	if err != nil {
		return nil, nil, err
	}
	learner, err := learn.NewLearner(learn.Config{}, net, rand.NewPCG(3, 4))
	if err != nil {
		return nil, nil, err
	}
	const group = 8
	replay, err := learn.NewReplay(learn.ReplayConfig{Streams: 1, Capacity: 1000, Group: group, Features: spec.Features, Objectives: spec.Objectives})
	if err != nil {
		return nil, nil, err
	}
	for i := range 1000 {
		s := learn.Step{Kind: learn.Mid, Rows: make([]float32, group*spec.Features), Actions: make([]int, group), Rewards: make([]float32, group*spec.Objectives), Weights: []float32{1, 0, 0}}
		if i == 0 {
			s.Kind = learn.First
		}
		for k := range s.Rows {
			s.Rows[k] = rng.Float32()
		}
		for k := range s.Actions {
			s.Actions[k] = rng.IntN(spec.Actions)
		}
		if err := replay.Add(0, s); err != nil {
			return nil, nil, err
		}
	}
	op = func() error {
		_, err := learner.Update(replay)
		return err
	}
	// Three forward passes, one backward of two products a layer; 64 groups of 8 rows.
	var all [][3]int
	for range 5 {
		all = append(all, [3]int{512, 64, 32}, [3]int{512, 64, 64}, [3]int{512, 75, 64})
	}
	return op, products(all...), nil
}

func kernel() (op, twin func() error, err error) {
	const m, n, k = 512, 64, 64
	p := newProduct(m, n, k)
	c := make([]float32, m*n)
	var scratch matrix.Scratch
	op = func() error {
		matrix.Multiply(matrix.Of(c, m, n), matrix.Of(p.a, m, k), matrix.Of(p.b, k, n), &scratch)
		return nil
	}
	return op, products([3]int{m, n, k}), nil
}

// steps is a Cost with t = a + b BL + c BL^2 and memory BL(1+L/m) <= 65536.
type steps struct{ a, b, c, m float64 }

func (s steps) Seconds(length, batch int) float64 {
	tokens := float64(length) * float64(batch)
	return s.a + s.b*tokens + s.c*tokens*float64(length)
}
func (s steps) Breaks(int) []int { return nil }
func (s steps) Cap(length int) int {
	return int(65536 / (float64(length) * (1 + float64(length)/s.m)))
}

func buckets() (op, twin func() error, err error) {
	const n = 100_000
	rng := rand.New(rand.NewPCG(1, 2))
	lengths := make(bucket.Lengths, n)
	for i := range lengths {
		lengths[i] = uint32(min(4096, max(1, math.Round(400*math.Exp(.8*rng.NormFloat64())))))
	}
	op = func() error {
		_, err := plain.Make(lengths, steps{.08, 4e-5, 4e-9, 8192}, bucket.Config{Ranks: 8})
		return err
	}
	return op, sorting(n), nil
}

func plan() (op, twin func() error, err error) {
	p := &layerprofile.Profile{Model: "small"}
	for i := range 8 {
		l := layerprofile.Layer{Name: fmt.Sprintf("block%d", i), Parameters: 12 * 1024 * 1024, Output: 1 << 21}
		for device, slow := range map[string]float64{"a100": 1, "v100": 2.2} {
			for batch := 1; batch <= 4; batch *= 2 {
				f := 1e-3 * slow * (0.15 + float64(batch))
				l.Runs = append(l.Runs, layerprofile.Run{Device: device, Tensor: 1, MicroBatch: batch, Forward: f, Backward: 2 * f, Update: 1e-4 * slow, Activation: 1 << 25})
			}
		}
		p.Layers = append(p.Layers, l)
	}
	if err := p.Finish("small"); err != nil {
		return nil, nil, err
	}
	const yaml = `nodes:
  - {device: a100, count: 4, per_machine: 4, memory: 40GiB, inside: {bandwidth: 200GB/s, latency: 5us}, link: {bandwidth: 25GB/s, latency: 10us}}
  - {device: v100, count: 4, per_machine: 4, memory: 32GiB, inside: {bandwidth: 100GB/s, latency: 5us}, link: {bandwidth: 10GB/s, latency: 15us}}
`
	top, err := clusterfile.ReadTopology(strings.NewReader(yaml), "small", nil)
	if err != nil {
		return nil, nil, err
	}
	job, err := planner.NewJob(p, top, planner.Options{GlobalBatches: []int{16}})
	if err != nil {
		return nil, nil, err
	}
	op = func() error {
		_, err := job.Search(context.Background(), planner.SearchOptions{Unrefined: true})
		return err
	}
	return op, sorting(100_000), nil
}

func save() (op, twin func() error, err error) {
	const layers, size = 8, 1 << 18
	var arrays []checkpoint.Array
	for i := range layers {
		values := make([]float32, size)
		for k := range values {
			values[k] = float32(i + k)
		}
		arrays = append(arrays, checkpoint.Of(fmt.Sprintf("layer%d", i), checkpoint.Parameter, values))
	}
	f, err := checkpoint.CreateOn(checkpoint.NewMemory(nil), arrays, checkpoint.Options{})
	if err != nil {
		return nil, nil, err
	}
	step := uint64(0)
	op = func() error {
		step++
		s, err := f.Begin(context.Background(), step)
		if err != nil {
			return err
		}
		for _, a := range arrays {
			if err := s.Write(a.Name, a.Data); err != nil {
				return err
			}
		}
		if err := s.Commit(checkpoint.State{Step: step}); err != nil {
			return err
		}
		return s.Wait(context.Background())
	}
	to := make([]byte, 4*layers*size)
	twin = func() error {
		n := 0
		for _, a := range arrays {
			n += copy(to[n:], a.Data)
		}
		return nil
	}
	return op, twin, nil
}

func forwardPass() (op, twin func() error, err error) {
	net, err := train.MLP(256, 512, 512, 10)
	if err != nil {
		return nil, nil, err
	}
	w, batch := forward.NewWeights(net, 1), train.Batch{Inputs: make([]float32, 32*256), Targets: make([]int32, 32)}
	for i := range batch.Inputs {
		batch.Inputs[i] = float32(i%17) / 17
	}
	model := forward.NewModel(net)
	op = func() error {
		_, err := model.Losses(w, batch)
		return err
	}
	return op, products([3]int{32, 512, 256}, [3]int{32, 512, 512}, [3]int{32, 10, 512}), nil
}

func trainStep() (op, twin func() error, err error) {
	net, err := train.MLP(512, 512, 512, 10)
	if err != nil {
		return nil, nil, err
	}
	numbers, err := data.NewSynthetic(1000, 512, 10, 1)
	if err != nil {
		return nil, nil, err
	}
	t, err := train.New(net, numbers, train.Config{MicroBatches: []int{64}, Optimizer: train.Optimizer{Method: train.AdamW, Rate: 0.001}})
	if err != nil {
		return nil, nil, err
	}
	op = func() error {
		_, err := t.Step(context.Background())
		return err
	}
	return op, products(
		[3]int{64, 512, 512}, [3]int{64, 512, 512}, [3]int{64, 10, 512},
		[3]int{512, 512, 64}, [3]int{512, 512, 64}, [3]int{512, 10, 64}, // gradients of the weights
		[3]int{64, 512, 512}, [3]int{64, 512, 10}), nil // and of the inputs; the first layer's nobody needs
}
