package serve

import (
	"cmp"
	"crypto/tls"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"evenkeel/agent"
	"evenkeel/cluster"
	"evenkeel/cluster/live"
	"evenkeel/cluster/profile"
	"evenkeel/internal/badinput"
	"evenkeel/serve/journal"
)

// Config says how a service works. The zero value serves anyone who reaches it.
type Config struct {
	Version   string             // of the program
	Trained   *agent.Trained     // policy; nil: the embedded one
	Catalogue *profile.Catalogue // of profiles; nil: the embedded one
	// Token is the administrator's, who creates jobs; each job then has tokens of its own. Several may be given, one a line; "read " before one limits it to
	// looking, "report " to reporting. "": no token is needed.
	Token string
	// TokenRate and AddressRate are the most requests a second of one token, and of one address other than this machine's; twice as many may come at once. 0: no limit.
	TokenRate, AddressRate float64
	TLS                    *tls.Config // nil: none
	// Journal keeps the jobs, which go on where they were when another service, or this one started anew, opens it; nil: they end with the service. Who
	// opened it closes it, after the service.
	Journal *journal.Journal
	Log     zerolog.Logger   // says what the service does; never a token. The zero value logs to nowhere
	Clock   func() time.Time // nil: time.Now
	Each    func(Event)      // called after every start of a job and every decision, one at a time per job; nil: nobody
	every   int              // messages of a job between two snapshots; 0: 256
	Jobs    int              // most jobs at a time; 0: 100
	Ranks   int              // most ranks of a job; 0: live.MaxRanks, the most
	// NodeMetrics shows each rank of jobs of up to 64 in /metrics.
	NodeMetrics bool
}

// Validate reports what is out of range.
func (c *Config) Validate() error {
	var errs []error
	if tokens, err := parseTokens(c.Token); err != nil || c.Token != "" && len(tokens) == 0 {
		errs = append(errs, badinput.Errorf("serve: tokens: %w", cmp.Or(err, errors.New("none is given"))))
	}
	for name, rate := range map[string]float64{"TokenRate": c.TokenRate, "AddressRate": c.AddressRate} {
		if !(rate >= 0 && rate <= mostRate) {
			errs = append(errs, badinput.Errorf("serve: %s is %g; it must lie in 0..%g", name, rate, float64(mostRate)))
		}
	}
	if c.Jobs < 0 {
		errs = append(errs, badinput.Errorf("serve: Jobs is %d; it must be at least 0", c.Jobs))
	}
	if c.Ranks < 0 || c.Ranks > live.MaxRanks {
		errs = append(errs, badinput.Errorf("serve: Ranks is %d; it must lie in 0..%d", c.Ranks, live.MaxRanks))
	}
	return errors.Join(errs...)
}

// complete fills in what zero stands for.
func (c *Config) complete() error {
	if c.Trained == nil {
		var err error
		if c.Trained, err = agent.Embedded(); err != nil {
			return err
		}
	}
	if c.Catalogue == nil {
		c.Catalogue = profile.Embedded()
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	c.every, c.Jobs, c.Ranks = cmp.Or(c.every, every), cmp.Or(c.Jobs, 100), cmp.Or(c.Ranks, live.MaxRanks)
	return nil
}

// Event is a start of a job's process group, or a decision. What it points to is valid during the call.
type Event struct {
	Job        string
	Generation int
	// Cluster is the generation's: at a start as its ranks described it, before anything that older
	// generations learnt is carried over.
	Cluster *cluster.Cluster
	Weights cluster.Objectives // in force
	Limits  map[int]int        // largest micro-batches by rank that were changed since the event before
	Report  *cluster.Report    // that the decision rests on; nil: the process group has started
	Ran     cluster.Plan       // by which the report's round was run
}
