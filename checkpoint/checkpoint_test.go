package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// model is a program's arrays, with contents that follow from the step.
func model(step uint64) []Array {
	arrays := []Array{
		Of("embedding", Parameter, make([]float32, 3000), 30, 100),
		Of("dense.weight", Parameter, make([]float32, 700), 7, 100),
		Of("dense.weight.m", Moment, make([]float64, 700), 700),
		Of("seen", Buffer, make([]int64, 1), 1),
		Of("empty", Buffer, []uint8{}, 0),
		Of("mask", Buffer, make([]uint8, 4097)),
	}
	fill(arrays, step)
	return arrays
}

func fill(arrays []Array, step uint64) {
	for k, a := range arrays {
		x := step*0x9E3779B97F4A7C15 + uint64(k)
		for i := range a.Data {
			x = x*6364136223846793005 + 1442695040888963407
			a.Data[i] = byte(x >> 56)
		}
	}
}

func state(step uint64) State {
	return State{Step: step, Cursor: step * 17, Random: bytes.Repeat([]byte{byte(step)}, int(step%5)),
		Scalars: map[string]float64{"rate": 1 / float64(step), "beta1_power": math.Inf(1)}}
}

// save makes the checkpoint of a step and waits for it.
func save(t *testing.T, f *File, step uint64) {
	t.Helper()
	if err := trySave(f, step); err != nil {
		t.Fatal(err)
	}
}

func trySave(f *File, step uint64) error {
	s, err := f.Begin(context.Background(), step)
	if err != nil {
		return err
	}
	for _, a := range model(step) {
		if err := s.Write(a.Name, a.Data); err != nil {
			return err
		}
	}
	if err := s.Commit(state(step)); err != nil {
		return err
	}
	return s.Wait(context.Background())
}

// restored checks that f holds this step, whole.
func restored(t *testing.T, f *File, step uint64) Report {
	t.Helper()
	arrays := model(0)
	got, report, err := f.Restore(arrays)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(state(step), got, cmp.Transformer("bytes", func(b []byte) string { return string(b) })); diff != "" {
		t.Fatalf("state of step %d: %s", step, diff)
	}
	for i, a := range model(step) {
		if !bytes.Equal(a.Data, arrays[i].Data) {
			t.Fatalf("array %s is not that of step %d", a.Name, step)
		}
	}
	return report
}

func TestSaveAndRestore(t *testing.T) {
	for _, mode := range []Mode{ZeroCopy, Staged} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "run.ckpt")
			f, err := Create(path, model(0), Options{Mode: mode})
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := f.Restore(model(0)); !errors.Is(err, ErrEmpty) {
				t.Errorf("a new file restores with %v, want ErrEmpty", err)
			}
			for step := uint64(1); step < 12; step++ {
				save(t, f, step)
				restored(t, f, step)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			f, err = Open(path, model(0), Options{Mode: mode})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := trySave(f, 12); !errors.Is(err, ErrNotRestored) {
				t.Errorf("saving before restoring: %v, want ErrNotRestored", err)
			}
			restored(t, f, 11)
			save(t, f, 12)
			restored(t, f, 12)
		})
	}
}

// A training loop that never waits but by Ready: every array is changed as soon as it may be.
func TestPipelined(t *testing.T) {
	for _, mode := range []Mode{ZeroCopy, Staged} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			f, err := Create(filepath.Join(t.TempDir(), "run.ckpt"), model(0), Options{Mode: mode, WhenFull: Block})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			live := model(0)
			const steps = 60
			for step := uint64(1); step <= steps; step++ {
				s, err := f.Begin(context.Background(), step)
				if err != nil {
					t.Fatal(err)
				}
				next := model(step)
				for i := len(live) - 1; i >= 0; i-- {
					f.Ready(live[i].Name)
					copy(live[i].Data, next[i].Data)
					if err := s.Write(live[i].Name, live[i].Data); err != nil {
						t.Fatal(err)
					}
				}
				if err := s.Commit(state(step)); err != nil {
					t.Fatal(err)
				}
				if step == steps {
					if err := s.Wait(context.Background()); err != nil {
						t.Fatal(err)
					}
				}
			}
			restored(t, f, steps)
			if n := f.Stats().Committed; n != steps {
				t.Errorf("%d committed, want %d", n, steps)
			}
			report, err := f.Verify()
			if err != nil {
				t.Fatal(err)
			}
			verified := 0
			for _, s := range report.Slots {
				switch {
				case s.Fault != "" || s.Verified && s.Step <= steps-2:
					t.Errorf("slot %+v, want the last two steps verified, and a free slot", s)
				case s.Verified:
					verified++
				}
			}
			if verified != 2 {
				t.Errorf("%d slots verify", verified)
			}
		})
	}
}

func TestRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.ckpt")
	f, err := Create(path, model(0), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := Create(path, model(0), Options{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("creating over a file: %v", err)
	}
	if _, err := Open(path, nil, Options{}); !errors.Is(err, ErrLocked) {
		t.Errorf("second writer: %v", err)
	}
	if _, err := os.Stat(path + ".creating"); err == nil {
		t.Error("the temporary name is left")
	}
	s, err := f.Begin(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write("other", nil); !errors.Is(err, ErrSchema) {
		t.Errorf("unknown array: %v", err)
	}
	if err := s.Write("seen", nil); !errors.Is(err, ErrSchema) {
		t.Errorf("wrong length: %v", err)
	}
	if err := s.Commit(State{}); !errors.Is(err, ErrIncomplete) {
		t.Errorf("nothing written: %v", err)
	}
	if err := s.Commit(State{}); !errors.Is(err, ErrUsage) {
		t.Errorf("committed twice: %v", err)
	}
	save(t, f, 2)
	other := model(0)
	other[1].Shape = []int{100, 7}
	if _, err := Open(path, other, Options{ReadOnly: true}); !errors.Is(err, ErrSchema) {
		t.Errorf("other shape: %v", err)
	}
	r, err := Open(path, nil, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	restored(t, r, 2)
}
