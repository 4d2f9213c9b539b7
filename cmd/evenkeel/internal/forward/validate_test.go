package forward

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/forward"
	"evenkeel/forward/wire"
	"evenkeel/train/task"
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

// launch validates what its run has already, by the blocks on the server, once each.
func TestLaunchValidatesAgain(t *testing.T) {
	folder := t.TempDir()
	log := filepath.Join(folder, "run.log")
	a := cli.NewApp(t.Context(), os.Stderr, os.Stderr)
	train := trainCmd{Log: log, flags: flags{Data: task.Synthetic, Size: 8, Depth: 1, Processors: 2, Steps: 5 * forward.BlockSteps, Schedule: forward.Cosine, Examples: 4, StopAfter: 1 << 20}}
	if err := train.Run(a); err != nil {
		t.Fatal(err)
	}
	l, whole, err := readLog(log)
	if err != nil {
		t.Fatal(err)
	}
	server, err := wire.Serve(wire.ServerOptions{Dir: filepath.Join(folder, "store")})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	t.Setenv(tokenVariable, server.Token())
	c := launchCmd{Server: natsFlags{URL: server.URL()}, flags: train.flags}
	conn, err := c.Server.open("")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for name, blocks := range map[string][][]byte{"whole": whole, "begun": whole[:4]} {
		if err := wire.Create(t.Context(), conn, name, l.Encoded); err != nil {
			t.Fatal(err)
		}
		run, err := wire.Open(t.Context(), conn, name)
		if err != nil {
			t.Fatal(err)
		}
		bus, err := run.Join(t.Context(), 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range blocks {
			if err := bus.PublishBlock(t.Context(), i, b); err != nil {
				t.Fatal(err)
			}
		}
		bus.Close()
	}
	begun, err := train.session()
	if err != nil {
		t.Fatal(err)
	}
	want := validated{Loss: math.Inf(1)}
	for _, b := range whole[:4] {
		if _, err := begun.replica.Apply(b); err != nil {
			t.Fatal(err)
		}
		_, loss, err := forward.Evaluate(begun.work.Network, begun.replica.Weights, begun.work.validation)
		if err != nil {
			t.Fatal(err)
		}
		if loss < want.Loss {
			want = validated{loss, begun.replica.Steps()}
		}
	}
	c.Name.Run = "begun"
	r, err := c.session()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.take(a, r, conn); err != nil {
		t.Fatal(err)
	}
	if r.replica.Weights.Hash() != begun.replica.Weights.Hash() || r.check.validated != want || len(r.blocks) != 4 {
		t.Errorf("weights %s and %+v, want %s and %+v", r.replica.Weights.Hash(), r.check.validated, begun.replica.Weights.Hash(), want)
	}
	c.Name.Run = "whole"
	for name, run := range map[string]func() error{
		"stop":   func() error { return (&stopCmd{Server: c.Server, Name: "whole"}).Run(a) },
		"launch": func() error { return c.Run(a) },
	} {
		if err := run(); err == nil || !strings.Contains(err.Error(), "is finished") {
			t.Errorf("%s of a finished run: %v", name, err)
		}
	}
}

// What a run that is there differs in is named.
func TestDifference(t *testing.T) {
	f := flags{Data: task.Synthetic, Size: 8, Depth: 1, Processors: 2, Steps: 128, Schedule: forward.Cosine, Examples: 4, LearningRate: 0.1, StopAfter: 64}
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
		"stop_after 64 there, stop_after 128 here": func(f *flags) { f.StopAfter = 128 },
		"learning_rate 0.1 there":                  func(f *flags) { f.LearningRate = 0.2 },
		"stop_after 64 there, stop_after 0 here":   func(f *flags) { f.StopAfter = 0 },
		"steps 128 there, steps 192 here":          func(f *flags) { f.Steps = 192 },
		"in data, network or weights":              func(f *flags) { f.Size = 16 },
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
	c := trainCmd{Plot: plot, flags: flags{JSON: true}}
	if err := c.finish(cli.NewApp(t.Context(), out, os.Stderr), &session{}, &summary{Steps: forward.BlockSteps, Of: 128}); err != nil {
		t.Fatal(err)
	}
	if said, err := os.ReadFile(out.Name()); err != nil || !strings.Contains(string(said), `"steps": 64`) {
		t.Errorf("%s, %v", said, err)
	}
}
