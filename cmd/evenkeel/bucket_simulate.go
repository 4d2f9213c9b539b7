package main

import (
	"fmt"
	"os"
	"time"

	"github.com/evenkeel/evenkeel/bucket"
	"github.com/evenkeel/evenkeel/internal/chart"
)

type bucketSimulateCmd struct {
	lengthsFlags
	Table    string    `help:"Trials to score with: CSV length,batch,seconds,peak_bytes." required:"" placeholder:"FILE"`
	Schedule string    `help:"Schedule file, JSON Lines." required:"" placeholder:"FILE"`
	Speeds   []float64 `help:"Relative speed per rank; default: all equal." placeholder:"V,..."`
	Memory   int64     `help:"Memory limit in bytes; default: the table's largest peak." placeholder:"BYTES"`
	Plot     string    `help:"Draw the step times per rank (.svg or .png)." placeholder:"FILE"`
	JSON     bool      `name:"json" help:"Print JSON."`
}

// Help is shown under the flags.
func (*bucketSimulateCmd) Help() string {
	return `Another sampler's schedule is scored too: one line {"evenkeel_schedule":1,"ranks":8}, then a line {"step":0,"rank":0,"samples":[5,2]}
per batch.

Examples:

  evenkeel bucket simulate --lengths lengths.txt --table table.csv --schedule epoch0.jsonl --plot steps.svg
  evenkeel bucket simulate --lengths lengths.txt --table table.csv --schedule theirs.jsonl --json`
}

// plotSteps bounds how many steps are drawn.
const plotSteps = 2000

// Run is kong's.
func (c *bucketSimulateCmd) Run(a *app) error {
	begun := time.Now()
	table_, err := readTable(c.Table)
	if err != nil {
		return err
	}
	cost, err := bucket.NewCost(table_, c.Memory)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Table, err)
	}
	lengths, err := c.read()
	if err != nil {
		return err
	}
	f, err := os.Open(c.Schedule)
	if err != nil {
		return opened(err)
	}
	defer f.Close()
	h, steps, err := bucket.ReadSchedule(f, c.Schedule)
	if err != nil {
		return err
	}
	if h.Data != "" && h.Data != lengths.Checksum() {
		return badInputf("%s: data is %q, these lengths are %q: the schedule is of other data", c.Schedule, h.Data, lengths.Checksum())
	}
	speeds := c.Speeds
	if speeds == nil {
		for range h.Ranks {
			speeds = append(speeds, 1)
		}
	}
	if len(speeds) != h.Ranks {
		return badInputf("--speeds: %d of them, the schedule has %d ranks", len(speeds), h.Ranks)
	}
	for _, v := range speeds {
		if !(v > 0) {
			return badInputf("--speeds: %v must be above 0", v)
		}
	}
	times := make([][]float64, h.Ranks)
	tell, clear := a.progress("simulate")
	defer clear()
	score, err := bucket.Judge(lengths, steps, cost, speeds, h.Limit, func(step int, perRank []float64) {
		tell(step, max(step, h.Steps))
		if step < plotSteps && c.Plot != "" {
			for r, v := range perRank {
				times[r] = append(times[r], v)
			}
		}
	})
	if err != nil {
		return err
	}
	bound := bucket.Bound(lengths, cost, speeds)
	if c.Plot != "" {
		p := chart.Panel{XLabel: "step", YLabel: "seconds"}
		for r, y := range times {
			x := make([]float64, len(y))
			for i := range x {
				x[i] = float64(i)
			}
			p.Series = append(p.Series, chart.Series{Name: fmt.Sprintf("rank %d", r), Kind: chart.Line, X: x, Y: y})
		}
		if err := (chart.Figure{Title: "Step times per rank", Panels: []chart.Panel{p}}).Save(c.Plot); err != nil {
			return err
		}
	}
	if c.JSON {
		return a.writeJSON(struct {
			bucket.Score
			Bound  float64 `json:"lower_bound_seconds"`
			Anchor float64 `json:"anchor_seconds"` // 0: a schedule has none
			Took   float64 `json:"plan_seconds"`   // of the simulation
		}{score, bound, 0, time.Since(begun).Seconds()})
	}
	return printLines(a.out, table(twoColumns, bucketScore(score, bound))[1:])
}
