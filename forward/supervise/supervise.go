// Package supervise runs the processors of a run, each as a process of its own: one that dies is started again and
// catches up with the others.
//
// The arguments of the program say which processor to be; it joins the run through package
// wire, and ends when the run does.
package supervise

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/internal/subprocess"
)

// Processors are the processes of a run.
type Processors struct {
	Program string                  // path of what they run
	Args    func(rank int) []string // its arguments
	Env     []string                // variables beside those of this process, as NAME=VALUE
	// BadInput is the exit status of a processor that refuses its input: it would do so
	// again, so it is not restarted.
	BadInput int
	Pause    time.Duration // before a restart; 0: half a second
	// Died, where it is set, hears of each restart: the error, and the last line that the
	// process wrote to standard error.
	Died func(rank int, err error, last string)
}

const defaultPause = time.Second / 2

// Keep runs one processor until it has ended well, or ctx is done: both are nil. Its error
// is bad input.
func (p *Processors) Keep(ctx context.Context, rank int) error {
	for {
		cmd := subprocess.Command(ctx, p.Program, p.Args(rank)...)
		cmd.Env = append(os.Environ(), p.Env...)
		err := subprocess.Run(cmd)
		if err == nil || ctx.Err() != nil { // ended well, or by us
			return nil //nolint:nilerr // what the end of ctx stopped did not fail
		}
		f := (*subprocess.Failure)(nil)
		if !errors.As(err, &f) {
			return err
		}
		if f.Status == p.BadInput {
			return badinput.Errorf("processor %d: %s", rank, strings.TrimPrefix(f.Last, "evenkeel: "))
		}
		if p.Died != nil {
			p.Died(rank, f.Cause, f.Last)
		}
		pause := p.Pause
		if pause == 0 {
			pause = defaultPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}
