package forward

import (
	"fmt"
	"io"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats.go"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/forward"
	"evenkeel/forward/wire"
	"evenkeel/internal/badinput"
)

// runsCmd lists runs, or shows one.
type runsCmd struct {
	Server natsFlags `embed:""`
	Name   string    `arg:"" optional:"" help:"Name of a run to show; default: list all."`
	JSON   bool      `name:"json" help:"Print JSON."`
}

// state describes how far a run is.
type state struct {
	Name       string     `json:"name"`
	Steps      int        `json:"steps"`
	Of         int        `json:"of"`
	Stopped    bool       `json:"stopped,omitempty"` // with its last step, as somebody asked
	Processors int        `json:"processors"`
	Tensors    int        `json:"tensors"`
	Loss       float64    `json:"loss,omitempty"` // of the last block
	Last       *time.Time `json:"last,omitempty"` // message
	Absent     []int      `json:"absent_steps"`   // by pair
	Bytes      uint64     `json:"bytes"`
}

// Help is what --help adds.
func (*runsCmd) Help() string {
	return `Reads only the runs' blocks: the network and the data are not needed.

Examples:

  evenkeel forward runs --url nats://localhost:4222     # its token in the variable EVENKEEL_NATS_TOKEN
  evenkeel forward runs mine --url nats://localhost:4222`
}

// Run runs the command.
func (c *runsCmd) Run(a *cli.App) error {
	conn, err := c.Server.open(c.Name)
	if err != nil {
		return err
	}
	defer conn.Close()
	if c.Name != "" {
		return c.show(a, conn)
	}
	names, err := wire.Runs(a.Ctx, conn)
	if err != nil {
		return err
	}
	all := []*state{}
	for _, name := range names {
		s, err := stateOf(a, conn, name)
		if err != nil {
			a.Log.Warn().Err(err).Msgf("run %s", name)
			continue
		}
		all = append(all, s)
	}
	if c.JSON {
		return a.WriteJSON(all)
	}
	rows := make([][]string, len(all))
	for i, s := range all {
		rows[i] = []string{s.Name, s.far(), fmt.Sprint(s.Processors), humanize.Bytes(s.Bytes), since(s.Last)}
	}
	return cli.PrintLines(a.Out, cli.Table([]cli.Column{cli.Left("run"), cli.Right("steps"), cli.Right("processors"), cli.Right("size"), cli.Right("last message")}, rows))
}

// far describes how far a run is.
func (s *state) far() string {
	text := fmt.Sprintf("%d of %d", s.Steps, s.Of)
	if s.Stopped {
		text += ", stopped"
	}
	return text
}

func since(t *time.Time) string {
	if t == nil {
		return "none"
	}
	return humanize.Time(*t)
}

// stored is a run as the server has it.
type stored struct {
	run    *wire.Run
	header *forward.Header
	raw    [][]byte // blocks
	blocks []*forward.Block
	done   bool
}

// readRun reads a run's header and its blocks, without its weights.
func readRun(a *cli.App, conn *nats.Conn, name string) (*stored, error) {
	run, err := wire.Open(a.Ctx, conn, name)
	if err != nil {
		return nil, err
	}
	chain, err := forward.NewChain(run.Header)
	if err != nil {
		return nil, err
	}
	all, err := run.Blocks(a.Ctx)
	s := &stored{run: run, header: chain.Header}
	for _, b := range all {
		if block, err := chain.Next(b.Data); err == nil { // others are repeated or damaged
			s.raw, s.blocks = append(s.raw, b.Data), append(s.blocks, block)
		}
	}
	s.done = chain.Done()
	return s, err
}

// stateOf reads how far a run is.
func stateOf(a *cli.App, conn *nats.Conn, name string) (*state, error) {
	r, err := readRun(a, conn, name)
	if err != nil {
		return nil, err
	}
	c := &r.header.Config
	s := &state{Name: name, Of: c.Steps, Processors: c.Processors, Tensors: len(r.header.Tensors), Absent: make([]int, c.Processors/2)}
	for _, block := range r.blocks {
		s.Steps += len(block.Steps)
		s.Loss, s.Stopped = block.Loss, block.Last
		for _, step := range block.Steps {
			for pair := range s.Absent {
				if !step.Counts(pair) {
					s.Absent[pair]++
				}
			}
		}
	}
	s.Bytes, s.Last, err = r.run.Size(a.Ctx)
	return s, err
}

// show shows one run.
func (c *runsCmd) show(a *cli.App, conn *nats.Conn) error {
	s, err := stateOf(a, conn, c.Name)
	if err != nil {
		return err
	}
	if c.JSON {
		return a.WriteJSON(s)
	}
	lines := []string{
		fmt.Sprintf("steps           %s", s.far()), fmt.Sprintf("processors      %d", s.Processors),
		fmt.Sprintf("loss            %.4f in the last %d steps", s.Loss, forward.BlockSteps), fmt.Sprintf("last message    %s", since(s.Last)),
	}
	for pair, n := range s.Absent {
		if n > 0 {
			lines = append(lines, fmt.Sprintf("pair %-3d        absent in %d steps (ranks %d and %d)", pair, n, 2*pair, 2*pair+1))
		}
	}
	return cli.PrintLines(a.Out, lines)
}

// stopCmd ends a run early.
type stopCmd struct {
	Server natsFlags `embed:""`
	Name   string    `arg:"" help:"Name of the run."`
}

// Help is what --help adds.
func (*stopCmd) Help() string {
	return `All processors end with the present block of 64 steps, with the same weights; the log records that they were asked to. This needs
the token that creates runs.

Examples:

  evenkeel forward stop mine --url nats://localhost:4222`
}

// Run runs the command.
func (c *stopCmd) Run(a *cli.App) error {
	conn, err := c.Server.open(c.Name)
	if err != nil {
		return err
	}
	defer conn.Close()
	r, err := readRun(a, conn, c.Name)
	if err != nil {
		return err
	}
	if r.done {
		return badinput.Errorf("the run %s is finished", c.Name)
	}
	return r.run.Stop(a.Ctx)
}

// removeCmd deletes a run.
type removeCmd struct {
	Server natsFlags `embed:""`
	Name   string    `arg:"" help:"Name of the run."`
}

// Help is what --help adds.
func (*removeCmd) Help() string {
	return `Removes everything that the server has of the run. To keep its result, write its log first: evenkeel forward export.

Examples:

  evenkeel forward remove mine --url nats://localhost:4222`
}

// Run runs the command.
func (c *removeCmd) Run(a *cli.App) error {
	conn, err := c.Server.open(c.Name)
	if err != nil {
		return err
	}
	defer conn.Close()
	return wire.Remove(a.Ctx, conn, c.Name)
}

// exportCmd writes a run's log.
type exportCmd struct {
	Server natsFlags `embed:""`
	Name   string    `arg:"" help:"Name of the run."`
	Log    string    `help:"File for the log." required:"" placeholder:"FILE"`
}

// Help is what --help adds.
func (*exportCmd) Help() string {
	return `A run's header and blocks are its log. Any client that can read the run can write the log, during the run or after its
end. forward replay computes the weights from it.

Examples:

  evenkeel forward export mine --url tls://nats.example:4222 --ca ca.pem --log run.log`
}

// Run runs the command.
func (c *exportCmd) Run(a *cli.App) error {
	if err := cli.CheckFiles(nil, []cli.File{cli.FileFlag("--log", c.Log)}); err != nil {
		return err
	}
	conn, err := c.Server.open(c.Name)
	if err != nil {
		return err
	}
	defer conn.Close()
	r, err := readRun(a, conn, c.Name)
	if err != nil {
		return err
	}
	return cli.WriteFile(c.Log, func(w io.Writer) error {
		for _, b := range append([][]byte{r.run.Header}, r.raw...) {
			if _, err := w.Write(b); err != nil {
				return err
			}
		}
		return nil
	})
}
