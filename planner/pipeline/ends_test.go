package pipeline

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Ends are those of the simulation, operation by operation.
func TestEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, m := rapid.IntRange(1, 9).Draw(t, "stages"), rapid.IntRange(1, 80).Draw(t, "micro-batches")
		stages := make([]Timing, p)
		for i := range stages {
			seconds := rapid.Float64Range(0, 3)
			stages[i] = Timing{Forward: seconds.Draw(t, "forward"), Backward: seconds.Draw(t, "backward"), SendNext: rapid.Float64Range(0, 0.5).Draw(t, "send")}
			if i > 0 && rapid.Bool().Draw(t, "as before") {
				stages[i] = stages[i-1]
			}
		}
		ops, _, err := simulate1F1B(stages, m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Ends([]float64{7}, stages, m)
		if err != nil || len(got) != p+1 || got[0] != 7 {
			t.Fatalf("%v, %v", got, err)
		}
		for i, all := range ops {
			if want := all[len(all)-1].End; math.Abs(got[1+i]-want) > 1e-9*want {
				t.Fatalf("stage %d ends at %v, simulated %v: %+v", i, got[1+i], want, stages)
			}
		}
	})
	if _, err := Ends(nil, nil, 1); !errors.Is(err, ErrPipeline) {
		t.Error(err)
	}
}

func BenchmarkEnds(b *testing.B) {
	stages := []Timing{{1, 2, 0.1, 0}, {1.1, 2, 0.1, 0}, {0.9, 2, 0.2, 0}, {1, 2.1, 0.1, 0}, {1, 1.9, 0.1, 0}, {1, 2, 0, 0}}
	for b.Loop() {
		if _, err := Ends(nil, stages, 256); err != nil {
			b.Fatal(err)
		}
	}
}

func TestTogether(t *testing.T) {
	for _, c := range []struct {
		before, after []float64
		want          bool
	}{
		{[]float64{1, 2, 3}, []float64{3, 4, 5}, true},
		{[]float64{1, 2, 3}, []float64{3, 4, 5.001}, false},
		{[]float64{1, 2, 3}, []float64{3, 3.999, 5}, false},
		{[]float64{3e5, 1e6}, []float64{3e5 + 2, 1e6 + 2 + 1e-9}, true}, // rounding
		{[]float64{1}, []float64{2}, true},
	} {
		if got := together(c.before, c.after); got != c.want {
			t.Errorf("%v, then %v: %v", c.before, c.after, got)
		}
	}
}
