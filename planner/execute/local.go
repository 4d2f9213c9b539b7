package execute

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"evenkeel/internal/badinput"
	"evenkeel/internal/subprocess"
)

// Local runs all stages of a plan on this machine over loopback: the server in this process, every other stage in a process of its own.
type Local struct {
	Server  *Server // Run sets its keys and listener
	Keys    string  // folder of MakeKeys; "": temporary keys
	Program string  // path of the program that runs a stage's Client
	// Args returns the program's arguments, given its stage, the server's address and the folder of keys.
	Args func(stage int, server, keys string) []string
	// BadInput is the exit status by which the program says that its input is bad.
	BadInput int
}

const (
	localKeysValid = 24 * time.Hour
	localGrace     = 5 * time.Second // in which the processes must end after the server has ended
)

// Run runs the plan to its end, or until ctx is done. No process outlives it.
func (l *Local) Run(ctx context.Context) (*Result, error) {
	stages := len(l.Server.Job.Plan.Stages)
	if stages == 1 {
		return l.Server.Run(ctx)
	}
	dir := l.Keys
	if dir == "" {
		temporary, err := os.MkdirTemp("", "evenkeel-keys-")
		if err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(temporary) }() // nobody uses these keys any more
		dir = temporary
		if err := MakeKeys(dir, stages, time.Now(), localKeysValid); err != nil {
			return nil, err
		}
	}
	var err error
	if l.Server.Keys, err = LoadKeys(dir, 0, time.Now()); err != nil {
		return nil, err
	}
	if l.Server.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	address := l.Server.Listener.Addr().String()
	run, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	processes, kill := context.WithCancel(context.WithoutCancel(ctx)) // they end when the server ends; kill is for those that do not
	defer kill()
	var all sync.WaitGroup
	ended := make([]error, stages)
	for k := 1; k < stages; k++ {
		all.Go(func() {
			ended[k] = l.process(processes, k, address, dir)
			if ended[k] != nil { // the server probably notices too, and says more
				time.AfterFunc(time.Second, func() { stop(ended[k]) })
			}
		})
	}
	result, err := l.Server.Run(run)
	late := time.AfterFunc(localGrace, kill)
	all.Wait()
	late.Stop()
	if err != nil && ctx.Err() == nil {
		err = reason(err, context.Cause(run), ended)
	}
	return result, err
}

// reason is why a run failed. A process that refused its input or died explains it best.
func reason(err, cause error, ended []error) error {
	for _, e := range ended {
		if badinput.Is(e) {
			return e
		}
	}
	if errors.Is(err, context.Canceled) {
		return cause
	}
	for k, e := range ended {
		if exit := (*exec.ExitError)(nil); errors.Is(err, errLost) && strings.Contains(err.Error(), fmt.Sprintf("stage %d (", k)) && errors.As(e, &exit) {
			return fmt.Errorf("%w (its process ended: %w)", err, exit)
		}
	}
	return err
}

// process runs a stage in a process of its own until it ends. The error has the last line that the process wrote.
func (l *Local) process(ctx context.Context, stage int, server, keys string) error {
	var errs subprocess.Tail
	cmd := exec.CommandContext(ctx, l.Program, l.Args(stage, server, keys)...)
	cmd.Stderr, cmd.WaitDelay = &errs, time.Second
	err := cmd.Run()
	if err == nil || ctx.Err() != nil {
		return nil //nolint:nilerr // it ended well, or was killed here after the run
	}
	last := strings.TrimPrefix(errs.LastLine(), "evenkeel: ")
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == l.BadInput {
		return badinput.Errorf("stage %d: %s", stage, last)
	}
	return fmt.Errorf("the process of stage %d ended: %w: %s", stage, err, last)
}
