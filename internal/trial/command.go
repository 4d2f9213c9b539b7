// Package trial runs one training step as an external command.
//
//	r := trial.Command{Args: []string{"python3", "step.py"}, Limit: time.Minute}
//	t, err := r.Run(ctx, 512, 16) // python3 step.py 512 16
package trial

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// OutOfMemoryStatus is the exit status by which a command says that memory ran out.
const OutOfMemoryStatus = 42

// Command is an external command. Length and batch replace {length} and {batch} in its
// arguments, or are appended where neither stands there.
type Command struct {
	Args  []string
	Limit time.Duration // of one trial; 0: none
}

// Result is what a trial measured.
type Result struct {
	Seconds     float64 `json:"seconds"`    // as the command printed, else its wall time
	PeakBytes   int64   `json:"peak_bytes"` // 0: not printed
	OutOfMemory bool    `json:"out_of_memory"`
}

// Run tries one combination. The last line of the output may be a JSON object with the
// fields of Result. Out of memory is exit status 42, a kill by SIGKILL, that field, or an
// output with "out of memory". A trial over its limit or with another status is an error.
func (c Command) Run(ctx context.Context, length, batch int) (Result, error) {
	args := make([]string, len(c.Args), len(c.Args)+2)
	l, b := strconv.Itoa(length), strconv.Itoa(batch)
	fill := strings.NewReplacer("{length}", l, "{batch}", b)
	named := false
	for i, a := range c.Args {
		args[i] = fill.Replace(a)
		named = named || args[i] != a
	}
	if !named {
		args = append(args, l, b)
	}
	if c.Limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.Limit, errLimit)
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	// Its children too end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
	var out tail
	cmd.Stdout, cmd.Stderr = &out, &out
	begun := time.Now()
	err := cmd.Run()
	r := Result{Seconds: time.Since(begun).Seconds()}
	if ctx.Err() != nil {
		if errors.Is(context.Cause(ctx), errLimit) {
			return r, fmt.Errorf("length %d, batch %d: %w of %v", length, batch, errLimit, c.Limit)
		}
		return r, ctx.Err()
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		status, _ := exit.Sys().(syscall.WaitStatus)
		text := strings.ToLower(out.String())
		if exit.ExitCode() == OutOfMemoryStatus || status.Signaled() && status.Signal() == syscall.SIGKILL ||
			strings.Contains(text, "out of memory") || strings.Contains(text, "outofmemory") {
			return Result{OutOfMemory: true}, nil
		}
		return r, fmt.Errorf("length %d, batch %d: %s: %w: %s", length, batch, strings.Join(args, " "), err, strings.TrimSpace(out.String()))
	}
	if err != nil {
		return r, fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if last := lines[len(lines)-1]; strings.HasPrefix(last, "{") {
		if err := json.Unmarshal([]byte(last), &r); err != nil {
			return r, fmt.Errorf("length %d, batch %d: output %q: %w", length, batch, last, err)
		}
	}
	if !r.OutOfMemory && !(r.Seconds > 0) || r.PeakBytes < 0 {
		return r, fmt.Errorf("length %d, batch %d: seconds %v, peak_bytes %d: want seconds above 0", length, batch, r.Seconds, r.PeakBytes)
	}
	return r, nil
}

var errLimit = errors.New("over the time limit")

// tail keeps the last of what is written.
type tail struct{ bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	t.Buffer.Write(p)
	if extra := t.Len() - 64<<10; extra > 0 {
		t.Next(extra)
	}
	return len(p), nil
}
