package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/net/netutil"

	"evenkeel/internal/badinput"
	"evenkeel/serve/journal"
)

// Time limits of a client, and sizes.
const (
	headerTime = 5 * time.Second
	bodyTime   = 10 * time.Second
	answerTime = 20 * time.Second
	idleTime   = 2 * time.Minute
	grace      = 3 * time.Second // of requests in flight at the end

	maxHeader      = 16 << 10
	maxConnections = 2048
)

// Server holds the jobs and answers requests.
type Server struct {
	config  Config
	tokens  atomic.Pointer[[]token] // of the service; none: nobody needs one
	limits  limits
	handler http.Handler
	metrics *metrics
	ready   readiness
	streams streams

	mu     sync.Mutex
	jobs   map[string]*job
	aside  map[string]resting // jobs that the journal has, and memory has not
	making int                // jobs that are being made
	closed bool
	loads  loads
}

// New makes a service. A job of its journal is read with the first request for it, as long as ctx is not done. Close it, or let Serve end, to stop its goroutines.
func New(ctx context.Context, c Config) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := c.complete(); err != nil {
		return nil, err
	}
	s := &Server{config: c, jobs: map[string]*job{}, aside: map[string]resting{}, metrics: newMetrics(c.Version), streams: streams{ended: make(chan struct{})}}
	all, _ := parseTokens(c.Token) // Validate has
	s.tokens.Store(&all)
	s.config.Token = "" // only hashes are kept
	s.limits.tokens.most, s.limits.addresses.most = c.TokenRate, c.AddressRate
	s.loads.begin(ctx)
	s.metrics.registry.MustRegister(gauges{s})
	s.handler = s.routes()
	if c.Journal != nil {
		s.loads.all.Go(s.sweeps)
	}
	return s, nil
}

// Serve answers requests on l, which it closes, until ctx is done; then it lets those in flight finish, and ends the jobs.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	defer s.Close()
	h := &http.Server{
		Handler: s.handler, ReadHeaderTimeout: headerTime, ReadTimeout: headerTime + bodyTime, WriteTimeout: answerTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeader, ErrorLog: stdlog.New(failures{s.config.Log.Sample(&zerolog.BurstSampler{Burst: 10, Period: time.Minute})}, "", 0),
	}
	l = netutil.LimitListener(&crowd{Listener: l, most: maxConnections / 2, open: map[string]int{}}, maxConnections)
	if s.config.TLS != nil {
		l = tls.NewListener(l, s.config.TLS)
	}
	h.RegisterOnShutdown(s.streams.close)
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := h.Shutdown(last)
	if errors.Is(err, context.DeadlineExceeded) {
		err = h.Close()
	}
	if served := <-ended; err == nil && !errors.Is(served, http.ErrServerClosed) {
		err = served
	}
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// Close ends every job. The server answers no more of them afterwards.
func (s *Server) Close() {
	s.streams.close()
	s.mu.Lock()
	s.closed = true
	jobs := s.jobs
	s.jobs = map[string]*job{}
	s.mu.Unlock()
	s.loads.stop()
	for _, j := range jobs {
		j.close()
	}
}

// Errors about jobs.
var (
	errNoJob  = errors.New("serve: no such job; PUT /v1/jobs/{job} creates one")
	errFull   = errors.New("serve: the service has reached its limit of jobs (--max-jobs); delete one")
	errClosed = errors.New("serve: the service is ending")
	errBusy   = fmt.Errorf("%w: other services write to the job at the same time; try again", errJournal)
)

// drop forgets a job, which its journal still has.
func (s *Server) drop(j *job) {
	s.mu.Lock()
	here := s.jobs[j.name] == j
	if here {
		delete(s.jobs, j.name)
	}
	s.mu.Unlock()
	if here {
		j.close()
	}
}

// How often a request is judged again if other services wrote first.
const (
	maxTries = 10
	tryPause = 2 * time.Millisecond // more after each: a cluster refuses an append for another's before that one can be read
)

// submit takes in an entry of a job. If another service has written meanwhile, the job is read anew and the entry is judged again.
func (s *Server) submit(name string, e entry) (result, error) {
	sure := s.config.Journal == nil || !s.config.Journal.Shared()
	for try := range maxTries {
		time.Sleep(time.Duration(try) * tryPause)
		j, err := s.find(name)
		if err != nil {
			return result{}, err
		}
		r := j.submit(e)
		switch {
		case errors.Is(r.err, journal.ErrStale), errors.Is(r.err, errAnew), errors.Is(r.err, errResting):
			s.drop(j)
		case errors.Is(r.err, errJournal), errors.Is(r.err, errUnread):
			s.drop(j)
			return result{}, r.err
		case !sure && errors.Is(r.err, errGeneration):
			// A NATS server that was cut off from the others shows an old journal, which does not know this generation. A journal that can be written is not old.
			if err := s.config.Journal.Check(context.Background()); err != nil {
				return result{}, fmt.Errorf("%w: %w", errJournal, err)
			}
			sure = true
		default:
			return r.result, r.err
		}
	}
	return result{}, errBusy
}

// fresh finds a job by name, as the journal has it now.
func (s *Server) fresh(name string) (*job, error) {
	for range maxTries {
		j, err := s.find(name)
		if err != nil || !j.journal.shared() {
			return j, err
		}
		last, err := s.config.Journal.Last(context.Background(), name)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errJournal, err)
		}
		if j.upTo(last) {
			return j, nil
		}
		s.drop(j)
	}
	return nil, errBusy
}

// CreateJob makes a job, and its token where the service has tokens. It is an error, bad input, if the job exists.
func (s *Server) CreateJob(name string, settings Settings) (token string, err error) {
	j, token, err := s.create(name, settings)
	if err == nil && j == nil {
		err = badinput.Errorf("serve: there is a job %q already", name)
	}
	return token, err
}

// Job describes a job; false if there is none of that name.
func (s *Server) Job(name string) (JobState, bool) {
	j, err := s.describe(name)
	return j, err == nil
}

// describe describes a job as the journal has it now.
func (s *Server) describe(name string) (JobState, error) {
	j, err := s.fresh(name)
	if err != nil {
		return JobState{}, err
	}
	return j.describe(true), nil
}

// create makes a job; nil if it exists.
func (s *Server) create(name string, settings Settings) (*job, string, error) {
	if _, err := settings.collect(); err != nil {
		return nil, "", err
	}
	if _, err := s.find(name); !errors.Is(err, errNoJob) {
		return nil, "", err
	}
	s.mu.Lock()
	closed, exists, full := s.closed, s.jobs[name] != nil, len(s.jobs)+s.making >= s.config.Jobs
	s.making++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.making--
		s.mu.Unlock()
	}()
	switch {
	case closed:
		return nil, "", errClosed
	case exists:
		return nil, "", nil
	case full:
		return nil, "", errFull
	}
	if s.config.Journal != nil {
		if err := s.config.Journal.Room(s.loads.ctx); err != nil { // while there is some for the jobs that run
			return nil, "", fmt.Errorf("%w: %w", errJournal, err)
		}
	}
	first, token := creation{Created: s.config.Clock(), Settings: settings}, ""
	if !s.open() {
		token, first.Token = newSecret()
	}
	j := newJob(name, &s.config, s.metrics.of(name))
	j.begin(&first)
	if err := j.journal.keep([]entry{{Create: &first}}, j.record.metrics); err != nil {
		j.close()
		if errors.Is(err, journal.ErrStale) {
			return nil, "", s.appears(name) // another service has just made it
		}
		return nil, "", err
	}
	own, err := s.put(j)
	if err != nil {
		return nil, "", err
	}
	if own != j && s.config.Journal == nil {
		return nil, "", nil // another request has just made it; in a journal it is this one's
	}
	s.config.Log.Info().Str("job", name).Msg("job created")
	return own, token, nil
}

// appears waits for a job that another service has just made.
func (s *Server) appears(name string) error {
	for try := range maxTries {
		time.Sleep(time.Duration(try) * tryPause)
		if _, err := s.find(name); !errors.Is(err, errNoJob) {
			return err
		}
	}
	return errBusy
}

// remove ends a job.
func (s *Server) remove(name string) error {
	j, err := s.find(name)
	if err != nil && !errors.Is(err, errUnread) {
		return err
	}
	if s.config.Journal != nil {
		if err := s.config.Journal.Remove(context.Background(), name); err != nil {
			return fmt.Errorf("%w: %w", errJournal, err)
		}
	}
	if j != nil {
		s.drop(j)
	}
	s.mu.Lock()
	delete(s.aside, name)
	s.mu.Unlock()
	s.metrics.forget(name)
	s.config.Log.Info().Str("job", name).Msg("job deleted")
	return nil
}
