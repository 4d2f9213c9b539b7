package forward

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/forward"
	"github.com/evenkeel/evenkeel/forward/supervise"
	"github.com/evenkeel/evenkeel/forward/wire"
	"github.com/evenkeel/evenkeel/internal/badinput"
)

// tokenVariable holds the server's token: a command line is visible to other users.
const tokenVariable = "EVENKEEL_NATS_TOKEN"

// natsFlags name the NATS server and the run.
type natsFlags struct {
	URL string `name:"url" help:"NATS server with JetStream, for example tls://host:4222 or nats://localhost:4222; its token is read from the variable EVENKEEL_NATS_TOKEN." placeholder:"URL"`
	CA  string `name:"ca" help:"Certificate of the authority that signed the server's certificate." placeholder:"FILE" type:"existingfile"`
	Run string `name:"run" help:"Name of the run (${default})." default:"forward" placeholder:"NAME"`
}

// connect is wire.Connect, with a hint about the token.
func connect(url string, o wire.Options) (*nats.Conn, error) {
	conn, err := wire.Connect(url, o)
	if errors.Is(err, nats.ErrAuthorization) {
		return nil, badinput.Errorf("%w: put the server's token into the variable %s", err, tokenVariable)
	}
	return conn, err
}

// launchCmd runs a process for every processor.
type launchCmd struct {
	flags
	NATS   natsFlags `embed:""`
	Log    string    `help:"File for the run's log." placeholder:"FILE"`
	Resume bool      `help:"Continue where the log ends; flags that describe the run are ignored."`
	Plot   string    `help:"Draw loss and accuracy over forward passes, .svg or .png." placeholder:"FILE"`
	Manual bool      `help:"Start no processes: print the command that starts each processor, and wait for them. Needs --url."`
}

// Help is what --help adds.
func (*launchCmd) Help() string {
	return `Without --url a NATS server runs in this process, on loopback, with its own token. When a processor dies, its pair leaves the
run; the processor is restarted and catches up.

Examples:

  evenkeel forward launch -n 8 --log run.log
  evenkeel forward launch --log run.log --resume          # after Ctrl-C
  evenkeel forward launch -n 4 --url tls://nats.example:4222 --ca ca.pem --manual`
}

// Run runs the command.
func (c *launchCmd) Run(a *cli.App) error {
	if c.Manual && c.NATS.URL == "" {
		return badinput.Errorf("--manual needs --url: the server in this process is on loopback only")
	}
	r, err := prepareRun(&c.flags, c.Log, c.Resume, c.Plot)
	if err != nil {
		return err
	}
	defer r.close()
	url, token := c.NATS.URL, os.Getenv(tokenVariable)
	if url == "" {
		server, err := wire.Serve(wire.ServerOptions{})
		if err != nil {
			return err
		}
		defer func() { _ = server.Close() }()
		url, token = server.URL(), server.Token()
	}
	conn, err := connect(url, wire.Options{Token: token, CAFile: c.NATS.CA})
	if err != nil {
		return err
	}
	defer conn.Close()
	text, err := json.Marshal(r.header)
	if err != nil {
		return err
	}
	observer := &forward.Processor{Config: &r.header.Config, Rank: -1, Data: r.work.Training, Weights: forward.NewWeights(r.work.Network, r.header.Config.Key)}
	snapshots := r.snapshots()
	if err := observer.Follow(snapshots, 0); err != nil {
		return err
	}
	r.weights = observer.Weights
	var encoded [][]byte
	for i, m := range snapshots {
		if i == len(snapshots)-1 {
			m.Weights = r.weights.Hash()
		}
		encoded = append(encoded, m.Encode(nil))
	}
	if err := wire.Create(a.Ctx, conn, c.NATS.Run, text, encoded...); err != nil {
		if errors.Is(err, wire.ErrExists) {
			return badinput.Errorf("a run named %s exists on %s already; choose another name with --run", c.NATS.Run, url)
		}
		return err
	}
	defer func() { _ = wire.Remove(context.WithoutCancel(a.Ctx), conn, c.NATS.Run) }()
	return c.watch(a, r, observer, conn, url, token)
}

// snapshots hold the steps of the log that is continued, in parts that fit into a message.
func (r *session) snapshots() []forward.Snapshot {
	const most = 2048
	var snapshots []forward.Snapshot
	for part := range slices.Chunk(r.from, most) {
		snapshots = append(snapshots, forward.NewSnapshot(&r.header.Config, part))
	}
	return snapshots
}

// snapshotEvery is the number of steps between snapshots; who joins later skips the frames before the last one.
const snapshotEvery = 64

// watch starts the processes and follows the run as an observer.
func (c *launchCmd) watch(a *cli.App, r *session, observer *forward.Processor, conn *nats.Conn, url, token string) error {
	config := &r.header.Config
	run, err := wire.Join(a.Ctx, conn, c.NATS.Run)
	if err != nil {
		return err
	}
	defer run.Bus.Close()
	ctx, stop := context.WithCancel(a.Ctx)
	defer stop()
	checkpoints, err := os.MkdirTemp("", "evenkeel-forward-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(checkpoints) }()
	processes, err := c.processes(a, url, checkpoints, token)
	if err != nil {
		return err
	}
	var children sync.WaitGroup
	defer children.Wait()
	defer stop() // runs before the wait
	failed := make([]error, config.Processors)
	for rank := range config.Processors {
		if c.Manual {
			c.printJoin(a, config, rank, url)
			continue
		}
		children.Go(func() {
			if failed[rank] = processes.Keep(ctx, rank); failed[rank] != nil {
				stop()
			}
		})
	}
	r.watch = newMonitor(a, config, r.work, len(r.from))
	var since []forward.Commit
	observer.Bus = run.Bus
	observer.Each = func(step int, commit forward.Commit) error {
		since = append(since, commit)
		if len(since) == snapshotEvery {
			if err := run.Bus.PublishSnapshot(ctx, observer.Snapshot(since).Encode(nil)); err != nil {
				return err
			}
			since = nil
		}
		return r.each(step, commit)
	}
	begun := time.Now()
	err = observer.Run(ctx)
	r.watch.clear()
	if r.log != nil {
		err = errors.Join(err, r.log.Flush(), r.file.Sync())
	}
	if a.Ctx.Err() != nil {
		return r.interrupted(a, "launch", c.Log)
	}
	if errors.Is(err, context.Canceled) { // a processor refused its input
		children.Wait()
		return errors.Join(failed...)
	}
	if err != nil {
		return err
	}
	s, err := r.watch.summary(r.weights, time.Since(begun))
	if err != nil {
		return err
	}
	if r.log != nil {
		s.Log, s.LogBytes = c.Log, r.log.Bytes()
	}
	if c.Plot != "" {
		if err := r.watch.plot(c.Plot); err != nil {
			return err
		}
	}
	if err := c.collect(ctx, run.Bus, s, r); err != nil {
		return errors.Join(errors.Join(failed...), err)
	}
	return s.print(a, c.JSON)
}

// collect waits for the results of the processors: without limit for those that were started here, a while for others.
func (c *launchCmd) collect(ctx context.Context, bus *wire.Bus, s *summary, r *session) error {
	const while, pause = 10 * time.Second, 50 * time.Millisecond
	came := make([]*joined, r.header.Config.Processors)
	for begun, missing := time.Now(), len(came); missing > 0 && !(c.Manual && time.Since(begun) > while); {
		results, err := bus.Results(ctx)
		if err != nil {
			return err
		}
		missing = len(came)
		for _, text := range results {
			var j joined
			if err := json.Unmarshal(text, &j); err != nil || j.Rank < 0 || j.Rank >= len(came) {
				return fmt.Errorf("not the result of a processor: %q", text)
			}
			came[j.Rank] = &j
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
	// The observer has the weights that follow from the log.
	if s.WeightsHash = append(s.WeightsHash, r.weights.Hash()); !s.same() {
		return fmt.Errorf("the processors' weights differ from the log's: %v; please report this run with its flags", s.WeightsHash)
	}
	if s.counted > 0 {
		s.WeightsHash = s.WeightsHash[:s.counted]
	}
	return nil
}

// printJoin prints the command that starts a processor.
func (c *launchCmd) printJoin(a *cli.App, config *forward.Config, rank int, url string) {
	ca, node := "", ""
	if c.NATS.CA != "" {
		ca = " --ca " + c.NATS.CA
	}
	if c.nodes != nil {
		examples := config.Examples[rank/2]
		node = fmt.Sprintf("   # on %s, %d examples an input", c.nodes[rank], examples)
	}
	fmt.Fprintf(a.Errs, "%s=... evenkeel forward join --url %s%s --run %s --rank %d%s\n", tokenVariable, url, ca, c.NATS.Run, rank, node)
}

// processes are the processes of the run.
func (c *launchCmd) processes(a *cli.App, url, checkpoints, token string) (*supervise.Processors, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := func(rank int) []string {
		args := []string{"forward", "join", "--run", c.NATS.Run, "--rank", strconv.Itoa(rank), "--url", url, "--checkpoint", filepath.Join(checkpoints, strconv.Itoa(rank))}
		if c.NATS.CA != "" {
			args = append(args, "--ca", c.NATS.CA)
		}
		return args
	}
	died := func(rank int, err error, last string) {
		a.Log.Warn().Int("rank", rank).Err(err).Str("said", last).Msg("a processor died and is restarted")
	}
	return &supervise.Processors{Program: self, Args: args, Env: []string{tokenVariable + "=" + token}, BadInput: cli.ExitBadInput, Died: died}, nil
}
