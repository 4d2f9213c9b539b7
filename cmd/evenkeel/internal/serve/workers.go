package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"evenkeel/cluster"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
)

// WorkersCmd plays the ranks of jobs.
type WorkersCmd struct {
	service
	Job string `help:"Name of the job; default: the variable EVENKEEL_JOB, or job." placeholder:"NAME"`
	cli.ClusterFlags
	Conditions string        `help:"Conditions instead of the cluster file's: ${conditions}." placeholder:"NAME"`
	Rounds     int           `help:"Rounds of each job (${default})." default:"100" placeholder:"N"`
	Seed       uint64        `help:"Random seed (${default}); the jobs count upwards from it." default:"1" placeholder:"N"`
	Speed      float64       `help:"Simulated seconds per second (${default}); 0: as fast as the service answers." default:"1" placeholder:"X"`
	Own        bool          `help:"Ranks report for themselves, as in a job without all-reduce, and new sizes take effect at once; otherwise rank 0 reports for all."`
	Patience   time.Duration `help:"How long rounds go on without an answer from the service (${default})." default:"1m" placeholder:"D"`
	Jobs       int           `help:"Jobs at a time (${default}), numbered from 0 if there are several." default:"1" placeholder:"N"`
	JSON       bool          `name:"json" help:"Print the result as JSON, and nothing else."`
}

// Help is what --help adds.
func (*WorkersCmd) Help() string {
	return `Each node of the cluster file is a rank that takes as long as its profile says, under the file's conditions, without
computing anything.

Examples:

  evenkeel serve -- evenkeel workers --speed 100
  evenkeel serve --deadline auto -- evenkeel workers --cluster my.yaml --conditions bursts --speed 0 --rounds 1000
  evenkeel workers --url https://evenkeel.example:7070 --jobs 20 --speed 0
  evenkeel workers --own --speed 0                        # ranks report for themselves`
}

// played is the outcome of a job's rounds.
type played struct {
	Job      string  `json:"job"`
	Rounds   int     `json:"rounds"`
	Samples  int     `json:"samples"`
	Seconds  float64 `json:"seconds"`  // simulated
	Verdicts counts  `json:"verdicts"` // of the reports
	Sizes    []int   `json:"sizes"`    // the last

	answers []float64 // seconds that the service took
}

type counts map[string]int

// result is the outcome of all jobs.
type result struct {
	Jobs          []played `json:"jobs"`
	Reports       int      `json:"reports"`
	AnswerMedian  float64  `json:"answer_seconds_median"`
	AnswerHighest float64  `json:"answer_seconds_p99"`
}

// Run runs the command.
func (c *WorkersCmd) Run(a *cli.App) error {
	for _, x := range []struct {
		flag            string
		is, least, most float64
	}{{"rounds", float64(c.Rounds), 1, cli.MaxRounds}, {"speed", c.Speed, 0, 1e6}, {"jobs", float64(c.Jobs), 1, 1000}} {
		if !(x.is >= x.least && x.is <= x.most) {
			return badinput.Errorf("--%s: %v is outside %v to %v", x.flag, x.is, x.least, x.most)
		}
	}
	catalogue, err := c.Catalogue()
	if err != nil {
		return err
	}
	_, file, cl, err := cli.LoadCluster(c.Cluster, catalogue)
	if err != nil {
		return err
	}
	if cl.Choices.MostBatch > 0 {
		return badinput.Errorf("%s: global_batch: is a range, %d to %d; a running job keeps one global batch: give one number", c.Cluster, cl.Choices.LeastBatch, cl.Choices.MostBatch)
	}
	conditions := file.Conditions.Conditions
	if c.Conditions != "" {
		if conditions, err = cli.Conditions(c.Conditions); err != nil {
			return err
		}
	}
	to, err := newClient(c.URL, os.Getenv)
	if err != nil {
		return err
	}
	defer to.close()
	to.log = a.Log
	r, err := c.play(a.Ctx, to, cl, conditions)
	if errors.Is(err, context.Canceled) {
		return cli.Interrupted(err, fmt.Sprintf("interrupted after %s", cli.Count(r.Reports, "report")))
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return a.WriteJSON(r)
	}
	return cli.PrintLines(a.Out, r.lines())
}

// play plays all jobs at once; the first error ends them.
func (c *WorkersCmd) play(ctx context.Context, to *client, cl *cluster.Cluster, conditions cluster.Conditions) (result, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	name := cmp.Or(c.Job, os.Getenv("EVENKEEL_JOB"), "job")
	jobs, errs := make([]*ranks, c.Jobs), make([]error, c.Jobs)
	var all sync.WaitGroup
	for k := range jobs {
		own := name
		if c.Jobs > 1 {
			own = fmt.Sprintf("%s-%d", name, k)
		}
		jobs[k] = newRanks(to, own, cl, conditions, c.Seed+uint64(k))
		jobs[k].own = c.Own
		all.Go(func() {
			if errs[k] = jobs[k].run(ctx, c.Rounds, c.Speed, c.Patience); errs[k] != nil {
				stop()
			}
		})
	}
	all.Wait()
	r := result{}
	var answers []float64
	for _, j := range jobs {
		r.Jobs = append(r.Jobs, j.played)
		r.Reports += len(j.answers)
		answers = append(answers, j.answers...)
	}
	if slices.Sort(answers); len(answers) > 0 {
		r.AnswerMedian, r.AnswerHighest = answers[len(answers)/2], answers[len(answers)*99/100]
	}
	// What went wrong comes before those jobs that were stopped for it.
	if k := slices.IndexFunc(errs, func(err error) bool { return err != nil && !errors.Is(err, context.Canceled) }); k >= 0 {
		return r, errs[k]
	}
	return r, errors.Join(errs...)
}

func (r *result) lines() []string {
	var rows [][]string
	for _, j := range r.Jobs {
		rows = append(rows, []string{j.Job, fmt.Sprint(j.Rounds), fmt.Sprint(j.Samples), cli.Rate(float64(j.Samples) / max(j.Seconds, 1e-9)), fmt.Sprint(j.Verdicts["accepted"])})
	}
	lines := cli.Table([]cli.Column{cli.Left("job"), cli.Right("rounds"), cli.Right("samples"), cli.Right("samples/s, simulated"), cli.Right("accepted")}, rows)
	return append(lines, fmt.Sprintf("The service answered %s in %s at the median, 99 in 100 within %s.", cli.Count(r.Reports, "report"), cli.Seconds(r.AnswerMedian), cli.Seconds(r.AnswerHighest)))
}

// wait waits for so long, or until ctx is done.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
