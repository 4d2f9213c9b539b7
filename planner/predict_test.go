package planner

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"evenkeel/planner/costmodel"
	"evenkeel/planner/internal/invented"
	"evenkeel/planner/pipeline"
)

// roomy is an invented job with so much memory that it has plans of at least so many stages; nil if it has none.
func roomy(t testing.TB, seed uint64, stages int, memory float64) *Job {
	t.Helper()
	j, err := invented.New(rand.New(rand.NewPCG(seed, 3)), 4)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{GlobalBatches: []int{j.GlobalBatch}, States: costmodel.States{Weights: 2, Gradients: 2, Optimizer: 4}, Checkpoint: j.Checkpoint}
	if j.Sharding != "" {
		o.Shardings = []Sharding{Sharding(j.Sharding)}
	}
	if _, err := NewJob(j.Profile, j.Topology, o); errors.Is(err, ErrInfeasible) {
		return nil
	}
	o.LeastStages = min(stages, len(j.Profile.Layers))
	job, err := NewJob(j.Profile, j.Topology.WithMemory(memory), o)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// Every pass begins once its input has come over the link and the stage is free, and no sooner or later; lanes carry one
// thing at a time; the length is what was predicted.
func TestTimeline(t *testing.T) {
	plans, transfers := 0, 0
	for seed := range uint64(20) {
		job := roomy(t, seed, 2, 1000)
		if job == nil {
			continue
		}
		r, err := job.Search(t.Context(), SearchOptions{})
		if err != nil {
			continue
		}
		for _, p := range append(r.Others[:min(3, len(r.Others))], r.Plan) {
			plans++
			line, err := job.Timeline(p)
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(line.Seconds/p.Predicted.Simulated-1) > 1e-12 {
				t.Fatalf("seed %d: %v s, predicted %v", seed, line.Seconds, p.Predicted.Simulated)
			}
			transfers += follows(t, p, line)
		}
	}
	if plans < 20 || transfers < 100 {
		t.Fatalf("only %d plans, %d transfers", plans, transfers)
	}
}

func follows(t *testing.T, p *Plan, line *pipeline.Timeline) (transfers int) {
	t.Helper()
	type key struct {
		stage, micro int
		a            pipeline.Activity
	}
	at := map[key]pipeline.Span{}
	lane := map[string]float64{}
	for _, s := range line.Spans {
		if s.Begin < 0 || s.End < s.Begin || s.End > line.Seconds {
			t.Fatalf("%+v in %v s", s, line.Seconds)
		}
		at[key{s.Stage, s.MicroBatch, s.Activity}] = s
		if s.Activity == pipeline.Activations || s.Activity == pipeline.Gradients {
			transfers++
			k := fmt.Sprint(s.Stage, s.Activity)
			if s.Begin < lane[k] {
				t.Fatalf("%+v begins while the link is busy until %v", s, lane[k])
			}
			lane[k] = s.End
		}
	}
	orders, err := pipeline.Orders(pipeline.OneForwardOneBackward, len(p.Stages), 1, p.MicroBatches())
	if err != nil {
		t.Fatal(err)
	}
	for i := range p.Stages {
		free := 0.0
		for _, o := range orders[i] {
			a, from, sent, pass := pipeline.Forward, i-1, pipeline.Activations, pipeline.Forward
			if o.Backward {
				a, from, sent, pass = pipeline.Backward, i+1, pipeline.Gradients, pipeline.Backward
			}
			s, ok := at[key{i, o.MicroBatch, a}]
			if !ok {
				t.Fatalf("stage %d has no %s of %d", i, a, o.MicroBatch)
			}
			begin := free
			if from >= 0 && from < len(p.Stages) {
				// Computed, then received, as long as it is sent.
				begin = max(begin, at[key{from, o.MicroBatch, pass}].End)
				if input, sends := at[key{from, o.MicroBatch, sent}]; sends {
					begin += input.End - input.Begin
				}
			}
			if math.Abs(s.Begin-begin) > 1e-12*line.Seconds {
				t.Fatalf("stage %d, %s of %d begins at %v, can at %v", i, a, o.MicroBatch, s.Begin, begin)
			}
			free = s.End
			if sends, ok := at[key{i, o.MicroBatch, sent}]; ok {
				free = sends.End
			}
		}
	}
	return transfers
}

// Predict and Timeline refuse the same plans, but Timeline draws one that is too large for its devices.
func TestTimelineOfBadPlans(t *testing.T) {
	var job *Job
	seed := uint64(0)
	for ; job == nil; seed++ {
		job = roomy(t, seed, 1, 1000)
	}
	r, err := job.Search(t.Context(), SearchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := r.Plan
	small := *job
	small.model = job.model.WithMemory(1e-12)
	predicted, err := small.Predict(p)
	if !errors.Is(err, ErrInfeasible) || !cmp.Equal(predicted.Simulated, p.Predicted.Simulated) {
		t.Errorf("%v, %v", predicted, err)
	}
	if _, err := small.Timeline(p); err != nil {
		t.Error(err)
	}
	other := *p
	other.Stages = append([]Stage{}, p.Stages...)
	other.Stages[0].To--
	if _, err := job.Timeline(&other); !errors.Is(err, ErrPlan) {
		t.Error(err)
	}
}
