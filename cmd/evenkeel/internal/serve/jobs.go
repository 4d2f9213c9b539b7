package serve

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"

	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/serve"
)

// JobsCmd looks at and changes the jobs of a service.
type JobsCmd struct {
	List    jobsList    `cmd:"" help:"List the jobs."`
	Show    jobsShow    `cmd:"" help:"Show a job: its gain, its ranks and their shares."`
	Pause   jobsPause   `cmd:"" help:"Leave a job's sizes as they are."`
	Resume  jobsResume  `cmd:"" help:"Let a paused job's sizes change again."`
	Weights jobsWeights `cmd:"" help:"Change what a job is tuned for."`
	Limits  jobsLimits  `cmd:"" help:"Change the largest micro-batch of some ranks."`
	Delete  jobsDelete  `cmd:"" help:"Delete jobs, and what was learnt about them."`
	Create  jobsCreate  `cmd:"" help:"Make a job, and print its token."`
	Token   jobsToken   `cmd:"" help:"Make another token of a job, and print it."`
	Tokens  jobsTokens  `cmd:"" help:"List a job's tokens."`
	Revoke  jobsRevoke  `cmd:"" help:"Revoke a token of a job."`
}

// Help is what --help adds.
func (*JobsCmd) Help() string {
	return `The jobs of a running evenkeel serve. The token in EVENKEEL_TOKEN is a job's own, which opens that job, or the
administrator's, which opens all jobs.

Examples:

  evenkeel jobs list
  evenkeel jobs show mine
  evenkeel jobs weights mine --speed 1 --energy 0.3
  EVENKEEL_TOKEN=$(cat token) evenkeel jobs list --url https://evenkeel.example:7070`
}

// service has the flags of commands that call a service.
type service struct {
	URL string `name:"url" help:"Service, or several that share a journal, separated by commas; default: the variable EVENKEEL_URL, or http://127.0.0.1:7070. The token is read from EVENKEEL_TOKEN, the certificate authority's file from EVENKEEL_CA." placeholder:"URL"`
}

// call sends a request about a job, or all with "", and reads the answer.
func (s *service) call(ctx context.Context, method, job string, body, out any) error {
	return s.under(ctx, method, job, "", body, out)
}

// under sends a request about what lies under a job's path.
func (s *service) under(ctx context.Context, method, job, under string, body, out any) error {
	c, err := newClient(s.URL, os.Getenv)
	if err != nil {
		return err
	}
	defer c.close()
	return c.do(ctx, method, job, under, body, out)
}

// oneJob has the flags of commands about one job, which print it.
type oneJob struct {
	Name string `arg:"" help:"Name of the job."`
	service
	JSON bool `name:"json" help:"Print JSON."`
}

// send sends a request about the job, and prints what the job is then.
func (o *oneJob) send(a *cli.App, method string, body any) error {
	var state serve.JobState
	if err := o.call(a.Ctx, method, o.Name, body, &state); err != nil {
		return err
	}
	if o.JSON {
		return a.WriteJSON(state)
	}
	lines := newSummary(state, 0).lines()
	if state.Paused {
		lines = append(lines, "Paused: sizes stay as they are; evenkeel jobs resume "+state.Name)
	}
	if state.Objectives != (serve.Weights{}) {
		w := state.Objectives
		lines = append(lines, fmt.Sprintf("Weights: speed %g, waiting %g, freshness %g, energy %g", w.Speed, w.Waiting, w.Freshness, w.Energy))
	}
	return cli.PrintLines(a.Out, lines)
}

type jobsList struct {
	service
	JSON bool `name:"json" help:"Print JSON."`
}

// Help is what --help adds.
func (*jobsList) Help() string {
	return `With a job's own token the list has only that job; name it in EVENKEEL_JOB.

Examples:

  evenkeel jobs list
  EVENKEEL_TOKEN=$(cat token) evenkeel jobs list --url https://evenkeel.example:7070 --json`
}

// Run runs the command.
func (c *jobsList) Run(a *cli.App) error {
	var out struct {
		Jobs []serve.JobState `json:"jobs"`
	}
	err := c.call(a.Ctx, http.MethodGet, "", nil, &out)
	if name := os.Getenv("EVENKEEL_JOB"); name != "" && refusedWith(err, http.StatusUnauthorized) { // its own token opens that job alone
		out.Jobs = make([]serve.JobState, 1)
		err = c.call(a.Ctx, http.MethodGet, name, nil, &out.Jobs[0])
	} else if refusedWith(err, http.StatusUnauthorized) {
		err = fmt.Errorf("%w; a job's own token lists that job, if EVENKEEL_JOB names it", err)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return a.WriteJSON(out)
	}
	if len(out.Jobs) == 0 {
		return cli.PrintLines(a.Out, []string{"No jobs; a training job makes one when it registers (evenkeel.Tuner)."})
	}
	rows := [][]string{}
	for _, j := range out.Jobs {
		s := newSummary(j, 0)
		gain, speed := "", ""
		if s.Gain > 0 {
			gain = fmt.Sprintf("%.2fx", s.Gain)
		}
		if j.Recent.Rounds > 0 {
			speed = cli.Rate(j.Recent.SamplesPerSecond)
		}
		rows = append(rows, []string{j.Name, strconv.Itoa(len(j.Ranks)), strconv.Itoa(j.Rounds), speed, cli.Percent(j.Recent.Idle), gain, cmp.Or(j.Problem, map[bool]string{true: "paused"}[j.Paused])})
	}
	return cli.PrintLines(a.Out, cli.Table([]cli.Column{
		cli.Left("job"), cli.Right("ranks"), cli.Right("rounds"), cli.Right("samples/s"), cli.Right("idle"), cli.Right("gain"), cli.Left(""),
	}, rows))
}

type jobsShow struct{ oneJob }

// Help is what --help adds.
func (*jobsShow) Help() string {
	return `Examples:

  evenkeel jobs show mine
  evenkeel jobs show mine --json`
}

// Run runs the command.
func (c *jobsShow) Run(a *cli.App) error {
	return c.send(a, http.MethodGet, nil)
}

type jobsPause struct{ oneJob }

// Help is what --help adds.
func (*jobsPause) Help() string {
	return `Examples:

  evenkeel jobs pause mine`
}

// Run runs the command.
func (c *jobsPause) Run(a *cli.App) error {
	return c.send(a, http.MethodPatch, map[string]bool{"paused": true})
}

type jobsResume struct{ oneJob }

// Help is what --help adds.
func (*jobsResume) Help() string {
	return `Examples:

  evenkeel jobs resume mine`
}

// Run runs the command.
func (c *jobsResume) Run(a *cli.App) error {
	return c.send(a, http.MethodPatch, map[string]bool{"paused": false})
}

type jobsWeights struct {
	oneJob
	Speed     float64 `help:"Weight of speed." placeholder:"X"`
	Waiting   float64 `help:"Weight of ranks that do not wait." placeholder:"X"`
	Freshness float64 `help:"Weight of gradients of the newest model." placeholder:"X"`
	Energy    float64 `help:"Weight of energy; needs ranks whose device's power is known." placeholder:"X"`
}

// Run runs the command.
func (c *jobsWeights) Run(a *cli.App) error {
	w := serve.Weights{Speed: c.Speed, Waiting: c.Waiting, Freshness: c.Freshness, Energy: c.Energy}
	if w == (serve.Weights{}) {
		return badinput.New("jobs weights: give at least one weight above 0, --speed 1 for example; only their proportions count")
	}
	return c.send(a, http.MethodPatch, map[string]serve.Weights{"objectives": w})
}

// Help is what --help adds.
func (*jobsWeights) Help() string {
	return `Replaces all four weights; a weight that is not given becomes 0.

Examples:

  evenkeel jobs weights mine --speed 1
  evenkeel jobs weights mine --speed 1 --energy 0.3`
}

type jobsLimits struct {
	oneJob
	Limits map[string]int `arg:"" help:"Largest micro-batches by rank." placeholder:"RANK=N"`
}

// Run runs the command.
func (c *jobsLimits) Run(a *cli.App) error {
	return c.send(a, http.MethodPatch, map[string]map[string]int{"limits": c.Limits})
}

// Help is what --help adds.
func (*jobsLimits) Help() string {
	return `The limits hold until the process group starts anew.

Examples:

  evenkeel jobs limits mine host-a/0=16 host-b/0=8`
}

type jobsDelete struct {
	Names []string `arg:"" help:"Names of the jobs."`
	service
}

// Help is what --help adds.
func (*jobsDelete) Help() string {
	return `Examples:

  evenkeel jobs delete mine another`
}

// Run runs the command.
func (c *jobsDelete) Run(a *cli.App) error {
	for _, name := range slices.Compact(c.Names) {
		if err := c.call(a.Ctx, http.MethodDelete, name, nil, nil); err != nil {
			return err
		}
		a.Log.Info().Str("job", name).Msg("deleted")
	}
	return nil
}
