package forward

import (
	"encoding/json"
	"fmt"
	"time"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/forward"
	"evenkeel/forward/wire"
	"evenkeel/internal/badinput"
)

// joinCmd runs one processor.
type joinCmd struct {
	NATS     natsFlags     `embed:""`
	Name     runFlag       `embed:""`
	Rank     int           `help:"Number of this processor, from 0." required:"" placeholder:"R"`
	Data     string        `help:"Path of the run's data file on this machine, if it differs." placeholder:"FILE"`
	Init     string        `help:"Weights that the run begins with, if they come from a file." placeholder:"FILE"`
	Patience time.Duration `help:"Least time to wait for late pairs before the run goes on without them (${default}); the run waits twice as long as half of the pairs take, but at least this long." default:"100ms" placeholder:"T"`
	JSON     bool          `name:"json" help:"Print the summary as JSON."`
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
	return `A processor that died rejoins with the same command: it applies the steps that it missed, then takes part again.

Examples:

  evenkeel forward join --url nats://localhost:4222 --rank 1    # its token in the variable EVENKEEL_NATS_TOKEN
  evenkeel forward join --url tls://nats.example:4222 --ca ca.pem --run mine --rank 3`
}

// Run runs the command.
func (c *joinCmd) Run(a *cli.App) error {
	var traffic wire.Traffic
	conn, err := c.NATS.connect(wire.Options{Rank: c.Rank, Traffic: &traffic})
	if err != nil {
		return err
	}
	defer conn.Close()
	run, err := wire.Open(a.Ctx, conn, c.Name.Run)
	if err != nil {
		return err
	}
	h, err := forward.DecodeHeader(run.Header)
	if err != nil {
		return badinput.Errorf("run %s: %w", c.Name.Run, err)
	}
	if c.Rank < 0 || c.Rank >= h.Config.Processors {
		return badinput.Errorf("--rank %d: the run has processors 0 to %d", c.Rank, h.Config.Processors-1)
	}
	work, err := taskOf(h, c.Data)
	if err != nil {
		return err
	}
	blocks, err := run.Blocks(a.Ctx)
	if err != nil {
		return err
	}
	weights := forward.NewWeights(work.Network, h.Config.Key)
	if h.Initial != forward.FromKey {
		if weights, err = initialWeights(h, c.Init); err != nil {
			return err
		}
	}
	replica, err := forward.NewReplica(run.Header, weights)
	if err != nil {
		return err
	}
	after, err := applyBlocks(replica, blocks, nil)
	if err != nil {
		return err
	}
	bus, err := run.Join(a.Ctx, c.Rank, after)
	if err != nil {
		return err
	}
	defer bus.Close()
	p := &forward.Processor{Replica: replica, Rank: c.Rank, Model: forward.NewModel(work.Network), Data: work.Training, Bus: bus, Patience: c.Patience}
	began := replica.Steps()
	if err := p.Run(a.Ctx); err != nil {
		return err
	}
	j := joined{c.Rank, p.Steps(), p.Weights.Hash(), p.Stats(), traffic.Sent(), traffic.Received(), began}
	result, err := json.Marshal(j)
	if err != nil {
		return err
	}
	if err := bus.Result(a.Ctx, result); err != nil {
		return err
	}
	if c.JSON {
		return a.WriteJSON(j)
	}
	_, err = fmt.Fprintf(a.Out, "processor %d: %d steps, weights %s\n", j.Rank, j.Steps, j.WeightsHash)
	return err
}

// applyBlocks applies a run's blocks, and calls each, if not nil, after every one. after is the position from which the run's
// messages go on.
func applyBlocks(r *forward.Replica, blocks []wire.Block, each func(*forward.Block) error) (after uint64, err error) {
	for _, b := range blocks {
		if !r.Follows(b.Data) {
			continue // repeated, or damaged
		}
		block, err := r.Apply(b.Data)
		if err != nil {
			return 0, err
		}
		after = block.Position
		if each != nil {
			if err := each(block); err != nil {
				return 0, err
			}
		}
	}
	return after, nil
}
