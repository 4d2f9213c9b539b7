package export

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"evenkeel/planner"
	"evenkeel/planner/costmodel"
	"evenkeel/planner/internal/invented"
)

// What a search finds for a trainer is written for it, and no plan that a search over all finds and the trainer runs is cheaper.
func TestFoundForTrainers(t *testing.T) {
	found, compared, jobs := map[string]int{}, 0, 24
	if os.Getenv("EVENKEEL_SLOW") != "" {
		jobs = 120
	}
	for seed := range uint64(jobs) {
		rng := rand.New(rand.NewPCG(seed, 5))
		j, err := invented.New(rng, 6)
		if err != nil {
			t.Fatal(err)
		}
		o := planner.Options{GlobalBatches: []int{j.GlobalBatch}, Checkpoint: j.Checkpoint}
		if seed%3 == 1 {
			j.Selective()
			if j.Checkpoint == "never" {
				o.Checkpoint = "selective"
			}
		}
		if seed%5 < 3 {
			j.Spread()
		}
		if last := &j.Profile.Layers[len(j.Profile.Layers)-1]; seed%4 == 1 {
			last.Tied = min(last.Parameters, j.Profile.Layers[0].Parameters)
		}
		o.Overlap.Off = seed%3 == 0
		if seed%2 == 0 {
			o.States = costmodel.Full32
		} else if seed%3 == 0 {
			o.States = costmodel.BF16
		}
		if j.Sharding != "" {
			o.Shardings = []planner.Sharding{planner.Sharding(j.Sharding)}
		}
		if rng.IntN(4) == 0 {
			o.LeastStages = 2
		}
		o.Sequence, o.Unsequenced = seed%5 < 2, seed%5 == 2
		if seed%10 == 2 { // with experts, of which Megatron-LM then trains none
			o.Tensors = []int{2}
		}
		job, err := planner.NewJob(j.Profile, j.Topology, o)
		if err != nil {
			continue // a layer is larger than every device
		}
		free, err := job.Search(context.Background(), planner.SearchOptions{Unrefined: true})
		if err != nil {
			continue
		}
		for _, trainer := range []string{"megatron", "deepspeed", "torch"} {
			r, err := job.Search(context.Background(), planner.SearchOptions{Unrefined: true, For: trainer, Schedule: planner.ScheduleAny})
			if err != nil {
				if !errors.Is(err, planner.ErrInfeasible) {
					t.Fatal(err)
				}
				continue
			}
			found[trainer]++
			found[r.Plan.Schedule]++
			if r.Plan.Context > 1 {
				found["context"]++
			}
			if r.Plan.Experts > 1 {
				found["experts"]++
			}
			if r.Plan.Predicted.Sequence {
				found["sequence"]++
			}
			for _, p := range append(r.Others, r.Plan) {
				if trainer == "megatron" && p.Stages[0].Groups[0].Tensor > 1 && p.Predicted.Sequence == o.Unsequenced {
					t.Errorf("seed %d: megatron sequence-parallel: %v", seed, p.Predicted.Sequence)
				}
				text, err := accepted(trainer, p)
				if trainer == "deepspeed" {
					if _, warnings := write(t, trainer, p, Options{}); slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, "predict with") }) {
						t.Errorf("seed %d: %v", seed, warnings)
					}
				}
				if err != nil {
					t.Errorf("seed %d, %s: %v\n%s", seed, trainer, err, text)
				}
			}
			// Megatron-LM is sequence-parallel where nothing is said, and the search over all plans is not: it bounds only the same.
			alike := trainer != "megatron" || o.Sequence || o.Unsequenced
			if alike && r.Best < free.Best*(1-1e-9) || r.Bound > r.Best*(1+1e-9) {
				t.Errorf("seed %d, %s: best %v, bound %v; best of all %v", seed, trainer, r.Best, r.Bound, free.Best)
			}
			for _, p := range append(free.Others, free.Plan) {
				if _, err := Write(io.Discard, trainer, p, Options{}); err != nil || partly(p) || p.Schedule != "" {
					continue
				}
				compared++
				as, err := job.For(trainer)
				if err != nil {
					t.Fatal(err)
				}
				predicted, err := as.Predict(p)
				if err != nil {
					t.Fatal(err)
				}
				if s := predicted.Seconds / float64(p.GlobalBatch); s < r.Best*(1-1e-9) {
					t.Errorf("seed %d: %s runs a plan of %v s a sample; its search found %v", seed, trainer, s, r.Best)
				}
			}
		}
	}
	for what, least := range map[string]int{"megatron": 40, "deepspeed": 40, "torch": 40, "interleaved": 5, "zb-h1": 5, "context": 10, "experts": 5, "sequence": 5} {
		if found[what] < least*jobs/120 {
			t.Errorf("%d jobs have %d plans with %s: the test sees too little", jobs, found[what], what)
		}
	}
	if compared < 100*jobs/120 {
		t.Errorf("found %v, compared %d: the test sees too little", found, compared)
	}
}

// partly says whether some layers of a stage are recomputed and others not: Megatron-LM can run it, its search does not look
// there.
func partly(p *planner.Plan) bool {
	for _, s := range p.Stages {
		for _, y := range s.Strategies {
			if first := p.Stages[0].Strategies[0]; y.Checkpoint != first.Checkpoint || y.Selective != first.Selective {
				return true
			}
		}
	}
	return false
}

// A pipeline of DeepSpeed recomputes whole layers.
func TestSelectiveForDeepSpeed(t *testing.T) {
	j, err := invented.New(rand.New(rand.NewPCG(3, 5)), 6)
	if err != nil {
		t.Fatal(err)
	}
	j.Selective()
	for least, want := range map[int]string{1: "", 2: "a pipeline of deepspeed recomputes whole layers, but checkpoint selective and at least 2 stages"} {
		job, err := planner.NewJob(j.Profile, j.Topology.WithMemory(100), planner.Options{GlobalBatches: []int{j.GlobalBatch}, Checkpoint: "selective", LeastStages: least})
		if err != nil {
			t.Fatal(err)
		}
		r, err := job.Search(context.Background(), planner.SearchOptions{For: "deepspeed"})
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) || want == "" && (err != nil || len(r.Plan.Stages) != 1 || !r.Plan.Stages[0].Strategies[0].Selective) {
			t.Errorf("at least %d stages: %+v, %v", least, r, err)
		}
	}
}

func TestUnknownTrainer(t *testing.T) {
	profile, topology, err := planner.Example()
	if err != nil {
		t.Fatal(err)
	}
	job, err := planner.NewJob(profile, topology, planner.Options{GlobalBatches: []int{64}, LeastStages: 2, Shardings: []planner.Sharding{planner.Full}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := job.Search(context.Background(), planner.SearchOptions{For: "megatrn"}); !errors.Is(err, planner.ErrTrainer) {
		t.Error(err)
	}
	if _, err := job.Search(context.Background(), planner.SearchOptions{For: "megatron"}); !errors.Is(err, planner.ErrInfeasible) {
		t.Error(err)
	}
}
