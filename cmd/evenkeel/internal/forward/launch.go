package forward

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/forward"
	"evenkeel/forward/wire"
	"evenkeel/internal/badinput"
)

// launchCmd creates a run on a server and follows it.
type launchCmd struct {
	flags
	Server natsFlags `embed:""`
	Name   runFlag   `embed:""`
}

// Help is what --help adds.
func (*launchCmd) Help() string {
	return `The server is one of forward serve, or any NATS server with JetStream; its token is read from the variable
EVENKEEL_NATS_TOKEN. The server keeps the run: after Ctrl-C, or the death of this process, the run goes on, and the same
command follows it again. It stays on the server until forward remove.

Examples:

  evenkeel forward launch -n 8 --url nats://localhost:4222
  evenkeel forward launch -n 4 --url tls://nats.example:4222 --ca ca.pem --run mine`
}

// Run runs the command.
func (c *launchCmd) Run(a *cli.App) error {
	if err := cli.CheckFiles(c.inputs(), nil); err != nil {
		return err
	}
	r, err := c.session()
	if err != nil {
		return err
	}
	conn, err := c.Server.open(c.Name.Run)
	if err != nil {
		return err
	}
	defer conn.Close()
	run, after, err := c.take(a, r, conn)
	if err != nil {
		return err
	}
	r.watch = newMonitor(a, &r.header.Config, r.work, r.blocks)
	for rank := range r.header.Config.Processors {
		c.printJoin(a, &r.header.Config, rank)
	}
	return c.follow(a, r, run, after)
}

// take creates the run, or takes over one that was left.
func (c *launchCmd) take(a *cli.App, r *session, conn *nats.Conn) (*wire.Run, uint64, error) {
	err := wire.Create(a.Ctx, conn, c.Name.Run, r.encoded)
	left := errors.Is(err, wire.ErrExists)
	if err != nil && !left {
		return nil, 0, err
	}
	run, err := wire.Open(a.Ctx, conn, c.Name.Run)
	if err != nil || !left {
		return run, 0, err
	}
	if !bytes.Equal(run.Header, r.encoded) {
		return nil, 0, badinput.Errorf("a run named %s is on %s already, and differs (%s): give the flags that it began with to continue it, choose another name with --run, or delete it with evenkeel forward remove %s --url %s",
			c.Name.Run, c.Server.URL, difference(run.Header, r.header), c.Name.Run, c.Server.URL)
	}
	blocks, err := run.Blocks(a.Ctx)
	if err != nil {
		return nil, 0, err
	}
	after, err := applyBlocks(r.replica, blocks, func(b *forward.Block) error {
		r.blocks = append(r.blocks, b)
		return r.check.take(r.replica.Steps(), r.replica.Weights)
	})
	if err != nil {
		return nil, 0, err
	}
	if r.replica.Done() {
		return nil, 0, badinput.Errorf("the run %s on %s is finished: evenkeel forward export %s --url %s writes its log, forward remove deletes it", c.Name.Run, c.Server.URL, c.Name.Run, c.Server.URL)
	}
	a.Log.Info().Msgf("the run %s goes on after step %d", c.Name.Run, r.replica.Steps())
	return run, after, nil
}

// difference names the first thing in which a run differs from the one that was asked for.
func difference(encoded []byte, h *forward.Header) string {
	there, err := forward.DecodeHeader(encoded)
	if err != nil {
		return err.Error()
	}
	theirs, mine := settings(there), settings(h)
	for _, name := range slices.Sorted(maps.Keys(mine)) {
		if a, b := fmt.Sprint(theirs[name]), fmt.Sprint(mine[name]); a != b {
			return fmt.Sprintf("%s %s there, %s %s here", name, a, name, b)
		}
	}
	return "in data, network or weights"
}

// settings are those of a run by name.
func settings(h *forward.Header) map[string]any {
	values := map[string]any{}
	text, err := json.Marshal(h.Config)
	if err != nil || json.Unmarshal(text, &values) != nil {
		return nil // a configuration always encodes
	}
	values["stop_after"] = stopAfter(h)
	return values
}

// follow follows the run by its blocks, to its end.
func (c *launchCmd) follow(a *cli.App, r *session, run *wire.Run, after uint64) error {
	bus, err := run.Follow(a.Ctx, after)
	if err != nil {
		return err
	}
	defer bus.Close()
	begun := time.Now()
	err = r.check.ask(a.Ctx, run.Stop)
	for err == nil && !r.replica.Done() {
		var m forward.Message
		if m, err = bus.Next(a.Ctx); err == nil && r.replica.Follows(m.Block) {
			var b *forward.Block
			if b, err = r.replica.Apply(m.Block); err == nil {
				err = errors.Join(r.block(b, m.Block), r.check.end(a.Ctx, r.replica, run.Stop))
			}
		}
	}
	r.watch.clear()
	if a.Ctx.Err() != nil {
		return cli.Interrupted(a.Ctx.Err(), fmt.Sprintf("interrupted after %d of %d steps; the run goes on: the same command follows it again, evenkeel forward stop %s ends it", r.watch.steps, r.header.Config.Steps, c.Name.Run))
	}
	if err != nil {
		return err
	}
	s, err := r.watch.summary(r.replica.Weights, time.Since(begun))
	if err != nil {
		return err
	}
	s.Validation = r.check.told()
	if err := collect(a.Ctx, run, s, r); err != nil {
		return err
	}
	if err := s.print(a, c.JSON); err != nil {
		return err
	}
	return s.absence()
}

// collect waits a while for the results of the processors, and compares their weights with those computed from the blocks.
func collect(ctx context.Context, run *wire.Run, s *summary, r *session) error {
	const while, pause = 10 * time.Second, 50 * time.Millisecond
	came := map[int]joined{}
	for begun := time.Now(); len(came) < r.header.Config.Processors && time.Since(begun) < while; {
		results, err := run.Results(ctx)
		if err != nil {
			return err
		}
		for rank, text := range results {
			var j joined
			if err := json.Unmarshal(text, &j); err != nil || j.Rank != rank || rank >= r.header.Config.Processors {
				return fmt.Errorf("rank %d sent an invalid result: %q", rank, text)
			}
			came[rank] = j
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, rank := range slices.Sorted(maps.Keys(came)) {
		j := came[rank]
		s.WeightsHash = append(s.WeightsHash, j.WeightsHash)
		s.add(j.Stats, j.Steps-j.Joined) // since its last start
		s.addTraffic(j)
	}
	s.missing = r.header.Config.Processors - len(came)
	if s.WeightsHash = append(s.WeightsHash, r.replica.Weights.Hash()); !s.same() {
		return fmt.Errorf("the processors' weights differ from those computed from the run's blocks: %v; please report this run with its flags", s.WeightsHash)
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
		node = fmt.Sprintf("   # on %s, %d examples an input", c.nodes[rank], config.Examples[rank/2])
	}
	fmt.Fprintf(a.Errs, "%s=... evenkeel forward join --url %s%s --run %s --rank %d%s\n", tokenVariable, c.Server.URL, more, c.Name.Run, rank, node)
}
