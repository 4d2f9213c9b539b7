package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/evenkeel/evenkeel/forward"
	"github.com/evenkeel/evenkeel/forward/wire"
)

// tokenVariable holds the server's secret: on a command line everybody could read it.
const tokenVariable = "EVENKEEL_NATS_TOKEN"

// natsFlags say where frames go.
type natsFlags struct {
	URL string `name:"url" help:"An existing NATS server with JetStream, for example tls://host:4222, or nats://localhost:4222; its token in the variable EVENKEEL_NATS_TOKEN." placeholder:"URL"`
	CA  string `name:"ca" help:"Certificate of the authority that signed the server's." placeholder:"FILE" type:"existingfile"`
	Run string `name:"run" help:"Name of the run." default:"forward" placeholder:"NAME"`
}

// forwardLaunchCmd runs a process for every processor.
type forwardLaunchCmd struct {
	forwardFlags
	NATS   natsFlags `embed:""`
	Log    string    `help:"File for the run's log." placeholder:"FILE"`
	Plot   string    `help:"Draw loss and accuracy over forward passes, .svg or .png." placeholder:"FILE"`
	Manual bool      `help:"Start no processes: print the command by which each processor joins by hand, and wait for them. Needs --url."`
}

// Help is what "forward launch --help" adds.
func (*forwardLaunchCmd) Help() string {
	return `Without --url a NATS server runs in this process, on loopback, with a token of its own. A processor that dies takes its pair
out of the run; it is started again and catches up.

  evenkeel forward launch -n 8
  evenkeel forward launch -n 4 --url tls://nats.example:4222 --ca ca.pem --manual`
}

// Run starts and watches the processes.
func (c *forwardLaunchCmd) Run(a *app) error {
	if c.Manual && c.NATS.URL == "" {
		return badInputf("--manual needs --url: nobody else could reach the server in this process")
	}
	var outputs []named
	if c.Plot != "" {
		if err := checkPlot(c.Plot); err != nil {
			return err
		}
		outputs = append(outputs, named{"--plot", c.Plot})
	}
	if c.Log != "" {
		outputs = append(outputs, named{"--log", c.Log})
	}
	if err := checkFiles(c.inputs(), outputs); err != nil {
		return err
	}
	r := &forwardRun{}
	defer r.close()
	var err error
	if r.header, r.work, err = c.header(); err != nil {
		return err
	}
	if c.Log != "" {
		if err := r.begin(c.Log); err != nil {
			return err
		}
	}
	url, token := c.NATS.URL, os.Getenv(tokenVariable)
	if url == "" {
		server, err := wire.Serve(wire.ServerOptions{})
		if err != nil {
			return err
		}
		defer func() { _ = server.Close() }()
		url, token = server.URL(), server.Token()
	}
	conn, err := wire.Connect(url, wire.Options{Token: token, CAFile: c.NATS.CA})
	if err != nil {
		return err
	}
	defer conn.Close()
	text, err := json.Marshal(r.header)
	if err != nil {
		return err
	}
	if err := wire.Create(a.ctx, conn, c.NATS.Run, text); err != nil {
		if errors.Is(err, wire.ErrExists) {
			return badInputf("there is a run named %s on %s already; choose another name with --run", c.NATS.Run, url)
		}
		return err
	}
	defer func() { _ = wire.Remove(context.WithoutCancel(a.ctx), conn, c.NATS.Run) }()
	return c.watch(a, r, conn, url, token)
}

// watch follows the run as an observer while the processes work.
func (c *forwardLaunchCmd) watch(a *app, r *forwardRun, conn *nats.Conn, url, token string) error {
	config := &r.header.Config
	_, bus, err := wire.Join(a.ctx, conn, c.NATS.Run)
	if err != nil {
		return err
	}
	defer bus.Close()
	ctx, stop := context.WithCancel(a.ctx)
	defer stop()
	var children sync.WaitGroup
	defer children.Wait()
	defer stop() // before the wait
	results, failed := make(chan forwardJoined, config.Processors), make([]error, config.Processors)
	for rank := range config.Processors {
		if c.Manual {
			fmt.Fprintf(a.errs, "%s=... evenkeel forward join --url %s --run %s --rank %d\n", tokenVariable, url, c.NATS.Run, rank)
			continue
		}
		children.Go(func() {
			if failed[rank] = c.keep(ctx, a, rank, url, token, results); failed[rank] != nil {
				stop()
			}
		})
	}
	r.watch = newForwardWatch(a, config, r.work, 0)
	observer := &forward.Processor{Config: config, Rank: -1, Data: r.work.Training, Weights: forward.NewWeights(r.work.Network, config.Key), Bus: bus, Each: r.each}
	r.weights = observer.Weights
	begun := time.Now()
	err = observer.Run(ctx)
	r.watch.clear()
	if r.log != nil {
		err = errors.Join(err, r.log.Flush(), r.file.Sync())
	}
	if a.ctx.Err() != nil {
		return &interruption{a.ctx.Err(), fmt.Sprintf("interrupted after %d of %d steps", r.watch.steps, config.Steps)}
	}
	if errors.Is(err, context.Canceled) { // a processor that cannot work
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
	s.WeightsHash = append(s.WeightsHash, r.weights.Hash())
	if r.log != nil {
		s.Log, s.LogBytes = c.Log, r.log.Bytes()
	}
	if c.Plot != "" {
		if err := r.watch.plot(c.Plot); err != nil {
			return err
		}
	}
	if !c.Manual {
		s.WeightsHash = make([]string, config.Processors)
		for range config.Processors {
			select {
			case j := <-results:
				s.WeightsHash[j.Rank] = j.WeightsHash
				s.add(j.Stats)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return s.print(a, c.JSON)
}

// keep runs one processor's process, again whenever it dies, until it has ended well. One that refuses its input would do so
// again: that is an error.
func (c *forwardLaunchCmd) keep(ctx context.Context, a *app, rank int, url, token string, results chan<- forwardJoined) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for {
		args := []string{"forward", "join", "--url", url, "--run", c.NATS.Run, "--rank", strconv.Itoa(rank), "--json"}
		if c.NATS.CA != "" {
			args = append(args, "--ca", c.NATS.CA)
		}
		cmd := exec.CommandContext(ctx, self, args...)
		cmd.Env = append(os.Environ(), tokenVariable+"="+token)
		cmd.WaitDelay = time.Second
		var out, complaints bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &complaints
		err := cmd.Run()
		var j forwardJoined
		if err == nil {
			err = json.Unmarshal(out.Bytes(), &j)
		}
		if err == nil {
			results <- j
			return nil
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was ended by us
		}
		last := ""
		for s := bufio.NewScanner(&complaints); s.Scan(); {
			last = s.Text()
		}
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == exitBadInput {
			return badInputf("processor %d: %s", rank, strings.TrimPrefix(last, "evenkeel: "))
		}
		a.log.Warn().Int("rank", rank).Err(err).Str("said", last).Msg("a processor died; it is started again")
		select {
		case <-time.After(time.Second / 2):
		case <-ctx.Done():
			return nil
		}
	}
}

// forwardJoinCmd is one processor.
type forwardJoinCmd struct {
	NATS natsFlags `embed:""`
	Rank int       `help:"Which processor to be, from 0." required:"" placeholder:"R"`
	Data string    `help:"Where the run's data file is on this machine, if not where the run says." placeholder:"FILE"`
	JSON bool      `name:"json" help:"Print the summary as JSON."`
}

// forwardJoined is the --json document.
type forwardJoined struct {
	Rank        int           `json:"rank"`
	Steps       int           `json:"steps"`
	WeightsHash string        `json:"weights_hash"`
	Stats       forward.Stats `json:"stats"`
}

// Run takes part.
func (c *forwardJoinCmd) Run(a *app) error {
	if c.NATS.URL == "" {
		return badInputf("--url is missing: evenkeel forward launch --manual prints the whole command")
	}
	conn, err := wire.Connect(c.NATS.URL, wire.Options{Token: os.Getenv(tokenVariable), CAFile: c.NATS.CA})
	if err != nil {
		return err
	}
	defer conn.Close()
	text, bus, err := wire.Join(a.ctx, conn, c.NATS.Run)
	if errors.Is(err, wire.ErrNoRun) || errors.Is(err, wire.ErrName) {
		return badInput(err)
	}
	if err != nil {
		return err
	}
	defer bus.Close()
	var h forward.Header
	if err := json.Unmarshal(text, &h); err != nil {
		return badInputf("the header of run %s: %w", c.NATS.Run, err)
	}
	if err := h.Config.Validate(); err != nil {
		return badInput(err)
	}
	if c.Rank < 0 || c.Rank >= h.Config.Processors {
		return badInputf("--rank %d: the run has processors 0 to %d", c.Rank, h.Config.Processors-1)
	}
	work, err := forwardTask(h, c.Data)
	if err != nil {
		return err
	}
	p := &forward.Processor{Config: &h.Config, Rank: c.Rank, Model: forward.NewModel(work.Network), Data: work.Training, Weights: forward.NewWeights(work.Network, h.Config.Key), Bus: bus}
	if got := p.Weights.Hash(); got != h.Initial {
		return badInputf("this program makes other weights to start from (%s) than the one that launched the run (%s): use the same version", got, h.Initial)
	}
	if err := p.Run(a.ctx); err != nil {
		return err
	}
	j := forwardJoined{c.Rank, h.Config.Steps, p.Weights.Hash(), p.Stats()}
	if c.JSON {
		return a.writeJSON(j)
	}
	_, err = fmt.Fprintf(a.out, "processor %d: %d steps, weights %s\n", j.Rank, j.Steps, j.WeightsHash)
	return err
}
