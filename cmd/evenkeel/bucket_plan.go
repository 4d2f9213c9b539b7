package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/evenkeel/evenkeel/bucket"
)

type bucketPlanCmd struct {
	lengthsFlags
	Table      string    `help:"Trials: CSV length,batch,seconds,peak_bytes; empty seconds is out of memory." required:"" placeholder:"FILE"`
	Ranks      int       `help:"Ranks of the job; default: the number of --speeds." placeholder:"W"`
	Speeds     []float64 `help:"Relative speed per rank, for example 1,2,4." placeholder:"V,..."`
	Memory     int64     `help:"Memory limit in bytes; default: the table's largest peak." placeholder:"BYTES"`
	Mode       string    `help:"Dispatch: ${enum}." enum:"auto,sorted,mixed,same" default:"auto"`
	Boundaries string    `help:"Bucket boundaries: ${enum}." enum:"cost,count,geometric" default:"cost"`
	Uppers     []int     `help:"Upper lengths of the buckets instead." placeholder:"L,..."`
	Buckets    int       `help:"Number of buckets; default: the one with the shortest predicted epoch." placeholder:"N"`
	MaxEpoch   float64   `help:"Fail if no plan is predicted to take at most so many seconds." placeholder:"S"`
	Overlong   string    `help:"A sample that fits nowhere: ${enum}." enum:"error,skip,truncate" default:"error"`
	Out        string    `help:"Write the plan file." placeholder:"FILE"`
	JSON       bool      `name:"json" help:"Print JSON."`
}

// Help is shown under the flags.
func (*bucketPlanCmd) Help() string {
	return `Examples:

  evenkeel bucket plan --lengths lengths.txt --table table.csv --ranks 8 --out plan.json
  evenkeel bucket plan --lengths pairs.csv --column en,de --table table.csv --speeds 1,2,4 --json`
}

// Run is kong's.
func (c *bucketPlanCmd) Run(a *app) error {
	for _, g := range a.given {
		if g == "ranks" && c.Ranks < 1 {
			return badInputf("--ranks %d: must be at least 1", c.Ranks)
		}
	}
	if c.Ranks == 0 && len(c.Speeds) == 0 {
		return badInputf("give --ranks, or --speeds")
	}
	table, err := readTable(c.Table)
	if err != nil {
		return err
	}
	lengths, err := c.read()
	if err != nil {
		return err
	}
	begun := time.Now()
	cost, err := bucket.NewCost(table, c.Memory)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Table, err)
	}
	p, err := bucket.Make(lengths, cost, bucket.Config{Ranks: c.Ranks, Speeds: c.Speeds, Mode: c.Mode, Rule: c.Boundaries, Buckets: c.Buckets,
		Boundaries: c.Uppers, MaxEpoch: c.MaxEpoch, Overlong: c.Overlong})
	if err != nil {
		return err
	}
	took := time.Since(begun).Seconds()
	if c.Out != "" {
		if err := a.writeWhole(c.Out, func(f fileWriter) error {
			text, err := json.Marshal(p)
			if err != nil {
				return err
			}
			_, err = f.Write(append(text, '\n'))
			return err
		}); err != nil {
			return err
		}
	}
	if c.JSON {
		return a.writeJSON(struct {
			*bucket.Plan
			PlanSeconds float64 `json:"plan_seconds"`
		}{p, took})
	}
	return c.show(a, p, took)
}

func (c *bucketPlanCmd) show(a *app, p *bucket.Plan, took float64) error {
	if p.Mode != bucket.Sorted {
		var rows [][]string
		for _, b := range p.Buckets {
			rows = append(rows, []string{fmt.Sprint(b.Upper), fmt.Sprint(b.Samples), fmt.Sprint(b.Batch), seconds(b.Seconds)})
		}
		if err := printLines(a.out, table([]column{{"up to", true}, {"samples", true}, {"batch", true}, {"time", true}}, rows)); err != nil {
			return err
		}
	}
	var rows [][]string
	for _, m := range []string{bucket.Sorted, bucket.Mixed, bucket.Same} {
		if v, ok := p.Modes[m]; ok {
			chosen := ""
			if m == p.Mode {
				chosen = "chosen"
			}
			rows = append(rows, []string{m, seconds(v), fmt.Sprintf("%.2f%%", 100*(v/p.LowerBoundSeconds-1)), chosen})
		}
	}
	if err := printLines(a.out, table([]column{{"dispatch", false}, {"predicted epoch", true}, {"over the bound", true}, {"", false}}, rows)); err != nil {
		return err
	}
	rows = append(bucketScore(p.Score, p.LowerBoundSeconds), []string{"anchor duration", seconds(p.AnchorSeconds)},
		[]string{"epoch by the anchor alone", seconds(p.AnchorEpochT)}, []string{"seconds predicted by", p.Prediction}, []string{"planned in", seconds(took)})
	fmt.Fprintln(a.out)
	return printLines(a.out, table(twoColumns, rows)[1:])
}

type bucketScheduleCmd struct {
	lengthsFlags
	Plan   string `help:"Plan file of evenkeel bucket plan." required:"" placeholder:"FILE"`
	Seed   uint64 `help:"Seed of the order." default:"1"`
	Epoch  uint64 `help:"Epoch; each has an order of its own." default:"0"`
	Resume string `help:"State file to go on from, instead of --seed and --epoch." placeholder:"FILE"`
	Out    string `help:"Schedule file; default: standard output." placeholder:"FILE"`
}

// Help is shown under the flags.
func (*bucketScheduleCmd) Help() string {
	return `Examples:

  evenkeel bucket schedule --lengths lengths.txt --plan plan.json --epoch 3 --out epoch3.jsonl
  evenkeel bucket schedule --lengths lengths.txt --plan plan.json --resume state.json --out rest.jsonl`
}

// Run is kong's.
func (c *bucketScheduleCmd) Run(a *app) error {
	lengths, err := c.read()
	if err != nil {
		return err
	}
	f, err := os.Open(c.Plan)
	if err != nil {
		return opened(err)
	}
	defer f.Close()
	p, err := bucket.ReadPlan(f, c.Plan, lengths)
	if err != nil {
		return err
	}
	from := bucket.State{Seed: c.Seed, Epoch: c.Epoch}
	if c.Resume != "" {
		text, err := readLimited(c.Resume, 1024)
		if err != nil {
			return opened(err)
		}
		if from, err = bucket.ReadState(text, c.Resume, p); err != nil {
			return err
		}
	}
	s := p.Schedule(lengths, from.Seed, from.Epoch)
	tell, clear := a.progress("schedule")
	defer clear()
	return a.writeWhole(c.Out, func(w fileWriter) error {
		return p.WriteSchedule(w, s, from, func(done, total int) error {
			tell(done, total)
			return a.ctx.Err()
		})
	})
}
