package pipeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"testing"
)

func TestTrace(t *testing.T) {
	ops, _, err := simulate1F1B([]Timing{{Forward: 1, Backward: 2, SendNext: 0.25}, {Forward: 1.5, Backward: 2}}, 3)
	if err != nil {
		t.Fatal(err)
	}
	line := NewTimeline(ops, []Ending{{0.5, 0.125}, {0, 0.25}})
	line.Stages = []string{"first", "second"}
	// Twice three passes a stage, three transfers each way, three endings.
	if len(line.Spans) != 12+6+3 {
		t.Fatalf("%d spans", len(line.Spans))
	}
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

// Where transfers are beside computing and slower than it, each is drawn while it is on its link, not from when it waits for it: no two on
// one thread overlap.
func TestQueuedTransfers(t *testing.T) {
	const send = 4.
	stages := []Timing{{1, 2, send, 0.5}, {1, 2, send, 0.5}, {1, 2, send, 0.5}, {1, 2, 0, 0.5}}
	for name, orders := range map[string]func() ([][]Operation, error){
		"interleaved": func() ([][]Operation, error) { return Orders(Interleaved, 2, 2, 6) },
		"zb-h1":       func() ([][]Operation, error) { return Orders(ZeroBubble, 4, 1, 6) },
		"h-1f1b":      func() ([][]Operation, error) { return OrdersAhead([]int{6, 5, 3, 1}, 6) },
	} {
		order, err := orders()
		if err != nil {
			t.Fatal(err)
		}
		ops, _, err := Simulate(stages, order, true)
		if err != nil {
			t.Fatal(err)
		}
		line := NewTimeline(ops, make([]Ending, len(ops)))
		type thread struct{ stage, lane int }
		ends, sent := map[thread]float64{}, 0
		for _, s := range line.Spans {
			on := thread{s.Stage, laneOf(s)}
			if on.lane == 0 {
				continue
			}
			if s.Begin < ends[on] || math.Abs(s.End-s.Begin-send) > 1e-9 {
				t.Errorf("%s: %+v; the one before ends at %v s, each takes %v s", name, s, ends[on], send)
			}
			if on.lane >= len(line.lanes()) {
				t.Errorf("%s: thread %d has no name", name, on.lane)
			}
			ends[on] = s.End
			sent++
		}
		if sent != 2*3*6 {
			t.Errorf("%s: %d transfers", name, sent)
		}
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("full") }
