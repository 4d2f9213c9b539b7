package bucket

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"evenkeel/bucket"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
)

type scheduleCmd struct {
	lengthsFlags
	ranksFlags
	Plan   string `help:"Plan file of evenkeel bucket plan." required:"" placeholder:"FILE"`
	Seed   uint64 `help:"Seed of the order, together with the epoch. Default: ${default}." default:"1"`
	Epoch  uint64 `help:"Epoch, from 0. Each has batches and an order of its own. Default: ${default}." default:"0"`
	Resume string `help:"Resume state: continue its epoch after its steps, on the same ranks or on others, instead of --seed and --epoch." placeholder:"FILE"`
	Out    string `help:"Schedule to write. Default: standard output." placeholder:"FILE"`
	JSON   bool   `help:"Print a summary as JSON (needs --out)."`
}

// Help is what --help adds.
func (*scheduleCmd) Help() string {
	return `One line per batch: step, rank, weight (of the batch's mean loss) and positions of the samples. A rank with several batches in a step
accumulates their gradients. The same plan, lengths, seed and epoch give the same bytes on every machine. The ranks are those of the plan,
or of --ranks, --speeds or --cluster; with --resume they share the rest of the epoch. Column, pair and scale are those of the plan.

Examples:

  evenkeel bucket schedule --plan plan.json --lengths lengths.txt --epoch 3 --out epoch3.jsonl
  evenkeel bucket schedule --plan plan.json --lengths lengths.txt --resume state.json --out rest.jsonl
  evenkeel bucket schedule --plan plan.json --lengths lengths.txt --resume state.json --ranks 3 --out rest.jsonl`
}

// Run runs the command.
func (c *scheduleCmd) Run(a *cli.App) error {
	if err := c.check(a); err != nil {
		return err
	}
	p, err := readFile(c.Plan, bucket.ReadPlan)
	if err != nil {
		return err
	}
	var state bucket.State
	if c.Resume != "" {
		if state, err = readFile(c.Resume, bucket.ReadState); err != nil {
			return err
		}
	}
	if r := p.Read; r != nil { // a flag that is given goes before
		c.Column, c.Scale = cmp.Or(c.Column, r.Column), cmp.Or(c.Scale, r.Scale)
		if !slices.Contains(a.Given, "pair") {
			c.Pair = r.Pair
		}
	}
	l, err := c.lengthsFlags.read()
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := p.Bind(l); err != nil {
		return err
	}
	if c.Resume == "" {
		state = bucket.State{Data: p.Data, Seed: c.Seed, Epoch: c.Epoch}
	}
	speeds, err := c.speeds(p, state)
	if err != nil {
		return err
	}
	s, from, err := p.Resume(l, state, speeds)
	if err != nil {
		return err
	}
	h := p.Header(s, state.Seed, state.Epoch, from)
	if c.Out == "" {
		return bucket.WriteSchedule(stoppable{a, a.Out}, h, s)
	}
	s.Fill()
	took := time.Since(begun).Seconds()
	if err := cli.WriteFile(c.Out, func(w io.Writer) error { return bucket.WriteSchedule(stoppable{a, w}, h, s) }); err != nil {
		return err
	}
	if c.JSON {
		return a.WriteJSON(struct {
			bucket.Header
			ScheduleSeconds float64 `json:"schedule_seconds"`
			Out             string  `json:"out"`
		}{h, took, c.Out})
	}
	fmt.Fprintf(a.Out, "%s from step %d of epoch %d under seed %d, %s, scheduled in %s. Written to %s.\n",
		cli.Count(h.Steps-from, "step"), from, h.Epoch, h.Seed, cli.Count(h.Ranks, "rank"), cli.Seconds(took), c.Out)
	return nil
}

// speeds are those of the flags, else of the state, else of the plan. If the flags give only the number of ranks, they are those of the state or
// the plan, whichever has as many.
func (c *scheduleCmd) speeds(p *bucket.Plan, s bucket.State) ([]float64, error) {
	f, err := c.config()
	if err != nil || f.Speeds != nil {
		return f.Speeds, err
	}
	known := [][]float64{p.Speeds}
	if n := len(s.Parts); n > 0 && s.Step > 0 {
		known = [][]float64{s.Parts[n-1].Speeds, p.Speeds}
	}
	if f.Ranks == 0 {
		return known[0], nil
	}
	if i := slices.IndexFunc(known, func(v []float64) bool { return len(v) == f.Ranks }); i >= 0 {
		return known[i], nil
	}
	if slices.ContainsFunc(known[0], func(v float64) bool { return v != 1 }) {
		return nil, badinput.Errorf("--ranks %d: the %d ranks before differ in speed: give the speed of each by --speeds", f.Ranks, len(known[0]))
	}
	return slices.Repeat([]float64{1}, f.Ranks), nil
}

// check looks at the flags before any work.
func (c *scheduleCmd) check(a *cli.App) error {
	if c.JSON && c.Out == "" {
		return badinput.Errorf("--json: standard output has the schedule itself; name a file with --out")
	}
	if c.Resume != "" && (slices.Contains(a.Given, "seed") || slices.Contains(a.Given, "epoch")) {
		return badinput.Errorf("--resume: seed and epoch come from the state; leave out --seed and --epoch")
	}
	return cli.CheckFiles([]cli.File{cli.FileFlag("--lengths", c.Lengths), cli.FileFlag("--plan", c.Plan), cli.FileFlag("--resume", c.Resume)}, []cli.File{cli.FileFlag("--out", c.Out)})
}

// stoppable ends a long write on Ctrl-C.
type stoppable struct {
	a *cli.App
	w io.Writer
}

func (s stoppable) Write(b []byte) (int, error) {
	if err := s.a.Ctx.Err(); err != nil {
		return 0, err
	}
	return s.w.Write(b)
}
