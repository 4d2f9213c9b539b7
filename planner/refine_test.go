package planner

import (
	"context"
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster/clusterfile"
	"evenkeel/planner/bound"
	"evenkeel/planner/costmodel"
	"evenkeel/planner/internal/invented"
	"evenkeel/planner/layerprofile"
)

// handJob has layers of so many seconds forward and back for a sample on device a, at degree 1 and a little more than half at 2;
// b takes twice as long. Nothing but the times counts.
func handJob(t *testing.T, nodes string, batch int, o Options, seconds ...float64) *Job {
	t.Helper()
	top, err := clusterfile.ReadTopology(strings.NewReader(nodes), "hand", nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &layerprofile.Profile{Model: "hand"}
	for _, s := range seconds {
		l := layerprofile.Layer{Parameters: 1, Output: 1}
		for d, slow := range map[string]float64{"a": 1, "b": 2} {
			for _, n := range []int{1, 16} {
				l.Runs = append(l.Runs, layerprofile.Run{Device: d, Tensor: 1, MicroBatch: n, Forward: s * slow * float64(n) / 4, Backward: 3 * s * slow * float64(n) / 4},
					layerprofile.Run{Device: d, Tensor: 2, MicroBatch: n, Forward: 0.6 * s * slow * float64(n) / 4, Backward: 1.8 * s * slow * float64(n) / 4})
			}
		}
		p.Layers = append(p.Layers, l)
	}
	if err := p.Finish("hand"); err != nil {
		t.Fatal(err)
	}
	o.GlobalBatches = []int{batch}
	j, err := NewJob(p, top, o)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// One device of a, then two of b that share the samples, is beyond the space of the dynamic programming: by hand. Layers of 1 s
// and 1 s a sample, 8 samples in 4 micro-batches of 2. a takes 2 s for layer 0; each b takes one sample, 2 s for layer 1: 5 steps
// of 2 s are 10 s. Stages of one replica have a step of 4 s on b, or all on a: 16 s at best with all three working.
func TestRefineUnequalReplicas(t *testing.T) {
	o := Options{Checkpoint: "never", Shardings: []Sharding{Replicated}, LeastStages: 2}
	j := handJob(t, "nodes:\n  - {device: a, count: 1, memory: 1GiB}\n  - {device: b, count: 2, memory: 1GiB}\n", 8, o, 1, 1)
	r, err := j.Search(context.Background(), SearchOptions{Bound: true})
	if err != nil {
		t.Fatal(err)
	}
	unequal := false
	for _, s := range r.Plan.Stages {
		replicas := 0
		for _, g := range s.Groups {
			replicas += len(g.MicroBatches)
		}
		unequal = unequal || replicas == 2
	}
	// With micro-batches of 2 the formula is (2 + 2) + 3 x 2; the simulation has one forward pass, half a second, in front.
	if got := r.Plan.Predicted; !unequal || got.Seconds > 10+1e-9 {
		t.Errorf("%v s, simulated %v: %+v", got.Seconds, got.Simulated, r.Plan.Stages)
	}
	// Two b are worth one a: 16 device-seconds of a over devices that are worth 2.
	if want := 16.0 / 2; math.Abs(bound.Work(j.model, 8)-want) > 1e-6 || r.LowerBound*8 < want-1e-6 {
		t.Errorf("bound %v, by work %v, by hand %v", r.LowerBound*8, bound.Work(j.model, 8), want)
	}
}

// Plans that plan check accepts take no less than the bound, by formula and simulated: random ones, most of them bad, those found, and
// edits of these. The bound is also computed as if the best plan known took several times as long, so that it must say of the
// plans found themselves what it can.
func TestNoPlanBelowTheBound(t *testing.T) {
	plans, least := 0, math.Inf(1)
	for seed := range uint64(*boundJobs) {
		rng := rand.New(rand.NewPCG(seed, 21))
		j := inventedJob(t, rng, 7, 0)
		if j == nil {
			continue
		}
		if seed%2 == 1 {
			var err error
			if j, err = j.Calibrated(costmodel.Calibration{Compute: map[string]float64{"fast": 0.5, "slow": 0.7}, Links: 0.2}); err != nil {
				t.Fatal(err)
			}
		}
		batch := j.options.GlobalBatches[0]
		if last := &j.Profile.Layers[len(j.Profile.Layers)-1]; seed%3 > 0 { // tied weights, attention recomputed apart
			(&invented.Job{Profile: j.Profile}).Selective()
			if seed%3 == 2 {
				last.Tied = min(last.Parameters, j.Profile.Layers[0].Parameters)
			}
			var err error
			if j, err = NewJob(j.Profile, j.topology, j.options); err != nil {
				t.Fatal(err)
			}
		}
		if seed%5 == 3 { // gradients exchanged late
			var err error
			if j, err = j.For("deepspeed"); err != nil {
				t.Fatal(err)
			}
		}
		r, err := j.Search(context.Background(), SearchOptions{})
		if err != nil {
			continue
		}
		best := r.Plan.Predicted.Simulated
		limit := 0.0
		for _, times := range []float64{1, 1.5, 4} {
			limit = max(limit, bound.Lower(context.Background(), j.model, batch, times*best))
		}
		least = min(least, best/limit)
		for i := range 700 {
			p := randomPlan(rng, j, batch)
			if i%2 == 0 {
				p = edited(rng, j, r.Plan)
			}
			got, err := j.Predict(p)
			if err != nil || !j.allows(p) {
				continue
			}
			plans++
			if x := min(got.Seconds, got.Simulated) / limit; x < least {
				least = x
				if x < 1-1e-9 {
					t.Errorf("seed %d: %v of the bound: %+v", seed, x, p)
				}
			}
		}
		if least < 1-1e-9 {
			t.Fatalf("seed %d: %v of the bound", seed, least)
		}
	}
	t.Logf("%d plans of %d jobs, none below the bound; the nearest at %.4f of it", plans, *boundJobs, least)
	if plans < 90**boundJobs {
		t.Errorf("only %d plans", plans)
	}
	if least > 1.02 {
		t.Errorf("no plan comes nearer than %v: the bound is not tried", least)
	}
}

var boundJobs = flag.Int("bound-jobs", 20, "random jobs whose bound is tried")

// allows says whether a plan keeps to the options of the job.
func (j *Job) allows(p *Plan) bool {
	o := j.model.Choices()
	for _, s := range p.Stages {
		for _, y := range s.Strategies {
			if !slices.Contains(o.Shardings, y.Sharding) || o.Checkpoint == "never" && (y.Checkpoint || y.Selective) || o.Checkpoint == "always" && !y.Checkpoint {
				return false
			}
		}
	}
	return true
}

// Nothing that a search finds can be improved much by edits at random, written apart from those of the search.
func TestEditsDoNotHelp(t *testing.T) {
	worst, jobs := 1.0, 0
	for seed := range uint64(18) {
		rng := rand.New(rand.NewPCG(seed, 22))
		j := inventedJob(t, rng, 10, 0)
		if j == nil {
			continue
		}
		r, err := j.Search(context.Background(), SearchOptions{})
		if err != nil {
			continue
		}
		jobs++
		best := r.Plan
		for range 1500 {
			p := edited(rng, j, best)
			if got, err := j.Predict(p); err == nil && got.Simulated < best.Predicted.Simulated {
				p.Predicted, best = got, p
			}
		}
		if x := r.Plan.Predicted.Simulated / best.Predicted.Simulated; x > worst {
			worst = x
			t.Logf("seed %d: %v s found, %v s by edits", seed, r.Plan.Predicted.Simulated, best.Predicted.Simulated)
		}
		covered(t, j, r.Plan)
	}
	if jobs < 9 || worst > 1.005 {
		t.Errorf("%d jobs; edits make a plan %v times as quick", jobs, worst)
	}
}

// covered checks that every device of the cluster has work or is called unused.
func covered(t *testing.T, j *Job, p *Plan) {
	t.Helper()
	left := map[string]int{}
	for i, k := range j.classes {
		left[j.devices[i]] = k.Count
	}
	for _, s := range p.Stages {
		for _, g := range s.Groups {
			left[g.Device] -= g.Count
		}
	}
	for _, d := range p.Unused {
		left[d.Device] -= d.Count
	}
	for d, n := range left {
		if n != 0 {
			t.Errorf("%d devices of %s are neither used nor unused", n, d)
		}
	}
	if err := p.Validate(len(j.Profile.Layers)); err != nil {
		t.Error(err)
	}
}

func inventedJob(t *testing.T, rng *rand.Rand, layers, stages int) *Job {
	t.Helper()
	iv, err := invented.New(rng, layers)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{GlobalBatches: []int{iv.GlobalBatch}, Checkpoint: iv.Checkpoint, MostStages: stages, States: costmodel.States{Weights: 2, Gradients: 2, Optimizer: 4}}
	if iv.Sharding != "" {
		o.Shardings = []Sharding{Sharding(iv.Sharding)}
	}
	j, err := NewJob(iv.Profile, iv.Topology, o)
	if err != nil {
		return nil // a layer is larger than every device
	}
	return j
}

// Without a choice of its own there is nothing to refine.
func TestRefineKeepsToTheOptions(t *testing.T) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 23))
		j := inventedJob(t, rng, 6, 2)
		if j == nil {
			continue
		}
		o := j.options
		r, err := j.Search(context.Background(), SearchOptions{})
		if err != nil {
			continue
		}
		for _, p := range append(r.Others, r.Plan) {
			if len(p.Stages) > 2 {
				t.Errorf("seed %d: %d stages", seed, len(p.Stages))
			}
			for _, s := range p.Stages {
				for _, y := range s.Strategies {
					if len(o.Shardings) > 0 && !slices.Contains(o.Shardings, y.Sharding) || o.Checkpoint == "never" && y.Checkpoint || o.Checkpoint == "always" && !y.Checkpoint {
						t.Errorf("seed %d: %+v under %+v", seed, y, o)
					}
				}
			}
		}
	}
}
