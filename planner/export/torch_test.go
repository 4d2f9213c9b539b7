package export

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"evenkeel/internal/pytorch"
	"evenkeel/planner"
)

// ask prints what the module says of every rank, stage and layer.
const ask = `
import json, sys, torch
sys.path.insert(0, ".")
import plan
layers = range(plan.STAGES[-1]["to"])
from torch.testing._internal.distributed.fake_pg import FakeStore  # as many ranks as the plan has, in one process
torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=plan.WORLD_SIZE)
meshes = [[s, t, [m.mesh.tolist() for m in of], list(of[0].mesh_dim_names)] for (s, t), of in plan.device_meshes("cpu").items()]
want = [[s, y["tensor"], plan.mesh_of(s, y["from"]), ["dp", "cp", "tp"] if plan.CONTEXT > 1 else ["dp", "tp"]] for s, st in enumerate(plan.STAGES) for y in {y["tensor"]: y for y in reversed(st["strategies"])}.values()]
errors = 0
for f in (lambda: plan.check(plan.WORLD_SIZE + 1), lambda: plan.place(-1), lambda: plan.place(plan.WORLD_SIZE), lambda: plan.strategy_of(len(layers))):
    try:
        f()
    except ValueError:
        errors += 1
plan.check(plan.WORLD_SIZE)
print(json.dumps({
    "model": plan.MODEL, "micro_batches": plan.MICRO_BATCHES, "world": plan.WORLD_SIZE, "meshes": sorted(meshes) == sorted(want) != [], "errors": errors,
    "places": [plan.place(r) for r in range(plan.WORLD_SIZE)],
    "samples": [[list(plan.samples_of(r, l)) for l in plan.layers_of(plan.stage_of(r))] for r in range(plan.WORLD_SIZE)],
    "own": [plan.micro_batch_of(r) for r in range(plan.WORLD_SIZE)],
    "weights": [plan.loss_weight(r) for r in range(plan.WORLD_SIZE)],
    "stages": [[list(plan.ranks_of(s)), list(plan.layers_of(s))] for s in range(len(plan.STAGES))],
    "strategies": [plan.strategy_of(l) for l in layers],
    "mesh": [[[sum(row, []) if plan.CONTEXT > 1 else row for row in mesh] for mesh in plan.mesh_of(plan.stage_of_layer(l), l)] for l in layers],
    "experts": [plan.expert_rank_of(r) for r in range(plan.WORLD_SIZE)] if plan.EXPERTS > 1 else [],
}))
`

type answers struct {
	Model        string
	MicroBatches int `json:"micro_batches"`
	World        int
	Meshes       bool // of PyTorch are those of mesh_of
	Errors       int
	Places       [][]any
	Samples      [][][]int
	Own          []int
	Weights      []float64
	Stages       [][2][]int
	Strategies   [][]any
	Mesh         [][][][]int // ranks of a replica
	Experts      []int
}

func TestTorchModule(t *testing.T) {
	python := pytorch.Python(t)
	one := even(1, 2, 2, 2)
	one.Stages[0].Strategies[0].Tensor = 4 // one replica where the group has two
	long, divided := even(2, 4, 2, 2), even(1, 4, 2, 2)
	long.Context, divided.Experts = 2, 2
	for s := range long.Stages {
		g := &long.Stages[s].Groups[0]
		g.First, g.Count = 2*g.First, 2*g.Count
	}
	plans := []*planner.Plan{mixed(), long, one, divided, even(3, 4, 2, 2)}
	if os.Getenv("EVENKEEL_SLOW") == "" {
		plans = plans[:2] // each loads PyTorch
	}
	for _, p := range plans {
		a := consult(t, python, p)
		if a.Model != p.Model || a.MicroBatches != p.MicroBatches() || a.Errors != 4 || !a.Meshes {
			t.Errorf("%+v", a)
		}
		rank := 0
		for s, stage := range p.Stages {
			first, replica := rank, 0
			for g, group := range stage.Groups {
				for d := range group.Count {
					each := group.Tensor * max(1, p.Context)
					want := []any{float64(s), float64(g), group.Device, float64(group.First + d), float64(replica + d/each), float64(d % group.Tensor), float64(d % each / group.Tensor)}
					if !slices.Equal(a.Places[rank], want) {
						t.Errorf("rank %d is at %v, want %v", rank, a.Places[rank], want)
					}
					if want := group.MicroBatches[d/each]; a.Own[rank] != want {
						t.Errorf("rank %d takes %d samples, want %d", rank, a.Own[rank], want)
					}
					if p.Experts > 1 && a.Experts[rank] != (replica+d/each)%p.Experts {
						t.Errorf("rank %d has experts %d", rank, a.Experts[rank])
					}
					rank++
				}
				replica += len(group.MicroBatches)
			}
			if got := a.Stages[s]; got[0][0] != first || len(got[0]) != rank-first || got[1][0] != stage.From || len(got[1]) != stage.To-stage.From {
				t.Errorf("stage %d: ranks and layers %v", s, got)
			}
			for _, y := range stage.Strategies {
				for l := y.From; l < y.To; l++ {
					if want := []any{float64(y.Tensor), string(y.Sharding), y.Checkpoint, y.Selective}; !slices.Equal(a.Strategies[l], want) {
						t.Errorf("layer %d: %v, want %v", l, a.Strategies[l], want)
					}
					once(t, p, &a, l, l-stage.From, first, rank)
				}
			}
		}
		if a.World != rank {
			t.Errorf("%d ranks, want %d", a.World, rank)
		}
	}
}

// once holds a layer to this: its meshes have every rank of the stage once; the ranks of a row take the same samples, and
// the rows every sample of the micro-batch once.
func once(t *testing.T, p *planner.Plan, a *answers, layer, local, first, end int) {
	t.Helper()
	var ranks, samples []int
	for _, mesh := range a.Mesh[layer] {
		for _, row := range mesh {
			ranks = append(ranks, row...)
			samples = append(samples, a.Samples[row[0]][local]...)
			for _, r := range row {
				if !slices.Equal(a.Samples[r][local], a.Samples[row[0]][local]) {
					t.Errorf("layer %d: ranks %d and %d of a replica take other samples", layer, row[0], r)
				}
			}
		}
	}
	for i, r := range ranks {
		if r != first+i {
			t.Errorf("layer %d: ranks %v", layer, ranks)
			break
		}
	}
	if len(ranks) != end-first || len(samples) != p.MicroBatch {
		t.Errorf("layer %d: %d ranks, %d samples", layer, len(ranks), len(samples))
	}
	for i, s := range samples {
		if s != i {
			t.Errorf("layer %d: samples %v", layer, samples)
			break
		}
	}
	weights := 0.0
	seen := map[any]bool{}
	for r := first; r < end; r++ {
		if replica := a.Places[r][4]; !seen[replica] {
			seen[replica] = true
			weights += a.Weights[r]
		}
	}
	if math.Abs(weights-float64(len(seen))) > 1e-9 {
		t.Errorf("weights of %d replicas sum to %v", len(seen), weights)
	}
}

func consult(t *testing.T, python string, p *planner.Plan) answers {
	t.Helper()
	dir := t.TempDir()
	text, _ := write(t, "torch", p, Options{})
	if err := os.WriteFile(filepath.Join(dir, "plan.py"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), python, "-c", ask)
	c.Dir = dir
	c.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var a answers
	if err := json.Unmarshal(out, &a); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return a
}

// A plan by H-1F1B writes its passes as torch.distributed.pipelining reads them.
func TestTorchSchedule(t *testing.T) {
	python := pytorch.Python(t)
	p := even(2, 3, 1, 1)
	p.Schedule, p.Warmup = planner.ScheduleAhead, []int{3, 1}
	text, _ := write(t, "torch", p, Options{})
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "plan.py"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	run := exec.Command(python, "-c", `import sys; sys.path.insert(0, "."); import plan; plan.write_schedule("passes.csv"); print(plan.SCHEDULE, plan.WARMUP)`)
	run.Dir = dir
	out, err := run.CombinedOutput()
	if err != nil || string(out) != "h-1f1b [3, 1]\n" {
		t.Fatalf("%s, %v", out, err)
	}
	passes, err := os.ReadFile(filepath.Join(dir, "passes.csv"))
	if want := "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n"; err != nil || string(passes) != want {
		t.Errorf("%s, %v\nwant %s", passes, err, want)
	}
}
