package forward

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/forward/wire"
	"evenkeel/internal/badinput"
)

// tokenVariable holds the server's token: a command line is visible to other users.
const tokenVariable = "EVENKEEL_NATS_TOKEN"

// natsFlags name the NATS server.
type natsFlags struct {
	URL string `name:"url" help:"NATS server with JetStream, for example tls://host:4222 or nats://localhost:4222; the token is read from the variable EVENKEEL_NATS_TOKEN." required:"" placeholder:"URL"`
	CA  string `name:"ca" help:"Certificate of the authority that signed the server's certificate." placeholder:"FILE" type:"existingfile"`
}

// runFlag names the run.
type runFlag struct {
	Run string `name:"run" help:"Name of the run (${default})." default:"forward" placeholder:"NAME"`
}

// open connects to the server for a run (empty: for all runs), with the token that creates and removes runs.
func (f *natsFlags) open(run string) (*nats.Conn, error) {
	if run != "" {
		if err := wire.CheckName(run); err != nil {
			return nil, err
		}
	}
	return f.connect(wire.Options{Rank: -1})
}

// connect connects to the server, with the token of the environment.
func (f *natsFlags) connect(o wire.Options) (*nats.Conn, error) {
	o.Token, o.CAFile = os.Getenv(tokenVariable), f.CA
	conn, err := wire.Connect(f.URL, o)
	if errors.Is(err, nats.ErrAuthorization) {
		return nil, badinput.Errorf("%w: put the token into the variable %s; each rank has its own, written by forward serve", err, tokenVariable)
	}
	return conn, err
}

// serveCmd runs a server.
type serveCmd struct {
	Listen string `help:"Address, HOST:PORT; beyond loopback --cert and --key are needed (${default})." default:"127.0.0.1:4222" placeholder:"ADDR"`
	Cert   string `help:"Certificate of the server, PEM." placeholder:"FILE" type:"existingfile" and:"tls"`
	Key    string `help:"Its private key, PEM." placeholder:"FILE" type:"existingfile" and:"tls"`
	Store  string `help:"Folder in which runs and tokens are kept." required:"" placeholder:"DIR"`
	Ranks  int    `help:"Ranks whose tokens are written (${default})." default:"8" placeholder:"N"`
}

// Help is what --help adds.
func (*serveCmd) Help() string {
	return `Runs are files in --store: a server that is started again after a kill has them, and processors go on by themselves. The
file tokens in that folder has the token that creates and removes runs (launch), and one for each rank, which may send only
that rank's messages. The first is taken from the variable EVENKEEL_NATS_TOKEN or, if that is not set, drawn at random once; the
others are derived from it.

Examples:

  evenkeel forward serve --store runs --listen 0.0.0.0:4222 --cert cert.pem --key key.pem
  evenkeel forward serve --store runs                      # processors on this machine alone`
}

const maxRanks = 128

// Run runs the command.
func (c *serveCmd) Run(a *cli.App) (err error) {
	if c.Ranks < 2 || c.Ranks > maxRanks {
		return badinput.Errorf("--ranks %d: must be 2 to %d", c.Ranks, maxRanks)
	}
	if err := os.MkdirAll(c.Store, 0o700); err != nil {
		return badinput.Wrap(err)
	}
	path := filepath.Join(c.Store, "tokens")
	token := os.Getenv(tokenVariable)
	if text, err := os.ReadFile(path); err == nil && token == "" {
		if _, rest, found := strings.Cut(string(text), "launch "); found {
			token, _, _ = strings.Cut(rest, "\n")
		}
	}
	if token == "" {
		token = wire.NewToken()
	}
	text := "launch " + token + "\n"
	for rank := range c.Ranks {
		text += fmt.Sprintf("rank%d %s\n", rank, wire.RankToken(token, rank))
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return badinput.Wrap(err)
	}
	s, err := wire.Serve(wire.ServerOptions{Addr: c.Listen, Token: token, CertFile: c.Cert, KeyFile: c.Key, Dir: c.Store})
	if err != nil {
		return err
	}
	a.Log.Info().Msgf("serving runs of %s at %s; tokens are in %s", c.Store, s.URL(), path)
	<-a.Ctx.Done()
	return errors.Join(s.Close(), cli.Interrupted(context.Cause(a.Ctx), "the server ended; its runs are in "+c.Store))
}
