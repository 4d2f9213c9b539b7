package forward

import (
	"math"
	"os"
	"path/filepath"
	"strings"
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

// launch validates what its run has already: by the log that it continues, or the blocks on the server, once each.
func TestLaunchValidatesAgain(t *testing.T) {
	folder := t.TempDir()
	log := filepath.Join(folder, "run.log")
	a := cli.NewApp(t.Context(), os.Stderr, os.Stderr)
	train := trainCmd{Log: log, flags: flags{
		Data: task.Synthetic, Size: 8, Depth: 1, Processors: 2, Steps: 5 * forward.BlockSteps, Epsilon: 0.001, Schedule: "cosine", Examples: 4,
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
	whole := encoded
	encoded = encoded[:4]
	want := validated{Loss: math.Inf(1)}
	for _, b := range encoded {
		if _, err := replica.Apply(b); err != nil {
			t.Fatal(err)
		}
		_, loss, err := forward.Evaluate(work.Network, replica.Weights, work.validation)
		if err != nil {
			t.Fatal(err)
		}
		if loss < want.Loss {
			want = validated{loss, replica.Steps()}
		}
	}
	half, err := beginLog(log, l.Encoded, encoded)
	if err != nil {
		t.Fatal(err)
	}
	if err := half.close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []launchCmd{
		{Name: runFlag{"log"}, Log: log, Resume: true},
		{Name: runFlag{"server"}, flags: train.flags},
	} {
		c.Server.Store = filepath.Join(folder, "store")
		server, err := c.Server.open(c.Name.Run)
		if err != nil {
			t.Fatal(err)
		}
		if !c.Resume {
			if err := wire.Create(t.Context(), server.Conn, "whole", l.Encoded, whole...); err != nil {
				t.Fatal(err)
			}
			if err := wire.Create(t.Context(), server.Conn, c.Name.Run, l.Encoded, encoded...); err != nil {
				t.Fatal(err)
			}
		}
		r, err := prepareRun(a, &c.flags, c.Log, c.Resume, true, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.take(a, r, server); err != nil {
			t.Fatal(err)
		}
		if r.replica.Weights.Hash() != replica.Weights.Hash() || r.check.validated != want {
			t.Errorf("from the %s: weights %s and %+v, want %s and %+v", c.Name.Run, r.replica.Weights.Hash(), r.check.validated, replica.Weights.Hash(), want)
		}
		if err := server.close(); err != nil {
			t.Fatal(err)
		}
	}
	stop := stopCmd{Server: storeFlags{Store: filepath.Join(folder, "store")}, Name: "whole"}
	if err := stop.Run(a); err == nil || !strings.Contains(err.Error(), "is finished") {
		t.Errorf("a finished run is asked to stop: %v", err)
	}
}

// What a run that is there differs in is named.
func TestDifference(t *testing.T) {
	f := flags{Data: task.Synthetic, Size: 8, Depth: 1, Processors: 2, Steps: 128, Epsilon: 0.001, Schedule: "cosine", Examples: 4, Kind: string(forward.Rademacher), Normalize: true, LearningRate: 0.1, StopAfter: 64}
	made := func(change func(*flags)) *forward.Header {
		g := f
		change(&g)
		h, _, _, err := g.header()
		if err != nil {
			t.Fatal(err)
		}
		return &h
	}
	there, err := made(func(*flags) {}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*flags){
		"--stop-after 64 there, 128 here": func(f *flags) { f.StopAfter = 128 },
		"learning_rate 0.1 there":         func(f *flags) { f.LearningRate = 0.2 },
		"--stop-after 64 there, 0 here":   func(f *flags) { f.StopAfter = 0 },
		"steps 128 there, steps 192 here": func(f *flags) { f.Steps = 192 },
		"in network or weights":           func(f *flags) { f.Size = 16 },
		"training examples there, ":       func(f *flags) { f.Data = task.Digits },
	} {
		if got := difference(there, made(change)); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A run that was stopped in its first block has no curve to draw, and a summary all the same.
func TestStoppedBeforeACurve(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	plot := filepath.Join(t.TempDir(), "x.svg")
	if err := (&session{}).finish(cli.NewApp(t.Context(), out, os.Stderr), &summary{Steps: forward.BlockSteps, Of: 128}, plot, "", true); err != nil {
		t.Fatal(err)
	}
	if said, err := os.ReadFile(out.Name()); err != nil || !strings.Contains(string(said), `"steps": 64`) {
		t.Errorf("%s, %v", said, err)
	}
}
