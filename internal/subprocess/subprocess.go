// Package subprocess runs programs that report a failure in the last line of their output,
// as the evenkeel program itself does.
package subprocess

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// mostOutput is how much of a program's output is kept: its end.
const mostOutput = 64 << 10

// Tail keeps the end of what is written to it.
type Tail struct{ text []byte }

// Write never fails.
func (t *Tail) Write(b []byte) (int, error) {
	t.text = append(t.text, b...)
	if n := len(t.text) - mostOutput; n > 0 {
		t.text = append(t.text[:0], t.text[n:]...)
	}
	return len(b), nil
}

func (t *Tail) String() string { return string(t.text) }

// LastLine is the last line that is not empty.
func (t *Tail) LastLine() string {
	s := strings.TrimSpace(string(t.text))
	return strings.TrimSpace(s[strings.LastIndexByte(s, '\n')+1:])
}

// Failure is the end of a program that did not end well.
type Failure struct {
	Cause  error  // of package os/exec
	Last   string // line of its standard error
	Status int    // exit status; -1: it was killed, or never started
}

func (f *Failure) Error() string { return fmt.Sprintf("%v: %s", f.Cause, f.Last) }
func (f *Failure) Unwrap() error { return f.Cause }

// Command is exec.CommandContext for a program that gets a second to end once ctx is done.
func Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = time.Second
	return cmd
}

// Run runs cmd to its end. Its error is a *Failure.
func Run(cmd *exec.Cmd) error {
	var errs Tail
	cmd.Stderr = &errs
	err := cmd.Run()
	if err == nil {
		return nil
	}
	f := &Failure{Cause: err, Last: errs.LastLine(), Status: -1}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		f.Status = exit.ExitCode()
	}
	return f
}
