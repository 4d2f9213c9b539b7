package run

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"evenkeel/cmd/evenkeel/internal/cli"
)

// inProcess runs a command with its output in files.
func inProcess(t *testing.T, ctx context.Context, command interface{ Run(*cli.App) error }) (string, error) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	failed := command.Run(cli.NewApp(ctx, out, os.Stderr))
	data, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(data), failed
}

func smallRun(rounds int) *Cmd {
	r := &Cmd{}
	r.Cluster, r.Rounds, r.Seed = "example", rounds, 1
	return r
}

// inJSON runs a command with --json, which must succeed.
func inJSON(t *testing.T, r *Cmd) (d document, out string) {
	t.Helper()
	r.JSON = true
	out, err := inProcess(t, t.Context(), r)
	if err == nil {
		err = json.Unmarshal([]byte(out), &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d, out
}

// A run leaves no goroutine behind, finished or interrupted.
func TestRunEnds(t *testing.T) {
	defer goleak.VerifyNone(t)
	if _, err := inProcess(t, t.Context(), smallRun(3)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	timer := time.AfterFunc(300*time.Millisecond, cancel)
	defer timer.Stop()
	out, err := inProcess(t, ctx, smallRun(cli.MaxRounds))
	if err == nil || !strings.Contains(out, "under seed 1") {
		t.Fatalf("interrupted: error %v, output %s", err, out)
	}
}

// The same seed gives the same document.
func TestRunRepeats(t *testing.T) {
	var first string
	for i := range 2 {
		r := smallRun(10)
		d, out := inJSON(t, r)
		if len(d.Results) != 5 || len(d.Sizes) != 16 || d.Rounds != 10 {
			t.Fatalf("%d results, %d sizes, %d rounds", len(d.Results), len(d.Sizes), d.Rounds)
		}
		if i > 0 && out != first {
			t.Fatalf("another document:\n%s\n%s", first, out)
		}
		first = out
	}
}

func TestClip(t *testing.T) {
	for in, want := range map[string]string{
		"short": "short", "a long line": "a long", "\x1b[2mfaint text\x1b[0m": "\x1b[2mfaint \x1b[0m", "▲▼▲▼▲▼▲": "▲▼▲▼▲▼",
	} {
		if got := clip(in, 6); got != want || cli.Visible(got) > 6 {
			t.Errorf("clip(%q) = %q, want %q", in, got, want)
		}
	}
}

// A run that begins with what another learnt on the same nodes is the quicker one, and says what is wrong with a file.
func TestBeliefs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.beliefs")
	var seconds [2]float64
	for i := range seconds {
		r := smallRun(6)
		r.Beliefs, r.Quorum = path, "all"
		d, _ := inJSON(t, r)
		seconds[i] = d.Results[0].RoundTime
	}
	if seconds[1] > 0.99*seconds[0] {
		t.Errorf("rounds of %.3f s without and %.3f s with beliefs", seconds[0], seconds[1])
	}
	if err := os.WriteFile(path, []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := smallRun(6)
	r.Beliefs = path
	if _, err := inProcess(t, t.Context(), r); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "remove it") {
		t.Error(err)
	}
}
