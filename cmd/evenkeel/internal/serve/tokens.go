package serve

import (
	"net/http"
	"time"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
	"evenkeel/serve"
)

// jobsCreate makes a job before its training starts.
type jobsCreate struct {
	Name string `arg:"" help:"Name of the job."`
	service
	GlobalBatch int    `help:"Samples per round over all ranks; default: the number that the training job registers." placeholder:"N"`
	Workload    string `help:"Workload of the job, if the catalogue of profiles has it; otherwise the service learns the ranks' pace." placeholder:"NAME"`
	Deadline    string `help:"When rounds end: 1.5s, 110% of the predicted time, or auto; default: when the last rank is done." placeholder:"D"`
}

// Help is what --help adds.
func (*jobsCreate) Help() string {
	return `Needs the administrator's token. Prints the job's first token, which may change and delete the job. The token is shown
only once; evenkeel jobs token makes others.

Examples:

  evenkeel jobs create mine > mine.token
  EVENKEEL_TOKEN=$(cat token) evenkeel jobs create mine --deadline auto > mine.token`
}

// Run runs the command.
func (c *jobsCreate) Run(a *cli.App) error {
	var made struct {
		serve.JobState
		Token string `json:"token,omitempty"`
	}
	settings := serve.Settings{GlobalBatch: c.GlobalBatch, Workload: c.Workload, Deadline: c.Deadline}
	if err := c.call(a.Ctx, http.MethodGet, c.Name, "", nil, nil); err == nil {
		return badinput.Errorf("there is a job %q already; evenkeel jobs token makes another token of it", c.Name)
	}
	if err := c.call(a.Ctx, http.MethodPut, c.Name, "", settings, &made); err != nil {
		return err
	}
	if made.Token == "" { // a service without tokens
		a.Log.Info().Str("job", c.Name).Msg("created; this service needs no token")
		return nil
	}
	return cli.PrintLines(a.Out, []string{made.Token})
}

// jobsToken makes another token of a job.
type jobsToken struct {
	Name string `arg:"" help:"Name of the job."`
	service
	Scope   string         `help:"What the token allows: read to look, report also to register and report (all that a training job needs), admin also to change and delete the job (${default})." default:"report" enum:"read,report,admin"`
	Expires time.Duration  `help:"How long the token is valid, 720h for example; default: until it is revoked." placeholder:"D"`
	Retire  *time.Duration `help:"How long the job's older tokens of this scope stay valid; default: until they are revoked." placeholder:"D"`
}

// Help is what --help adds.
func (*jobsToken) Help() string {
	return `The token is shown only once. With --retire it replaces the older tokens of its scope, which stay valid for that long, so that there is time to hand it out.

Examples:

  evenkeel jobs token mine > mine.token
  evenkeel jobs token mine --scope report --retire 24h > mine.token`
}

// Run runs the command.
func (c *jobsToken) Run(a *cli.App) error {
	body := map[string]any{"scope": c.Scope}
	if c.Expires != 0 {
		if c.Expires < time.Second {
			return badinput.Errorf("--expires: %v is below a second", c.Expires)
		}
		body["expires_in_seconds"] = int(c.Expires / time.Second)
	}
	if c.Retire != nil {
		if *c.Retire < 0 {
			return badinput.Errorf("--retire: %v is below 0", *c.Retire)
		}
		body["retire_in_seconds"] = int(*c.Retire / time.Second)
	}
	var made serve.TokenState
	if err := c.call(a.Ctx, http.MethodPost, c.Name, "/tokens", body, &made); err != nil {
		return err
	}
	return cli.PrintLines(a.Out, []string{made.Token})
}

// jobsTokens lists a job's tokens.
type jobsTokens struct {
	Name string `arg:"" help:"Name of the job."`
	service
	JSON bool `name:"json" help:"Print JSON."`
}

// Help is what --help adds.
func (*jobsTokens) Help() string {
	return `The service keeps only a hash of each token; the token's id is the beginning of the hash.

Examples:

  evenkeel jobs tokens mine`
}

// Run runs the command.
func (c *jobsTokens) Run(a *cli.App) error {
	var out struct {
		Tokens []serve.TokenState `json:"tokens"`
	}
	if err := c.call(a.Ctx, http.MethodGet, c.Name, "/tokens", nil, &out); err != nil {
		return err
	}
	if c.JSON {
		return a.WriteJSON(out)
	}
	when := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339)
	}
	var rows [][]string
	for _, t := range out.Tokens {
		rows = append(rows, []string{t.ID, t.Scope, when(t.Created), when(t.Expires)})
	}
	return cli.PrintLines(a.Out, cli.Table([]cli.Column{cli.Left("token"), cli.Left("scope"), cli.Left("made"), cli.Left("good until")}, rows))
}

// jobsRevoke revokes a token of a job.
type jobsRevoke struct {
	Name string `arg:"" help:"Name of the job."`
	ID   string `arg:"" help:"Id of the token, as evenkeel jobs tokens lists it."`
	service
}

// Help is what --help adds.
func (*jobsRevoke) Help() string {
	return `Examples:

  evenkeel jobs revoke mine 9f86d081`
}

// Run runs the command.
func (c *jobsRevoke) Run(a *cli.App) error {
	if err := c.call(a.Ctx, http.MethodDelete, c.Name, "/tokens/"+c.ID, nil, nil); err != nil {
		return err
	}
	a.Log.Info().Str("job", c.Name).Str("token", c.ID).Msg("revoked")
	return nil
}
