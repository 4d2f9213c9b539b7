package forward

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/forward"
	"github.com/evenkeel/evenkeel/forward/wire"
	"github.com/evenkeel/evenkeel/train/task"
)

// By hand: equal is not lower, NaN is not, and the time counts from the lowest.
func TestValidatorStops(t *testing.T) {
	v := newValidator(&setup{stopAfter: 128})
	if v.told() != nil {
		t.Error("it tells of what was not")
	}
	for _, c := range []struct {
		steps int
		loss  float64
		stop  bool
	}{{64, 3, false}, {128, 2, false}, {192, 2, false}, {256, 1.5, false}, {320, math.NaN(), false}, {384, 1.5, true}, {448, 1.4, false}} {
		if v.note(c.steps, c.loss); v.due != c.stop {
			t.Errorf("after %d steps: stop %v", c.steps, v.due)
		}
	}
	if got := *v.told(); got != (validated{1.4, 448}) {
		t.Errorf("lowest %+v", got)
	}
}

// Validation takes a tenth of what is trained on, and nothing of the test's, if it is asked for.
func TestSetAside(t *testing.T) {
	for _, after := range []int{0, 64} {
		s, err := task.Task{Data: task.Digits}.WithDefaults().Build()
		if err != nil {
			t.Fatal(err)
		}
		training, held := s.Training.Len(), s.Held.Len()
		w := setAside(s, after)
		switch {
		case after == 0 && (w.validation != nil || w.Training.Len() != training || newValidator(w) != nil):
			t.Error("without --stop-after something is set aside")
		case after > 0 && (w.validation.Len() != training/10 || w.Training.Len() != training-training/10 || w.Held.Len() != held || newValidator(w) == nil):
			t.Errorf("%d of %d set aside, %d left, %d held out", w.validation.Len(), training, w.Training.Len(), w.Held.Len())
		}
	}
}

// A processor that validates sees the weights after each block again when it rejoins: it does not begin with those it saved.
func TestRejoinedValidator(t *testing.T) {
	folder := t.TempDir()
	log, saved := filepath.Join(folder, "run.log"), filepath.Join(folder, "saved")
	a := cli.NewApp(t.Context(), os.Stderr, os.Stderr)
	train := trainCmd{Log: log, flags: flags{
		Data: task.Synthetic, Size: 8, Depth: 1, Processors: 2, Steps: 4 * forward.BlockSteps, Epsilon: 0.001, Schedule: "cosine", Examples: 4,
		Kind: string(forward.Rademacher), Normalize: true, StopAfter: 1 << 20,
	}}
	if err := train.Run(a); err != nil {
		t.Fatal(err)
	}
	l, encoded, err := readLog(log)
	if err != nil {
		t.Fatal(err)
	}
	work, err := taskOf(l.Header, "")
	if err != nil {
		t.Fatal(err)
	}
	weights, err := startOf(l.Header, work, "")
	if err != nil {
		t.Fatal(err)
	}
	replica, err := forward.NewReplica(l.Encoded, weights)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []wire.Block
	want := validated{Loss: math.Inf(1)}
	for k, b := range encoded {
		if _, err := replica.Apply(b); err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, wire.Block{Position: uint64(k + 1), Data: b})
		_, loss, err := forward.Evaluate(work.Network, replica.Weights, work.validation)
		if err != nil {
			t.Fatal(err)
		}
		if loss < want.Loss {
			want = validated{loss, replica.Steps()}
		}
	}
	if len(blocks) != 4 {
		t.Fatalf("%d blocks", len(blocks))
	}
	if err := cli.WriteFile(saved, replica.Save); err != nil {
		t.Fatal(err)
	}
	join, check := joinCmd{Checkpoint: saved}, newValidator(work)
	again, _, err := join.catchUp(a, l.Header, work, &wire.Run{Header: l.Encoded}, blocks, check)
	if err != nil {
		t.Fatal(err)
	}
	if again.Weights.Hash() != replica.Weights.Hash() || check.validated != want {
		t.Errorf("weights %s and %+v, want %s and %+v", again.Weights.Hash(), check.validated, replica.Weights.Hash(), want)
	}
}
