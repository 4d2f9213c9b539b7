package train

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
	"evenkeel/internal/race"
	"evenkeel/internal/slow"
	"evenkeel/lab/training"
)

// trainSteps is 30 sets of steps, of which the last ten learn.
const trainSteps = 3840

// interrupter cancels a run at the n-th line that it logs: the same step every time.
type interrupter struct {
	left   int
	cancel context.CancelFunc
}

func (i *interrupter) Write(b []byte) (int, error) {
	if i.left--; i.left == 0 {
		i.cancel()
	}
	return len(b), nil
}

// train runs the command and interrupts it at the n-th tenth of the run, 0 for never.
func trainWith(t *testing.T, c Cmd, n int) error {
	t.Helper()
	quiet, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer quiet.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	return c.Run(&cli.App{Ctx: ctx, Out: quiet, Errs: quiet, Log: zerolog.New(&interrupter{n, cancel})})
}

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTrainResumeGivesTheSameBytes(t *testing.T) {
	slow.Skip(t) // lab/training resumes in less
	if race.Enabled {
		t.Skip("lab/training trains and resumes under the race detector")
	}
	steps, seed := trainSteps, uint64(7)
	whole, parts := t.TempDir(), t.TempDir()
	if err := trainWith(t, Cmd{Out: whole, Steps: &steps, Seed: &seed}, 0); err != nil {
		t.Fatal(err)
	}
	err := trainWith(t, Cmd{Out: parts, Steps: &steps, Seed: &seed}, 8)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "evenkeel train --resume --out "+parts) {
		t.Fatalf("interrupted run: %v", err)
	}
	if bytes.Equal(read(t, whole, policyFile), read(t, parts, policyFile)) {
		t.Fatal("the interruption came too late to test anything")
	}
	// As if the process had died after writing beyond its checkpoint.
	lost := append(read(t, parts, returnsFile), "3712,3840,999,1,1,1,1,0\n"...)
	if err := os.WriteFile(filepath.Join(parts, returnsFile), lost, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := trainWith(t, Cmd{Out: parts, Resume: true}, 0); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{policyFile, returnsFile, checkpointFile} {
		if !bytes.Equal(read(t, whole, name), read(t, parts, name)) {
			t.Errorf("%s of a resumed run differs from that of a whole run", name)
		}
	}

	if err := trainWith(t, Cmd{Out: parts, Resume: true}, 0); !badinput.Is(err) {
		t.Errorf("resuming a finished run: %v", err)
	}
	other := steps * 2
	if err := trainWith(t, Cmd{Out: parts, Resume: true, Steps: &other}, 0); !badinput.Is(err) {
		t.Errorf("resuming with other steps: %v", err)
	}
}

func TestTrainStopsWhenItCannotSave(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, returnsFile), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, returnsFile, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	steps := 256
	if err := trainWith(t, Cmd{Out: dir, Steps: &steps}, 0); err == nil || !strings.Contains(err.Error(), returnsFile) {
		t.Errorf("got %v", err)
	}
}

func TestReturnsRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), returnsFile)
	want := []training.Progress{{Steps: 128, Total: 256, Epsilon: 1}, {Steps: 256, Total: 256, Updates: 12, Loss: 1e-300, MeanQ: -1.0 / 3, Return: 0.1, Team: -2e10}}
	if err := writeReturns(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := readReturns(path)
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	if rows, err := readReturns(path + ".missing"); rows != nil || err != nil {
		t.Errorf("a missing file: %v, %v", rows, err)
	}
}

// FuzzReturns: what is read is written again as it was read, or refused.
func FuzzReturns(f *testing.F) {
	header := strings.Join(returnColumns, ",") + "\n"
	for _, s := range []string{"", header, header + "128,256,0,0,0,-0.1,-0.2,1\n", header + "1,2,3,NaN,0,0,0,0\n", header + "1,2\n", header + "1e9,2,3,4,5,6,7,8\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		rows, err := parseReturns(bytes.NewReader(b))
		if err != nil {
			return
		}
		path := filepath.Join(t.TempDir(), strconv.Itoa(len(b))+".csv")
		if err := writeReturns(path, rows); err != nil {
			t.Fatal(err)
		}
		again, err := readReturns(path)
		if d := cmp.Diff(rows, again); err != nil || d != "" {
			t.Errorf("%v %s", err, d)
		}
	})
}
