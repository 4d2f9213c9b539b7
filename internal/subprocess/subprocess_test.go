package subprocess

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestRun(t *testing.T) {
	for _, c := range []struct {
		script, last string
		status       int
	}{
		{"exit 0", "", 0},
		{"echo first >&2; echo ' last one ' >&2; echo >&2; exit 3", "last one", 3},
		{"exit 1", "", 1},
		{"echo bye >&2; kill -9 $$", "bye", -1},
	} {
		err := Run(Command(t.Context(), "/bin/sh", "-c", c.script))
		if c.status == 0 {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		f := (*Failure)(nil)
		if exit := (*exec.ExitError)(nil); !errors.As(err, &f) || f.Last != c.last || f.Status != c.status || !errors.As(err, &exit) {
			t.Errorf("%s: %v, %+v", c.script, err, f)
		}
	}
	f := (*Failure)(nil)
	if err := Run(Command(t.Context(), "/no/such/program")); !errors.As(err, &f) || f.Status != -1 {
		t.Error(err)
	}
}

// A grandchild that keeps standard error open does not hold up the end.
func TestRunWithGrandchild(t *testing.T) {
	begun := time.Now()
	if err := Run(Command(t.Context(), "/bin/sh", "-c", "sleep 20 & exit 4")); err == nil || time.Since(begun) > 10*time.Second {
		t.Errorf("%v after %v", err, time.Since(begun))
	}
}

func TestTail(t *testing.T) {
	var tail Tail
	if tail.LastLine() != "" {
		t.Errorf("%q", tail.LastLine())
	}
	for range 3 {
		if n, err := tail.Write([]byte(strings.Repeat("x", mostOutput-1) + "\n")); n != mostOutput || err != nil {
			t.Error(n, err)
		}
	}
	_, _ = tail.Write([]byte("the end\r\n\n"))
	if len(tail.String()) != mostOutput || tail.LastLine() != "the end" {
		t.Errorf("%d bytes, last %q", len(tail.String()), tail.LastLine())
	}
}
