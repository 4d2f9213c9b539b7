// Package serve holds the commands about real jobs: serve runs the control service, for good or for the life of one
// command, jobs looks after jobs, and workers simulates the ranks of a job.
package serve

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"

	"evenkeel/cluster/clusterfile"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
	"evenkeel/serve"
	"evenkeel/serve/journal"
)

// Cmd runs the control service.
type Cmd struct {
	Listen      string  `help:"Address to listen on (127.0.0.1:7070; with a command a free port of 127.0.0.1). Other machines reach it only with TLS and a token." placeholder:"HOST:PORT"`
	TokenFile   string  `help:"File with the administrator's token, 16 bytes or more, which creates jobs; each job gets tokens of its own. The file may have several tokens, one a line; 'read ' before a token limits it to looking. The file is read again when it changes, as certificates are." placeholder:"FILE"`
	TLSCert     string  `name:"tls-cert" help:"Certificate of the service, PEM." placeholder:"FILE"`
	TLSKey      string  `name:"tls-key" help:"Its key, PEM." placeholder:"FILE"`
	ClientCA    string  `name:"client-ca" help:"Accept only clients with a certificate of this authority, PEM (EVENKEEL_CERT and EVENKEEL_KEY on their side); they need tokens as well." placeholder:"FILE"`
	TokenRate   float64 `help:"Most requests a second with one token, twice as many at once (${default}); 0: no limit." default:"1000" placeholder:"N"`
	AddressRate float64 `help:"The same, from one address other than this machine's (${default})." default:"2000" placeholder:"N"`
	State       string  `help:"Folder for the journal of jobs. Jobs go on where they were when the service starts again; default: jobs end with the service." placeholder:"DIR"`
	NATS        string  `name:"nats" help:"Keep the journal in a running NATS cluster with JetStream; several services may share it." placeholder:"URL"`
	NATSCreds   string  `name:"nats-creds" help:"File with the credentials for --nats." placeholder:"FILE"`
	MaxJobs     int     `help:"Most jobs at a time (${default}), without those that sent no report for a day." default:"100" placeholder:"N"`
	MaxBytes    int64   `help:"Most bytes of a new journal; new jobs are refused while a twentieth of it or less is left. Default: as much as the disk has." placeholder:"N"`
	NodeMetrics bool    `help:"Show each rank of jobs with up to 64 in /metrics."`
	Policy      string  `help:"Policy file of evenkeel train; default: the embedded policy." placeholder:"FILE"`
	cli.ProfileFlags
	Job      string   `help:"Name of the command's job (${default})." default:"job" placeholder:"NAME"`
	Workload string   `help:"Workload of the command's job, if the catalogue of profiles has it; otherwise the service learns the ranks' pace." placeholder:"NAME"`
	Deadline string   `help:"When the rounds of the command's job end: 1.5s, 110% of the predicted time, or auto; default: when the last rank is done." placeholder:"D"`
	Log      string   `help:"Write a run log of the command's job (JSON Lines); evenkeel run --replay checks its decisions, evenkeel export --log takes its sizes." placeholder:"FILE"`
	JSON     bool     `name:"json" help:"Print the command's summary as JSON; what the command prints goes to standard error."`
	Command  []string `arg:"" optional:"" passthrough:"partial" help:"Command to run beside the service, after --." placeholder:"COMMAND"`
}

// defaultListen is the address without a command.
const defaultListen = "127.0.0.1:7070"

// Help is what --help adds.
func (*Cmd) Help() string {
	return `A training job reports how long its rounds took and gets the sizes of its next rounds; in PyTorch evenkeel.Tuner does
both. With a command the service runs as long as the command, tells its processes the address in EVENKEEL_URL, EVENKEEL_JOB
and EVENKEEL_TOKEN, passes signals on to it, returns its exit status, and prints a summary of the gain. Jobs end with the
service, unless --state or --nats keeps a journal of them.

Examples:

  evenkeel serve -- torchrun --nproc-per-node 4 train.py  # one job, one command
  evenkeel serve --deadline auto --log run.jsonl -- torchrun --nproc-per-node 4 train.py
  evenkeel serve                                          # for jobs of this machine, until Ctrl-C
  evenkeel serve --state /var/lib/evenkeel                # the same; jobs survive the service
  evenkeel serve --listen 0.0.0.0:7070 --tls-cert cert.pem --tls-key key.pem --token-file token`
}

// Run runs the command.
func (c *Cmd) Run(a *cli.App) error {
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	config, certs, err := c.check(a)
	if err != nil {
		return err
	}
	if len(c.Command) > 0 {
		return c.beside(a, config, certs)
	}
	l, err := c.listen(defaultListen) // before the journal: a port that is taken is the commoner fault
	if err != nil {
		return err
	}
	if c.State != "" || c.NATS != "" {
		if config.Journal, err = journal.Open(a.Ctx, journal.Options{Dir: c.State, URL: c.NATS, Creds: c.NATSCreds, MaxBytes: c.MaxBytes}); err != nil {
			return errors.Join(err, l.Close())
		}
		defer config.Journal.Close()
	}
	s, err := serve.New(a.Ctx, config)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	a.Log.Info().Str("url", certs.address(l)).Msg("serving; Ctrl-C ends it")
	stop := c.watch(a, s, certs)
	defer stop()
	notify(a.Log, "READY=1") // who connects from now on is answered
	defer context.AfterFunc(a.Ctx, func() { notify(a.Log, "STOPPING=1") })()
	if err := s.Serve(a.Ctx, l); err != nil {
		return err
	}
	a.Log.Info().Msg("ended")
	return nil
}

// contradictions looks at flags that have no effect, or not together.
func (c *Cmd) contradictions(a *cli.App) error {
	for _, g := range a.Given {
		if len(c.Command) == 0 && (g == "job" || g == "workload" || g == "deadline" || g == "log" || g == "json") {
			return badinput.Errorf("--%s has no effect without a command; write evenkeel serve --%s ... -- COMMAND", g, g)
		}
	}
	switch {
	case c.State != "" && c.NATS != "":
		return badinput.New("--state and --nats: the journal lies in one place; give one of them")
	case c.MaxBytes < 0:
		return badinput.Errorf("--max-bytes: is %d; it must be at least 0", c.MaxBytes)
	case c.MaxBytes > 0 && c.State == "" && c.NATS == "":
		return badinput.New("--max-bytes has no effect without --state or --nats")
	case c.NATSCreds != "" && c.NATS == "":
		return badinput.New("--nats-creds has no effect without --nats")
	case len(c.Command) > 0 && (c.State != "" || c.NATS != ""):
		return badinput.New("--state and --nats have no use with a command, as the service ends with its command; leave them out, or the command")
	}
	return nil
}

// check looks at the flags, and reads what they name.
func (c *Cmd) check(a *cli.App) (serve.Config, *certificates, error) {
	config := serve.Config{Version: a.Build.Version, Log: a.Log, NodeMetrics: c.NodeMetrics, Jobs: c.MaxJobs, TokenRate: c.TokenRate, AddressRate: c.AddressRate}
	if err := c.contradictions(a); err != nil {
		return config, nil, err
	}
	if c.Deadline != "" {
		if _, err := clusterfile.ParseDeadline(c.Deadline); err != nil {
			hint := ""
			if !strings.Contains(err.Error(), "110%") {
				hint = ", 110% for example"
			}
			return config, nil, badinput.Errorf("--deadline: %w%s", err, hint)
		}
	}
	certs, err := c.certificates()
	if err != nil {
		return config, nil, err
	}
	if certs != nil {
		config.TLS = certs.config()
	}
	if c.TokenFile != "" {
		if config.Token, err = c.tokens(); err != nil {
			return config, nil, err
		}
	}
	if c.Listen != "" {
		loopback, err := loopback(c.Listen)
		if err != nil {
			return config, nil, err
		}
		if !loopback && (certs == nil || config.Token == "") {
			return config, nil, badinput.Errorf("--listen: %s can be reached from other machines; give --tls-cert, --tls-key and --token-file, or listen on 127.0.0.1", c.Listen)
		}
	}
	if config.Catalogue, err = c.Catalogue(); err != nil {
		return config, nil, err
	}
	if config.Trained, err = cli.LoadPolicy(c.Policy); err != nil {
		return config, nil, err
	}
	if err := config.Validate(); err != nil {
		return config, nil, err
	}
	inputs := append(c.Inputs(), cli.FileFlag("--policy", c.Policy), cli.FileFlag("--token-file", c.TokenFile), cli.FileFlag("--client-ca", c.ClientCA), cli.FileFlag("--nats-creds", c.NATSCreds))
	return config, certs, cli.CheckFiles(inputs, []cli.File{cli.FileFlag(cli.LogFlag, c.Log)})
}

// loopback says whether only this machine reaches an address.
func loopback(address string) (bool, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false, badinput.Errorf("--listen: %w; write HOST:PORT, 127.0.0.1:7070 for example", err)
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback(), nil
}

// listen opens the address of --listen, or the given one.
func (c *Cmd) listen(otherwise string) (net.Listener, error) {
	at := c.Listen
	if at == "" {
		at = otherwise
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", at)
	if err != nil {
		if op := (*net.OpError)(nil); errors.As(err, &op) {
			return nil, badinput.Errorf("--listen: %s: %w; choose another port", at, op.Err)
		}
		return nil, badinput.Errorf("--listen: %w", err)
	}
	return l, nil
}

// address is a URL at which clients find a listener. One that listens on all addresses is called by the name that the certificate is for.
func (s *certificates) address(l net.Listener) string {
	scheme, at := "http://", l.Addr().String()
	if s != nil {
		scheme = "https://"
	}
	if tcp, ok := l.Addr().(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		at = net.JoinHostPort(s.name(), strconv.Itoa(tcp.Port))
	}
	return scheme + at
}

// name is a name of the service: the first one in the certificate that is no pattern, or an address there.
func (s *certificates) name() string {
	if s != nil {
		if leaf := s.now.Load().Certificates[0].Leaf; leaf != nil {
			for _, name := range leaf.DNSNames {
				if !strings.Contains(name, "*") {
					return name
				}
			}
			for _, ip := range leaf.IPAddresses {
				return ip.String()
			}
		}
	}
	return "localhost"
}
