package pipeline

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// Activity is what a stage, or its link, does.
type Activity string

// Activities. Forward and Backward include gathering, conversion and recomputation. Activations go to the next stage,
// Gradients to the previous one. Weights is the separate pass of ZB-H1 for the gradients of the weights. Synchronise and
// Optimize happen once, after the last backward pass.
const (
	Forward     Activity = "forward"
	Backward    Activity = "backward"
	Activations Activity = "send activations"
	Gradients   Activity = "send gradients"
	Weights     Activity = "weights' gradients"
	Synchronise Activity = "synchronise gradients"
	Optimize    Activity = "update weights"
)

// laneOf is the thread of a trace that shows an activity. Activities that run at the same time have different threads.
func laneOf(s Span) int {
	switch s.Activity {
	case Activations:
		return 1 + 2*s.Chunk
	case Gradients:
		return 2 + 2*s.Chunk
	}
	return 0
}

// lanes are the names of a stage's threads.
func (t *Timeline) lanes() []string {
	all := []string{"compute"}
	for chunk := range t.Chunks {
		of := ""
		if t.Chunks > 1 {
			of = fmt.Sprintf(", chunk %d", chunk)
		}
		all = append(all, "link to the next stage"+of, "link to the stage before"+of)
	}
	return all
}

// Span is one activity of a stage, in seconds from the start of the iteration.
type Span struct {
	Stage      int      `json:"stage"`           // the sender of a transfer
	Chunk      int      `json:"chunk,omitempty"` // of the stage, if the schedule is interleaved
	Activity   Activity `json:"activity"`
	MicroBatch int      `json:"micro_batch"` // -1: of the whole iteration
	Begin      float64  `json:"begin"`
	End        float64  `json:"end"`
}

// Timeline is one iteration of a plan, as the event simulation runs it.
type Timeline struct {
	Model   string   `json:"model"`
	Seconds float64  `json:"seconds"` // of the iteration
	Stages  []string `json:"stages"`  // layers and devices of each
	Chunks  int      `json:"chunks"`  // of each stage: 1, or more if the schedule is interleaved
	Spans   []Span   `json:"spans"`   // stage by stage, activity by activity, by time
}

// Ending is what a stage does after its last pass, in seconds.
type Ending struct{ Synchronise, Optimize float64 }

// NewTimeline lays out simulated operations, with the ending of each stage. Seconds is the end of the last activity.
func NewTimeline(ops [][]Operation, endings []Ending) *Timeline {
	t := &Timeline{Chunks: 1}
	for i := range ops {
		for _, o := range ops[i] {
			t.Chunks = max(t.Chunks, 1+o.Stage/len(ops))
		}
		t.passes(i, Forward, ops)
		t.passes(i, Backward, ops)
		t.passes(i, Weights, ops)
		t.transfers(i, Activations, ops, false)
		t.transfers(i, Gradients, ops, true)
		at := ops[i][len(ops[i])-1].End
		for _, last := range []Span{{Activity: Synchronise, End: endings[i].Synchronise}, {Activity: Optimize, End: endings[i].Optimize}} {
			if last.End > 0 {
				t.Spans = append(t.Spans, Span{i, 0, last.Activity, -1, at, at + last.End})
				at += last.End
			}
		}
		t.Seconds = max(t.Seconds, at)
	}
	return t
}

func (t *Timeline) passes(stage int, a Activity, ops [][]Operation) {
	for _, o := range ops[stage] {
		if o.Backward == (a != Forward) && o.Weights == (a == Weights) {
			t.Spans = append(t.Spans, Span{stage, o.Stage / len(ops), a, o.MicroBatch, o.Start, o.End})
		}
	}
}

// transfers adds what a stage sends after its passes. A chunk sends one output at a time.
func (t *Timeline) transfers(stage int, a Activity, ops [][]Operation, backward bool) {
	free := make([]float64, t.Chunks)
	for _, o := range ops[stage] {
		if o.Backward == backward && o.Free > o.End {
			chunk := o.Stage / len(ops)
			t.Spans = append(t.Spans, Span{stage, chunk, a, o.MicroBatch, max(o.End, free[chunk]), o.Free})
			free[chunk] = o.Free
		}
	}
}

// event is an event of a Chrome trace (Trace Event Format, Google): complete events "X" in microseconds, metadata "M".
type event struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	Begin float64        `json:"ts"`
	Long  float64        `json:"dur,omitempty"`
	Stage int            `json:"pid"`
	Lane  int            `json:"tid"`
	Args  map[string]any `json:"args,omitempty"`
}

// WriteTrace writes the timeline as a trace for chrome://tracing and Perfetto. Each stage is a process, with a thread for its
// passes and, for each chunk, a thread for each direction of its links.
func (t *Timeline) WriteTrace(w io.Writer) error {
	b := bufio.NewWriter(w)
	separator := "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
	var failed error
	write := func(e event) {
		line, err := json.Marshal(e)
		if err != nil && failed == nil {
			failed = fmt.Errorf("pipeline: timeline: %w", err)
		}
		_, _ = b.WriteString(separator) // Flush reports
		_, _ = b.Write(line)
		separator = ",\n"
	}
	for i, s := range t.Stages {
		write(event{Name: "process_name", Phase: "M", Stage: i, Args: map[string]any{"name": fmt.Sprintf("stage %d: %s", i, s)}})
		write(event{Name: "process_sort_index", Phase: "M", Stage: i, Args: map[string]any{"sort_index": i}})
		for lane, name := range t.lanes() {
			write(event{Name: "thread_name", Phase: "M", Stage: i, Lane: lane, Args: map[string]any{"name": name}})
		}
	}
	for _, s := range t.Spans {
		e := event{Name: string(s.Activity), Phase: "X", Begin: s.Begin * 1e6, Long: (s.End - s.Begin) * 1e6, Stage: s.Stage, Lane: laneOf(s)}
		if s.MicroBatch >= 0 {
			e.Name = fmt.Sprintf("%s %d", s.Activity, s.MicroBatch)
			e.Args = map[string]any{"micro_batch": s.MicroBatch}
		}
		write(e)
	}
	_, _ = b.WriteString("\n]}\n")
	if err := b.Flush(); err != nil {
		return err
	}
	return failed
}
