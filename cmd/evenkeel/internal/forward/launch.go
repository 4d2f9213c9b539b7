package forward

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/forward"
	"github.com/evenkeel/evenkeel/forward/supervise"
	"github.com/evenkeel/evenkeel/forward/wire"
	"github.com/evenkeel/evenkeel/internal/badinput"
)

// launchCmd runs a process for every processor.
type launchCmd struct {
	flags
	Server   storeFlags    `embed:""`
	Name     runFlag       `embed:""`
	Log      string        `help:"File for the run's log." placeholder:"FILE"`
	Resume   bool          `help:"Continue where the log ends; flags that describe the run are ignored."`
	Out      string        `help:"Write the weights as safetensors at the end." placeholder:"FILE"`
	Plot     string        `help:"Draw loss and accuracy over forward passes, .svg or .png." placeholder:"FILE"`
	Manual   bool          `help:"Start no processes: print the command that starts each processor, and wait for them. Needs --url."`
	Patience time.Duration `help:"Least time that the processors wait for late pairs (${default})." default:"100ms" placeholder:"T"`
}

// Help is what --help adds.
func (*launchCmd) Help() string {
	return `Without --url a NATS server runs in this process, on loopback, with its own tokens. If a processor dies, the others go
on without its pair; it is restarted and catches up. The server keeps the run in files: after Ctrl-C, or the death of this
process or of the server, the same command continues it. A run on a server of --url stays there until forward remove; on the
server in this process, until the run's end.

Examples:

  evenkeel forward launch -n 8 --log run.log
  evenkeel forward launch --log run.log --resume          # after Ctrl-C
  evenkeel forward launch -n 4 --url tls://nats.example:4222 --ca ca.pem --manual`
}

// Run runs the command.
func (c *launchCmd) Run(a *cli.App) (err error) {
	if c.Manual && c.Server.URL == "" {
		return badinput.Errorf("--manual needs --url: the server in this process is on loopback only")
	}
	r, err := prepareRun(a, &c.flags, c.Log, c.Resume, true, c.Plot)
	if err != nil {
		return err
	}
	l, err := c.Server.open(c.Name.Run)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	run, after, err := c.take(a, r, l)
	if err != nil {
		return err
	}
	if err := r.begin(a); err != nil {
		return err
	}
	err = errors.Join(c.watch(a, r, l, run, after), r.close())
	if l.server != nil && r.replica.Done() {
		err = errors.Join(err, wire.Remove(context.WithoutCancel(a.Ctx), l.Conn, c.Name.Run))
	}
	return err
}

// take makes the run, or takes over one that was left.
func (c *launchCmd) take(a *cli.App, r *session, l *link) (*wire.Run, uint64, error) {
	err := wire.Create(a.Ctx, l.Conn, c.Name.Run, r.encoded, r.before...)
	left := errors.Is(err, wire.ErrExists)
	if err != nil && !left {
		return nil, 0, err
	}
	run, err := wire.Open(a.Ctx, l.Conn, c.Name.Run)
	if err != nil {
		return nil, 0, err
	}
	if !bytes.Equal(run.Header, r.encoded) {
		return nil, 0, badinput.Errorf("a run named %s is on %s already, and differs (%s): give its own flags to go on with it, name another with --run, or delete it by evenkeel forward remove %s%s",
			c.Name.Run, l.url, difference(run.Header, r.header), c.Name.Run, c.Server.again())
	}
	blocks, err := run.Blocks(a.Ctx)
	if err != nil {
		return nil, 0, err
	}
	weights, err := startOf(r.header, r.work, c.Init)
	if err != nil {
		return nil, 0, err
	}
	if r.replica, err = forward.NewReplica(r.encoded, weights); err != nil {
		return nil, 0, err
	}
	r.before, r.blocks = nil, nil
	if left { // else its blocks are those of the log, which were validated
		r.check = newValidator(r.work)
	}
	after, err := applyBlocks(r.replica, blocks, func(b *forward.Block, encoded []byte) error {
		r.before, r.blocks = append(r.before, encoded), append(r.blocks, b)
		if left {
			return r.check.take(r.replica.Steps(), r.replica.Weights)
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	if r.replica.Done() {
		return nil, 0, badinput.Errorf("the run %s on %s is finished: evenkeel forward export %s%s writes its log, forward remove deletes it", c.Name.Run, l.url, c.Name.Run, c.Server.again())
	}
	if left {
		a.Log.Info().Msgf("the run %s goes on after step %d", c.Name.Run, r.replica.Steps())
	}
	return run, after, nil
}

// difference names the first thing in which a run differs from the one that was asked for.
func difference(encoded []byte, h *forward.Header) string {
	there, err := forward.DecodeHeader(encoded)
	if err != nil {
		return err.Error()
	}
	fields := func(of any) (all []string) {
		v := reflect.ValueOf(of)
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			all = append(all, fmt.Sprintf("%s %v", name, v.Field(i)))
		}
		return all
	}
	mine := fields(h.Config)
	for i, f := range fields(there.Config) {
		if f != mine[i] {
			return fmt.Sprintf("%s there, %s here", f, mine[i])
		}
	}
	switch of, mine := stopAfter(there), stopAfter(h); {
	case of != mine: // before the examples, of which it sets some aside
		return fmt.Sprintf("--stop-after %d there, %d here; 0: without", of, mine)
	case there.Data.Count != h.Data.Count:
		return fmt.Sprintf("%d training examples there, %d here", there.Data.Count, h.Data.Count)
	case there.Data != h.Data:
		return "other training examples"
	}
	return "in network or weights"
}

// watch starts the processes and follows the run by its blocks.
func (c *launchCmd) watch(a *cli.App, r *session, l *link, run *wire.Run, after uint64) error {
	config := &r.header.Config
	bus, err := run.Follow(a.Ctx, after)
	if err != nil {
		return err
	}
	defer bus.Close()
	ctx, stop := context.WithCancel(a.Ctx)
	defer stop()
	checkpoints, err := os.MkdirTemp("", "evenkeel-forward-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(checkpoints) }()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var children sync.WaitGroup
	defer children.Wait()
	defer stop() // runs before the wait
	failed := make([]error, config.Processors)
	for rank := range config.Processors {
		if c.Manual {
			c.printJoin(a, config, rank)
			continue
		}
		one := c.process(a, self, l, checkpoints, rank)
		children.Go(func() {
			if failed[rank] = one.Keep(ctx, rank); failed[rank] != nil {
				stop()
			}
		})
	}
	begun := time.Now()
	err = r.check.ask(ctx, run.Stop)
	for err == nil && !r.replica.Done() {
		var m forward.Message
		if m, err = bus.Next(ctx); err == nil && r.replica.Follows(m.Block) {
			var b *forward.Block
			if b, err = r.replica.Apply(m.Block); err == nil {
				err = errors.Join(r.block(b, m.Block), r.check.end(ctx, r.replica, run.Stop))
			}
		}
	}
	r.watch.clear()
	if a.Ctx.Err() != nil {
		return r.interruptedLaunch(a, c.Name.Run)
	}
	if errors.Is(err, context.Canceled) { // a processor refused its input
		children.Wait()
		return errors.Join(failed...)
	}
	if err = errors.Join(err, r.close()); err != nil {
		return err
	}
	s, err := r.watch.summary(r.replica.Weights, time.Since(begun))
	if err != nil {
		return err
	}
	s.Validation = r.check.told()
	if err := c.collect(ctx, run, s, r); err != nil {
		return errors.Join(errors.Join(failed...), err)
	}
	return r.finish(a, s, c.Plot, c.Out, c.JSON)
}

// interruptedLaunch is the error after Ctrl-C.
func (r *session) interruptedLaunch(a *cli.App, name string) error {
	return cli.Interrupted(a.Ctx.Err(), fmt.Sprintf("interrupted after %d of %d steps; the server keeps the run %s: the same command goes on with it, evenkeel forward remove %s deletes it", r.watch.steps, r.header.Config.Steps, name, name))
}

// collect waits for the results of the processors: without limit for those that were started here, a while for others.
func (c *launchCmd) collect(ctx context.Context, run *wire.Run, s *summary, r *session) error {
	const while, pause = 10 * time.Second, 50 * time.Millisecond
	came := make([]*joined, r.header.Config.Processors)
	for begun, missing := time.Now(), len(came); missing > 0 && !(c.Manual && time.Since(begun) > while); {
		results, err := run.Results(ctx)
		if err != nil {
			return err
		}
		missing = len(came)
		for rank, text := range results {
			var j joined
			if err := json.Unmarshal(text, &j); err != nil || j.Rank != rank || rank >= len(came) {
				return fmt.Errorf("rank %d sent what is not the result of a processor: %q", rank, text)
			}
			came[rank] = &j
		}
		for _, j := range came {
			if j != nil {
				missing--
			}
		}
		if missing == 0 {
			break
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, j := range came {
		if j != nil {
			s.WeightsHash = append(s.WeightsHash, j.WeightsHash)
			s.add(j.Stats, j.Steps-j.Joined) // since its last start
			s.addTraffic(*j)
		}
	}
	if s.counted < len(came) {
		s.missing = len(came) - s.counted
	}
	// The weights here follow from the log.
	if s.WeightsHash = append(s.WeightsHash, r.replica.Weights.Hash()); !s.same() {
		return fmt.Errorf("the processors' weights differ from the log's: %v; please report this run with its flags", s.WeightsHash)
	}
	if s.counted > 0 {
		s.WeightsHash = s.WeightsHash[:s.counted]
	}
	return nil
}

// printJoin prints the command that starts a processor.
func (c *launchCmd) printJoin(a *cli.App, config *forward.Config, rank int) {
	more, node := "", ""
	if c.Server.CA != "" {
		more = " --ca " + c.Server.CA
	}
	if c.Init != "" {
		more += " --init " + c.Init
	}
	if c.nodes != nil {
		examples := config.Examples[rank/2]
		node = fmt.Sprintf("   # on %s, %d examples an input", c.nodes[rank], examples)
	}
	fmt.Fprintf(a.Errs, "%s=... evenkeel forward join --url %s%s --run %s --rank %d%s\n", tokenVariable, c.Server.URL, more, c.Name.Run, rank, node)
}

// process is one processor's.
func (c *launchCmd) process(a *cli.App, self string, l *link, checkpoints string, rank int) *supervise.Processors {
	args := func(rank int) []string {
		args := []string{"forward", "join", "--run", c.Name.Run, "--rank", strconv.Itoa(rank), "--url", l.url, "--checkpoint", filepath.Join(checkpoints, strconv.Itoa(rank)), "--patience", c.Patience.String()}
		if c.Server.CA != "" {
			args = append(args, "--ca", c.Server.CA)
		}
		if c.Init != "" {
			args = append(args, "--init", c.Init)
		}
		return args
	}
	died := func(rank int, err error, last string) {
		a.Log.Warn().Int("rank", rank).Err(err).Str("said", last).Msg("a processor died and is restarted")
	}
	return &supervise.Processors{Program: self, Args: args, Env: []string{tokenVariable + "=" + l.rankToken(rank)}, BadInput: cli.ExitBadInput, Died: died}
}
