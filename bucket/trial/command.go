// Package trial runs the training steps of a stepcost.Profile: Command runs a user's program
// for each, TableFile keeps what came of them, so that an interrupted profile can go on.
package trial

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"evenkeel/bucket/stepcost"
	"evenkeel/internal/badinput"
	"evenkeel/internal/subprocess"
)

// Command runs a program for each trial; its Run is a stepcost.Runner. The program trains one
// step and prints {"seconds":S,"peak_bytes":N} as its last line.
type Command struct {
	// Args are the program and its arguments. {length} (also {source}), {target} and {batch} are replaced in them;
	// without any, length, target if there is one, and batch are added.
	Args []string
	// Timeout limits a trial. One that takes longer counts as out of memory: it is too long
	// to be of use.
	Timeout time.Duration

	last string
}

// Last says of the last trial that was out of memory how its program ended and what it printed last.
func (c *Command) Last() string { return c.last }

const (
	exitMemory = 77              // by which a program says that it is out of memory
	exitKilled = 137             // 128 + SIGKILL, as a shell reports it
	endDelay   = 5 * time.Second // for a program to end after its timeout
)

// Run is a stepcost.Runner. Its error is bad input where the program cannot be started.
func (c *Command) Run(ctx context.Context, length, target, batch int) (stepcost.Trial, error) {
	limited, stop := context.WithTimeout(ctx, c.Timeout)
	defer stop()
	args := c.args(length, target, batch)
	cmd := exec.CommandContext(limited, args[0], args[1:]...)
	cmd.WaitDelay = endDelay
	var out, errs subprocess.Tail
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	t := stepcost.Trial{Length: length, Target: target, Batch: batch, OutOfMemory: true}
	exit := (*exec.ExitError)(nil)
	switch {
	case ctx.Err() != nil:
		return t, ctx.Err()
	case limited.Err() != nil:
		c.last = fmt.Sprintf("%s: longer than %s", strings.Join(args, " "), c.Timeout)
		return t, nil
	case errors.As(err, &exit):
		if outOfMemory(exit.ExitCode(), out.String()+errs.String()) {
			said := cmp.Or(errs.LastLine(), out.LastLine(), "no output")
			c.last = fmt.Sprintf("%s: %v: %s", strings.Join(args, " "), err, said)
			return t, nil
		}
		return t, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, errs.LastLine())
	case err != nil:
		return t, badinput.Wrap(err)
	}
	var report struct {
		Seconds   float64 `json:"seconds"`
		PeakBytes int64   `json:"peak_bytes"`
	}
	last := out.LastLine()
	if err := json.Unmarshal([]byte(last), &report); err != nil || report.Seconds <= 0 || report.PeakBytes < 0 {
		return t, fmt.Errorf(`%s: its last line is %q; want {"seconds":S,"peak_bytes":N}`, strings.Join(args, " "), last)
	}
	t.Seconds, t.PeakBytes, t.OutOfMemory = report.Seconds, report.PeakBytes, false
	return t, nil
}

func (c *Command) args(length, target, batch int) []string {
	values := strings.NewReplacer("{length}", strconv.Itoa(length), "{source}", strconv.Itoa(length), "{target}", strconv.Itoa(target), "{batch}", strconv.Itoa(batch))
	args := make([]string, 0, len(c.Args)+3)
	for _, v := range c.Args {
		args = append(args, values.Replace(v))
	}
	if slices.Equal(args, c.Args) {
		args = append(args, strconv.Itoa(length))
		if target > 0 {
			args = append(args, strconv.Itoa(target))
		}
		args = append(args, strconv.Itoa(batch))
	}
	return args
}

// outOfMemory says whether a program failed for want of memory: by its status, by words as PyTorch's, or killed by the
// kernel (-1).
func outOfMemory(status int, output string) bool {
	return status == exitMemory || status == exitKilled || status == -1 || strings.Contains(strings.ToLower(output), "out of memory")
}
