package figure

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"evenkeel/cluster/profile"
	"evenkeel/internal/chart"
	"evenkeel/planner/pipeline"
)

func TestProfile(t *testing.T) {
	all := profile.Embedded().Profiles()
	onePoint, err := profile.New("device", "workload", []profile.Point{{MicroBatch: 5, Seconds: 1, PeakBytes: 100}}, "test")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "f.svg")
	for _, p := range append(slices.Clone(all[:3]), onePoint) {
		if err := Profile(p, path); err != nil {
			t.Fatal(err)
		}
	}
	drawn, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(drawn, []byte("<svg ")) {
		t.Fatalf("%.80q", drawn)
	}
	if err := Profile(new(profile.Profile), path); err == nil {
		t.Error("a profile without points is drawn")
	}
}

// Every span is one box, in the row of its stage.
func TestTimeline(t *testing.T) {
	line := &pipeline.Timeline{Model: "m", Seconds: 4, Stages: []string{"layer 0 on 1 a", "layer 1 on 1 b"}, Spans: []pipeline.Span{
		{Stage: 0, Activity: pipeline.Forward, Begin: 0, End: 1},
		{Stage: 0, Activity: pipeline.Activations, Begin: 1, End: 1.5},
		{Stage: 1, Activity: pipeline.Forward, Begin: 1.5, End: 2},
		{Stage: 1, Activity: pipeline.Backward, Begin: 2, End: 3},
		{Stage: 1, Activity: pipeline.Optimize, MicroBatch: -1, Begin: 3, End: 4},
	}}
	f, err := Timeline(line)
	if err != nil {
		t.Fatal(err)
	}
	boxes := 0
	for _, s := range f.Panels[0].Series {
		for i, begin := range s.X {
			boxes++
			row := (s.Low[i] + s.High[i]) / 2
			if !slices.ContainsFunc(line.Spans, func(p pipeline.Span) bool {
				return string(p.Activity) == s.Name && p.Begin == begin && p.End == s.Y[i] && row > float64(p.Stage)-0.5 && row < float64(p.Stage)+0.5
			}) {
				t.Errorf("%s from %v to %v around row %v is no span", s.Name, begin, s.Y[i], row)
			}
		}
	}
	if boxes != len(line.Spans) || f.Title != `One iteration of the model "m"` {
		t.Errorf("%d boxes for %d spans, title %q", boxes, len(line.Spans), f.Title)
	}
	if err := f.Save(filepath.Join(t.TempDir(), "timeline.svg")); err != nil {
		t.Fatal(err)
	}
	line.Spans = make([]pipeline.Span, maxBoxes+1)
	if _, err := Timeline(line); !errors.Is(err, chart.ErrData) {
		t.Error(err)
	}
}
