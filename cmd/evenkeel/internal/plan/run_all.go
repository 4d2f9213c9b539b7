package plan

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/planner/execute"
)

// all runs the first stage here and a process for every other one.
func (r *execution) all() error {
	dir, stages := r.command.Keys, len(r.job.Plan.Stages)
	if stages == 1 {
		s, clear := r.server(nil, nil)
		result, err := s.Run(r.Ctx)
		clear()
		return r.finish(result, err)
	}
	if dir == "" {
		temporary, err := os.MkdirTemp("", "evenkeel-keys-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(temporary) }() // keys that nobody uses any more
		dir = temporary
		if err := execute.MakeKeys(dir, stages, time.Now(), 24*time.Hour); err != nil {
			return err
		}
	}
	keys, err := execute.LoadKeys(dir, 0, time.Now())
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s, clear := r.server(keys, listener)
	s.Log = nil // who they are is no news here
	run, stop := context.WithCancelCause(r.Ctx)
	defer stop(nil)
	processes, kill := context.WithCancel(context.WithoutCancel(r.Ctx)) // by themselves they end with the server
	defer kill()
	var all sync.WaitGroup
	ended := make([]error, stages)
	for k := 1; k < stages; k++ {
		all.Go(func() {
			ended[k] = r.process(processes, k, listener.Addr().String(), dir)
			if ended[k] != nil { // the server may see it too, and say more
				time.AfterFunc(time.Second, func() { stop(ended[k]) })
			}
		})
	}
	result, err := s.Run(run)
	clear()
	late := time.AfterFunc(5*time.Second, kill)
	all.Wait()
	late.Stop()
	return r.finish(result, r.reason(err, context.Cause(run), ended))
}

// reason is what to say when a run fails: a process that refused its input, or died, knows best why.
func (r *execution) reason(err, cause error, ended []error) error {
	if err == nil || r.Ctx.Err() != nil {
		return err
	}
	for _, e := range ended {
		if badinput.Is(e) {
			return e
		}
	}
	if errors.Is(err, context.Canceled) {
		return cause
	}
	for k, e := range ended {
		if exit := (*exec.ExitError)(nil); errors.Is(err, execute.ErrLost) && strings.Contains(err.Error(), fmt.Sprintf("stage %d (", k)) && errors.As(e, &exit) {
			return fmt.Errorf("%w (its process ended: %w)", err, exit)
		}
	}
	return err
}

// process runs a stage in a process of its own until that ends. The error says what it said.
func (r *execution) process(ctx context.Context, stage int, server, keys string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := append(r.command.flags(), "--stage", strconv.Itoa(stage), "--connect", server, "--keys", keys, "--child")
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.WaitDelay = time.Second
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	if err := cmd.Run(); err != nil && ctx.Err() == nil { // or it was ended here, when all was over
		lines := strings.Split(strings.TrimSpace(complaints.String()), "\n")
		last := strings.TrimPrefix(lines[len(lines)-1], "evenkeel: ")
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == cli.ExitBadInput {
			return badinput.Errorf("stage %d: %s", stage, last)
		}
		return fmt.Errorf("the process of stage %d ended: %w: %s", stage, err, last)
	}
	return nil
}
