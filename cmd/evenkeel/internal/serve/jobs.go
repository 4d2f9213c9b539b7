package serve

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
	"evenkeel/serve"
)

// JobsCmd looks at and changes the jobs of a service.
type JobsCmd struct {
	List   jobsList   `cmd:"" help:"List the jobs."`
	Show   jobsShow   `cmd:"" help:"Show a job: its gain, its ranks and their shares."`
	Create jobsCreate `cmd:"" help:"Make a job, and print its token."`
	Change jobsChange `cmd:"" help:"Pause a job, or change what it is tuned for."`
	Delete jobsDelete `cmd:"" help:"Delete jobs and everything learnt about them."`
	Token  jobsToken  `cmd:"" help:"Make another token of a job, and print it."`
	Tokens jobsTokens `cmd:"" help:"List a job's tokens."`
	Revoke jobsRevoke `cmd:"" help:"Revoke a token of a job."`
}

// Help is what --help adds.
func (*JobsCmd) Help() string {
	return `The jobs of a running evenkeel serve. The token in EVENKEEL_TOKEN is a job's own, which opens that job, or the
administrator's, which opens all jobs.

Examples:

  evenkeel jobs list
  evenkeel jobs show mine
  evenkeel jobs change mine --speed 1 --energy 0.3
  EVENKEEL_TOKEN=$(cat token) evenkeel jobs list --url https://evenkeel.example:7070`
}

// service has the flags of commands that call a service.
type service struct {
	URL string `name:"url" help:"Service, or several that share a journal, separated by commas; default: the variable EVENKEEL_URL, or http://127.0.0.1:7070. The token is read from EVENKEEL_TOKEN, the certificate authority's file from EVENKEEL_CA." placeholder:"URL"`
}

// call sends a request about a path of a job, or about all jobs with "", and reads the answer.
func (s *service) call(ctx context.Context, method, job, path string, body, out any) error {
	c, err := newClient(s.URL, os.Getenv)
	if err != nil {
		return err
	}
	defer c.close()
	return c.do(ctx, method, job, path, body, out)
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
	if err := o.call(a.Ctx, method, o.Name, "", body, &state); err != nil {
		return err
	}
	if o.JSON {
		return a.WriteJSON(state)
	}
	lines := newSummary(state, 0).lines()
	if state.Paused {
		lines = append(lines, "Paused: sizes stay as they are; evenkeel jobs change --no-pause "+state.Name)
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
	return `Needs a token of the service; a job's own token opens that job alone (evenkeel jobs show).

Examples:

  evenkeel jobs list
  EVENKEEL_TOKEN=$(cat token) evenkeel jobs list --url https://evenkeel.example:7070 --json`
}

// Run runs the command.
func (c *jobsList) Run(a *cli.App) error {
	var out struct {
		Jobs []serve.JobState `json:"jobs"`
	}
	if err := c.call(a.Ctx, http.MethodGet, "", "", nil, &out); err != nil {
		if refusedWith(err, http.StatusUnauthorized) {
			err = fmt.Errorf("%w; a job's own token opens that job alone: evenkeel jobs show NAME", err)
		}
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
		gain, speed := "", ""
		if j.Gain > 0 {
			gain = fmt.Sprintf("%.2fx", j.Gain)
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

type jobsChange struct {
	oneJob
	Pause     *bool          `help:"Leave the sizes as they are; --no-pause lets them change again." negatable:""`
	Limit     map[string]int `help:"Largest micro-batch of a rank, until the process group starts anew; repeatable." placeholder:"RANK=N"`
	Speed     *float64       `help:"Weight of speed." placeholder:"X"`
	Waiting   *float64       `help:"Weight of ranks that do not wait." placeholder:"X"`
	Freshness *float64       `help:"Weight of gradients of the newest model." placeholder:"X"`
	Energy    *float64       `help:"Weight of energy; needs ranks whose device's power is known." placeholder:"X"`
}

// Help is what --help adds.
func (*jobsChange) Help() string {
	return `Of the weights only the proportions count. If one of them is given, those that are not become 0.

Examples:

  evenkeel jobs change mine --pause
  evenkeel jobs change mine --no-pause --speed 1 --energy 0.3
  evenkeel jobs change mine --limit host-a/0=16 --limit host-b/0=8`
}

// Run runs the command.
func (c *jobsChange) Run(a *cli.App) error {
	change := map[string]any{}
	if c.Pause != nil {
		change["paused"] = *c.Pause
	}
	if len(c.Limit) > 0 {
		change["limits"] = c.Limit
	}
	weights := map[string]float64{}
	for name, w := range map[string]*float64{"speed": c.Speed, "waiting": c.Waiting, "freshness": c.Freshness, "energy": c.Energy} {
		if w != nil {
			weights[name] = *w
		}
	}
	if len(weights) > 0 {
		change["objectives"] = weights
	}
	if len(change) == 0 {
		return badinput.New("jobs change: nothing to change; give --pause, --limit or a weight, --speed 1 for example")
	}
	return c.send(a, http.MethodPatch, change)
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
		if err := c.call(a.Ctx, http.MethodDelete, name, "", nil, nil); err != nil {
			return err
		}
		a.Log.Info().Str("job", name).Msg("deleted")
	}
	return nil
}
