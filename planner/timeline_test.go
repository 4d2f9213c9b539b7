package planner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// roomy is an invented job with so much memory that it has plans.
func roomy(t testing.TB, seed uint64) *Job {
	t.Helper()
	job, err := invented(rand.New(rand.NewPCG(seed, 3)), 4)
	if err == nil {
		job, err = NewJob(job.Profile, job.Topology.WithMemory(1000), job.Options)
	}
	if errors.Is(err, ErrInfeasible) {
		return nil
	}
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
		job := roomy(t, seed)
		if job == nil {
			continue
		}
		job.Options.LeastStages = min(2, len(job.Profile.Layers))
		r, err := job.Search(t.Context(), nil)
		if err != nil {
			continue
		}
		for _, p := range append(r.Others[:min(3, len(r.Others))], r.Plan) {
			plans++
			line, err := job.Timeline(p)
			if err != nil {
				t.Fatal(err)
			}
			if line.Seconds != p.Predicted.Simulated {
				t.Fatalf("seed %d: %v s, predicted %v", seed, line.Seconds, p.Predicted.Simulated)
			}
			transfers += follows(t, p, line)
		}
	}
	if plans < 20 || transfers < 100 {
		t.Fatalf("only %d plans, %d transfers", plans, transfers)
	}
}

func follows(t *testing.T, p *Plan, line *Timeline) (transfers int) {
	t.Helper()
	type key struct {
		stage, micro int
		a            Activity
	}
	at := map[key]Span{}
	lane := map[string]float64{}
	for _, s := range line.Spans {
		if s.Begin < 0 || s.End < s.Begin || s.End > line.Seconds {
			t.Fatalf("%+v in %v s", s, line.Seconds)
		}
		at[key{s.Stage, s.MicroBatch, s.Activity}] = s
		if s.Activity == Activations || s.Activity == Gradients {
			transfers++
			k := fmt.Sprint(s.Stage, s.Activity)
			if s.Begin < lane[k] {
				t.Fatalf("%+v begins while the link is busy until %v", s, lane[k])
			}
			lane[k] = s.End
		}
	}
	for i := range p.Stages {
		free := 0.0
		for n := range 2 * p.MicroBatches() {
			o := operation(i, len(p.Stages), p.MicroBatches(), n, OneForwardOneBackward)
			a, from, sent, pass := Forward, i-1, Activations, Forward
			if o.Backward {
				a, from, sent, pass = Backward, i+1, Gradients, Backward
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

// timeline of the first seed with two stages.
func someTimeline(t *testing.T) *Timeline {
	t.Helper()
	for seed := range uint64(20) {
		job := roomy(t, seed)
		if job == nil {
			continue
		}
		job.Options.LeastStages = 2
		if r, err := job.Search(t.Context(), nil); err == nil {
			line, err := job.Timeline(r.Plan)
			if err != nil {
				t.Fatal(err)
			}
			return line
		}
	}
	t.Fatal("no plan")
	return nil
}

func TestTrace(t *testing.T) {
	line := someTimeline(t)
	var b bytes.Buffer
	if err := line.WriteTrace(&b); err != nil {
		t.Fatal(err)
	}
	var trace struct{ TraceEvents []event }
	if err := json.Unmarshal(b.Bytes(), &trace); err != nil {
		t.Fatal(err)
	}
	type lane struct{ stage, lane int }
	named, spans, busy, last := 0, 0, map[lane]float64{}, 0.0
	for _, e := range trace.TraceEvents {
		if e.Phase == "M" {
			named++
			continue
		}
		spans++
		last = max(last, e.Begin+e.Long)
		busy[lane{e.Stage, e.Lane}] += e.Long
	}
	if named != 5*len(line.Stages) || spans != len(line.Spans) || math.Abs(last-line.Seconds*1e6) > 1e-6*last {
		t.Fatalf("%d names, %d spans, %v µs of %v s", named, spans, last, line.Seconds)
	}
	for l, µs := range busy {
		if µs > line.Seconds*1e6*(1+1e-9) {
			t.Fatalf("stage %d, lane %d: busy for %v µs of %v s", l.stage, l.lane, µs, line.Seconds)
		}
	}
	if err := line.WriteTrace(failing{}); err == nil {
		t.Error("no error of the writer")
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("full") }

// Predict and Timeline refuse the same plans, but Timeline draws one that is too large for its devices.
func TestTimelineOfBadPlans(t *testing.T) {
	var job *Job
	for seed := uint64(0); job == nil; seed++ {
		job = roomy(t, seed)
	}
	r, err := job.Search(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	p := r.Plan
	small := *job
	small.Topology = job.Topology.WithMemory(1e-9)
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
