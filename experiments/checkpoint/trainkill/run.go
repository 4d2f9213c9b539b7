package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// result counts what was seen.
type result struct {
	Kills     int // processes killed
	Before    int // of these, before they reported what they had restored: while starting, creating or restoring
	Restores  int // that were compared with the undisturbed run
	FromStart int // restores of a file without a checkpoint, none having been durable
	Finals    int // runs that finished, and were compared
	Durable   int // steps reported durable
}

func (r result) String() string {
	return fmt.Sprintf("%d kills (%d before training began): %d restores and %d final states, all of them the undisturbed run's to the bit;\n%d restores found no checkpoint, none having been durable; %d steps were durable, none of them was lost",
		r.Kills, r.Before, r.Restores, r.Finals, r.FromStart, r.Durable)
}

// run kills processes of the command line.
func run(ctx context.Context, kills int, seed uint64, command func(path string, staged bool) []string, progress func(done int)) (result, error) {
	var r result
	want, err := undisturbed()
	if err != nil {
		return r, err
	}
	dir, err := os.MkdirTemp("", "trainkill")
	if err != nil {
		return r, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "run.ckpt")
	rng := rand.New(rand.NewPCG(seed, 0))
	durable, staged := 0, false
	for r.Kills < kills && ctx.Err() == nil {
		lines, killed, err := once(ctx, command(path, staged), rng)
		if err != nil {
			return r, err
		}
		if killed {
			r.Kills++
			progress(r.Kills)
		}
		ended, err := r.check(lines, want, &durable)
		if err != nil {
			return r, fmt.Errorf("after %d kills, staged %v: %w", r.Kills, staged, err)
		}
		if ended {
			durable, staged = 0, !staged
			if err := os.Remove(path); err != nil {
				return r, err
			}
		}
	}
	return r, ctx.Err()
}

// once starts a process and kills it at a random moment: some time after its start, or after a line it writes.
func once(ctx context.Context, command []string, rng *rand.Rand) (lines []string, killed bool, err error) {
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, false, err
	}
	if err := c.Start(); err != nil {
		return nil, false, err
	}
	after := -1
	if rng.IntN(2) == 0 {
		timer := time.AfterFunc(time.Duration(rng.Int64N(int64(120*time.Millisecond))), func() { _ = c.Process.Kill() })
		defer timer.Stop()
	} else {
		after = 1 + rng.IntN(steps/2)
	}
	for in := bufio.NewReader(out); ; {
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			break // half a line reports nothing
		}
		if err != nil {
			return nil, false, err
		}
		lines = append(lines, strings.TrimSuffix(line, "\n"))
		if len(lines) == after {
			_ = c.Process.Kill() // it may have ended
		}
	}
	err = c.Wait()
	if c.ProcessState.ExitCode() == 1 {
		return lines, false, fmt.Errorf("the process failed: %s", errs.String())
	}
	return lines, err != nil, nil
}

// check compares what a process reported with the undisturbed run.
func (r *result) check(lines, want []string, durable *int) (ended bool, err error) {
	if len(lines) == 0 {
		r.Before++
	}
	for _, line := range lines {
		what, rest, _ := strings.Cut(line, " ")
		number, found, _ := strings.Cut(rest, " ")
		var step int
		if _, err := fmt.Sscan(number, &step); err != nil || step < 0 || step >= len(want) {
			return false, fmt.Errorf("line %q", line)
		}
		switch {
		case what == "durable":
			r.Durable++
			*durable = step
			continue
		case found != want[step]:
			return false, fmt.Errorf("%s: the undisturbed run has %s", line, want[step])
		case what == "restored" && step < *durable:
			return false, fmt.Errorf("%s, but step %d was durable", line, *durable)
		case what == "restored":
			r.Restores++
			if step == 0 {
				r.FromStart++
			}
		default:
			r.Finals++
			ended = true
		}
	}
	return ended, nil
}
