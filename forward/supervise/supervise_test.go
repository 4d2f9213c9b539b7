package supervise

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/badinput"
)

// shell runs a script for every processor.
func shell(script string) *Processors {
	return &Processors{
		Program: "/bin/sh", Args: func(rank int) []string { return []string{"-c", script, "sh", fmt.Sprint(rank)} },
		BadInput: 2, Pause: time.Millisecond,
	}
}

func TestKeep(t *testing.T) {
	dir := t.TempDir()
	tries := filepath.Join(dir, "tries")
	var died []string
	p := shell(`echo x >> ` + tries + `; test $(wc -l < ` + tries + `) -ge 3 && exit 0; echo first >&2; echo "dies $1 $WORD" >&2; kill -9 $$`)
	p.Env = []string{"WORD=hard"}
	p.Died = func(rank int, err error, last string) { died = append(died, fmt.Sprint(rank, ": ", err, ": ", last)) }
	if err := p.Keep(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(tries); err != nil || string(text) != "x\nx\nx\n" {
		t.Errorf("%v %q", err, text)
	}
	if len(died) != 2 || died[0] != "7: signal: killed: dies 7 hard" {
		t.Errorf("%q", died)
	}
}

func TestKeepRefused(t *testing.T) {
	err := shell(`echo "evenkeel: no such run" >&2; exit 2`).Keep(t.Context(), 3)
	if !badinput.Is(err) || err.Error() != "processor 3: no such run" {
		t.Error(err)
	}
}

// A processor that cannot start, or fails time and again, is tried until the run is over.
func TestKeepUntilDone(t *testing.T) {
	for _, script := range []string{"exit 1", "sleep 30"} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		begun := time.Now()
		if err := shell(script).Keep(ctx, 0); err != nil || time.Since(begun) > 5*time.Second {
			t.Errorf("%s: %v after %v", script, err, time.Since(begun))
		}
		cancel()
	}
	p := shell("")
	p.Program = filepath.Join(t.TempDir(), "missing")
	ctx, cancel := context.WithCancel(t.Context())
	p.Died = func(_ int, err error, _ string) {
		if !strings.Contains(err.Error(), "no such file") {
			t.Error(err)
		}
		cancel()
	}
	if err := p.Keep(ctx, 0); err != nil {
		t.Error(err)
	}
}
