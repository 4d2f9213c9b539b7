package execute

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

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
