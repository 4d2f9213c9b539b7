package execute

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/badinput"
)

// A process that refused its input, or died, explains best why a run failed.
func TestReason(t *testing.T) {
	refused := badinput.Errorf("stage 2: no such file")
	exit := exec.Command("/bin/sh", "-c", "kill -9 $$").Run()
	killed := fmt.Errorf("the process of stage 1 ended: %w: last words", exit)
	lost := func(stage int) error { return fmt.Errorf("%w stage %d (127.0.0.1)", errLost, stage) }
	for _, c := range []struct {
		err   error
		ended []error
		want  string
	}{
		{errors.New("disk full"), []error{nil, nil, nil}, "disk full"},
		{lost(2), []error{nil, nil, refused}, refused.Error()},
		{context.Canceled, []error{nil, killed, nil}, killed.Error()},
		{lost(1), []error{nil, killed, nil}, lost(1).Error() + " (its process ended: signal: killed)"},
		{lost(2), []error{nil, killed, nil}, lost(2).Error()},
		{lost(1), []error{nil, nil, nil}, lost(1).Error()},
	} {
		cause := errors.Join(c.ended...)
		if got := reason(c.err, cause, c.ended); got.Error() != c.want || strings.Contains(c.want, "(its") && !errors.Is(got, errLost) {
			t.Errorf("%v: %v, want %s", c.err, got, c.want)
		}
	}
}

// The last line of a process says why it ended. A grandchild that keeps standard error open does not hold up the end.
func TestProcess(t *testing.T) {
	for _, c := range []struct {
		script, want string
		bad          bool
	}{
		{script: "exit 0"},
		{"echo first >&2; echo ' evenkeel: no such file ' >&2; echo >&2; exit 3", "stage 2: no such file", true},
		{"exit 1", "the process of stage 2 ended: exit status 1: ", false},
		{"echo bye >&2; kill -9 $$", "the process of stage 2 ended: signal: killed: bye", false},
		{"sleep 20 & exit 4", "the process of stage 2 ended: exit status 4: ", false},
	} {
		begun := time.Now()
		l := &Local{Program: "/bin/sh", Args: func(int, string, string) []string { return []string{"-c", c.script} }, BadInput: 3}
		err := l.process(t.Context(), 2, "", "")
		if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want || badinput.Is(err) != c.bad || time.Since(begun) > 10*time.Second {
			t.Errorf("%s: %v after %v", c.script, err, time.Since(begun))
		}
	}
	l := &Local{Program: "/no/such/program", Args: func(int, string, string) []string { return nil }, BadInput: -1}
	if err := l.process(t.Context(), 1, "", ""); err == nil || badinput.Is(err) {
		t.Error(err)
	}
}
