package forward

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/renameio/v2"

	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/forward"
	"github.com/evenkeel/evenkeel/forward/wire"
	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/train/task"
)

// joinCmd runs one processor.
type joinCmd struct {
	NATS       natsFlags `embed:""`
	Rank       int       `help:"Number of this processor, from 0." required:"" placeholder:"R"`
	Data       string    `help:"Path of the run's data file on this machine, if it differs." placeholder:"FILE"`
	Checkpoint string    `help:"Save the weights to this file every half minute, and start from it after a restart." placeholder:"FILE"`
	JSON       bool      `name:"json" help:"Print the summary as JSON."`
}

// joined is the --json document.
type joined struct {
	Rank        int           `json:"rank"`
	Steps       int           `json:"steps"`
	WeightsHash string        `json:"weights_hash"`
	Stats       forward.Stats `json:"stats"`
	Sent        int64         `json:"transport_sent"`     // bytes over the connection in all, including frames
	Received    int64         `json:"transport_received"` // the same
	Joined      int           `json:"joined_at"`          // first step in which it took part
}

// Help is what --help adds.
func (*joinCmd) Help() string {
	return `A processor that died rejoins by the same command: it applies the steps that it missed, then takes part again.

Examples:

  evenkeel forward join --url nats://localhost:4222 --rank 1    # its token in the variable EVENKEEL_NATS_TOKEN
  evenkeel forward join --url tls://nats.example:4222 --ca ca.pem --run mine --rank 3`
}

// saveEvery is how often a processor saves its weights.
const saveEvery = 30 * time.Second

// Run runs the command.
func (c *joinCmd) Run(a *cli.App) error {
	if c.NATS.URL == "" {
		return badinput.Errorf("--url is missing: evenkeel forward launch --manual prints the whole command")
	}
	var traffic wire.Traffic
	conn, err := connect(c.NATS.URL, wire.Options{Token: os.Getenv(tokenVariable), CAFile: c.NATS.CA, Traffic: &traffic})
	if err != nil {
		return err
	}
	defer conn.Close()
	run, err := wire.Join(a.Ctx, conn, c.NATS.Run)
	if err != nil {
		return err
	}
	defer run.Bus.Close()
	var h forward.Header
	if err := json.Unmarshal(run.Header, &h); err != nil {
		return badinput.Errorf("the header of run %s: %w", c.NATS.Run, err)
	}
	if err := h.Config.Validate(); err != nil {
		return badinput.Wrap(err)
	}
	if c.Rank < 0 || c.Rank >= h.Config.Processors {
		return badinput.Errorf("--rank %d: the run has processors 0 to %d", c.Rank, h.Config.Processors-1)
	}
	work, err := taskOf(h, c.Data)
	if err != nil {
		return err
	}
	p, done, err := c.catchUp(a, h, work, run)
	if err != nil {
		return err
	}
	last := time.Now()
	p.Each = func(step int, _ forward.Commit) error {
		if c.Checkpoint == "" || time.Since(last) < saveEvery {
			return nil
		}
		last = time.Now()
		return c.save(h, step+1, p.Weights)
	}
	if err := p.Run(a.Ctx); err != nil {
		return err
	}
	j := joined{c.Rank, h.Config.Steps, p.Weights.Hash(), p.Stats(), traffic.Sent(), traffic.Received(), done}
	result, err := json.Marshal(j)
	if err != nil {
		return err
	}
	if err := run.Bus.Done(a.Ctx, result); err != nil {
		return err
	}
	if c.JSON {
		return a.WriteJSON(j)
	}
	_, err = fmt.Fprintf(a.Out, "processor %d: %d steps, weights %s\n", j.Rank, j.Steps, j.WeightsHash)
	return err
}

// catchUp makes the processor with the weights of the run's last snapshot: from saved weights, if they can be used, else
// from the weights that the run starts with. done is the number of steps that the snapshots cover.
func (c *joinCmd) catchUp(a *cli.App, h forward.Header, work *task.Setup, run *wire.Run) (p *forward.Processor, done int, err error) {
	var snapshots []forward.Snapshot
	for i, b := range run.Snapshots {
		m, err := forward.DecodeSnapshot(&h.Config, b)
		if err != nil {
			return nil, 0, fmt.Errorf("run %s, snapshot %d: %w", c.NATS.Run, i, err)
		}
		snapshots, done = append(snapshots, m), done+len(m.Commits)
	}
	fresh := func() (*forward.Processor, error) {
		p := &forward.Processor{Config: &h.Config, Rank: c.Rank, Model: forward.NewModel(work.Network), Data: work.Training, Weights: forward.NewWeights(work.Network, h.Config.Key), Bus: run.Bus}
		if got := p.Weights.Hash(); got != h.Initial {
			return nil, badinput.Errorf("this program starts with other weights (%s) than the one that launched the run (%s): use the same version", got, h.Initial)
		}
		return p, nil
	}
	if p, err = fresh(); err != nil {
		return nil, 0, err
	}
	if c.Checkpoint != "" {
		if err := c.follow(h, p, snapshots, done); err == nil {
			return p, done, nil
		} else if !errors.Is(err, os.ErrNotExist) {
			a.Log.Warn().Err(err).Msgf("%s cannot be used; all steps are repeated", c.Checkpoint)
		}
		if p, err = fresh(); err != nil {
			return nil, 0, err
		}
	}
	return p, done, p.Follow(snapshots, 0)
}

// follow begins with the saved weights.
func (c *joinCmd) follow(h forward.Header, p *forward.Processor, snapshots []forward.Snapshot, done int) error {
	f, err := os.Open(c.Checkpoint)
	if err != nil {
		return err
	}
	defer f.Close()
	steps, err := forward.ReadWeights(f, h.Initial, p.Weights)
	if err != nil {
		return err
	}
	if steps > done {
		return fmt.Errorf("%w: they are of step %d, the snapshots end at step %d", forward.ErrSavedWeights, steps, done)
	}
	return p.Follow(snapshots, steps)
}

// save writes the weights.
func (c *joinCmd) save(h forward.Header, steps int, w *forward.Weights) error {
	f, err := renameio.NewPendingFile(c.Checkpoint)
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }()
	if err := forward.WriteWeights(f, h.Initial, steps, w); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}
