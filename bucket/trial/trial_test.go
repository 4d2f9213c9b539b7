package trial

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"evenkeel/bucket/stepcost"
	"evenkeel/internal/badinput"
)

// shell runs a script, whose $1 is the length and $2 the batch.
func shell(script string) *Command {
	return &Command{Args: []string{"/bin/sh", "-c", script, "sh"}, Timeout: time.Minute}
}

func TestCommand(t *testing.T) {
	ran := stepcost.Trial{Length: 32, Batch: 4, Seconds: 0.25, PeakBytes: 4032}
	full := stepcost.Trial{Length: 32, Batch: 4, OutOfMemory: true}
	placeholders := &Command{Args: []string{"/bin/sh", "-c", `echo '{"seconds":0.25,"peak_bytes":{batch}0{length}}'`}, Timeout: time.Minute}
	for name, c := range map[string]struct {
		command *Command
		want    stepcost.Trial
		err     string
	}{
		"last line":    {shell(`echo noise; echo "{\"seconds\":0.25,\"peak_bytes\":${2}0$1}"; echo`), ran, ""},
		"placeholders": {placeholders, ran, ""},
		"no peak":      {shell(`echo '{"seconds":0.25}'`), stepcost.Trial{Length: 32, Batch: 4, Seconds: 0.25}, ""},
		"its status":   {shell(`exit 77`), full, ""},
		"status 137":   {shell(`exit 137`), full, ""},
		"killed":       {shell(`kill -9 $$`), full, ""},
		"PyTorch":      {shell(`echo "CUDA Out Of Memory. Tried to allocate" >&2; exit 1`), full, ""},
		"timeout":      {&Command{Args: []string{"/bin/sleep", "60", "{length}"}, Timeout: 50 * time.Millisecond}, full, ""},
		"fails":        {shell(`echo first >&2; echo "no such model" >&2; exit 1`), full, "exit status 1: no such model"},
		"no report":    {shell(`echo done`), full, `its last line is "done"`},
		"no time":      {shell(`echo '{"seconds":0}'`), full, "its last line"},
		"not there":    {&Command{Args: []string{"/no/such/program"}, Timeout: time.Minute}, full, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.command.Run(t.Context(), 32, 0, 4)
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			if got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			if badinput.Is(err) != (name == "not there") {
				t.Errorf("bad input: %v", err)
			}
		})
	}
}

func TestCommandInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := shell("exec sleep 60").Run(ctx, 32, 0, 4); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// A table that was cut anywhere goes on with the lines that are whole.
func TestTableFile(t *testing.T) {
	trials := stepcost.Table{{Length: 8, Batch: 1, Seconds: 0.5, PeakBytes: 100}, {Length: 8, Batch: 2, OutOfMemory: true}, {Length: 16, Batch: 1, Seconds: 0.75}}
	path := filepath.Join(t.TempDir(), "table.csv")
	f, err := OpenTable(path, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range trials {
		if err := f.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(f.Finish(trials), f.Close()); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenTable(path, false); !errors.Is(err, ErrExists) {
		t.Error(err)
	}
	for size := range len(whole) + 1 {
		if err := os.WriteFile(path, whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := OpenTable(path, true)
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		n := max(0, strings.Count(string(whole[:size]), "\n")-1)
		if d := cmp.Diff(append(stepcost.Table(nil), trials[:n]...), f.Done); d != "" {
			t.Fatalf("%d bytes: %s", size, d)
		}
		for _, r := range trials[n:] {
			if err := f.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(path); string(got) != string(whole) {
			t.Fatalf("%d bytes: %q", size, got)
		}
	}
}

// A table without a trial is of no use.
func TestTableFileWithoutTrials(t *testing.T) {
	path := filepath.Join(t.TempDir(), "table.csv")
	f, err := OpenTable(path, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := OpenTable(filepath.Join(path, "in", "no", "folder"), false); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
