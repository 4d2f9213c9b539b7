package serve

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/evenkeel/evenkeel/internal/badinput"
)

// What a client may take its time for.
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
	admin   hash
	handler http.Handler
	metrics *metrics

	mu     sync.Mutex
	jobs   map[string]*job
	closed bool
}

// New makes a service. Close it, or let Serve end, to stop its jobs' goroutines.
func New(c Config) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := c.complete(); err != nil {
		return nil, err
	}
	s := &Server{config: c, jobs: map[string]*job{}, metrics: newMetrics(c.Version)}
	if c.Token != "" {
		s.admin = sha256.Sum256([]byte(c.Token))
	}
	s.config.Token = "" // only its hash is kept
	s.handler = s.routes()
	return s, nil
}

// Serve answers requests on l, which it closes, until ctx is done; then it lets those in flight finish, and ends the jobs.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	defer s.Close()
	h := &http.Server{
		Handler: s.handler, ReadHeaderTimeout: headerTime, ReadTimeout: headerTime + bodyTime, WriteTimeout: answerTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeader, ErrorLog: nil,
	}
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(netutil.LimitListener(l, maxConnections)) }()
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
	s.mu.Lock()
	s.closed = true
	jobs := s.jobs
	s.jobs = map[string]*job{}
	s.mu.Unlock()
	for _, j := range jobs {
		j.close()
	}
}

// Errors about jobs.
var (
	errNoJob  = errors.New("serve: no such job")
	errFull   = errors.New("serve: no room for another job")
	errClosed = errors.New("serve: the service is ending")
)

// find is a job by name.
func (s *Server) find(name string) (*job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[name]; j != nil {
		return j, nil
	}
	return nil, errNoJob
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
	j, err := s.find(name)
	if err != nil {
		return JobState{}, false
	}
	return j.describe(), true
}

// create makes a job; nil if it exists.
func (s *Server) create(name string, settings Settings) (*job, string, error) {
	if _, err := settings.collect(); err != nil {
		return nil, "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, "", errClosed
	case s.jobs[name] != nil:
		return nil, "", nil
	case len(s.jobs) >= s.config.Jobs:
		return nil, "", errFull
	}
	j := newJob(name, &s.config, s.metrics.of(name))
	j.settings = settings
	token := ""
	if s.admin != (hash{}) {
		secret := make([]byte, 32)
		_, _ = rand.Read(secret) // never fails
		token = base64.RawURLEncoding.EncodeToString(secret)
		j.token = sha256.Sum256([]byte(token))
	}
	s.jobs[name] = j
	s.config.Log.Info().Str("job", name).Msg("job created")
	return j, token, nil
}

// remove ends a job.
func (s *Server) remove(name string) error {
	s.mu.Lock()
	j := s.jobs[name]
	delete(s.jobs, name)
	s.mu.Unlock()
	if j == nil {
		return errNoJob
	}
	j.close()
	s.metrics.forget(name)
	s.config.Log.Info().Str("job", name).Msg("job deleted")
	return nil
}

// list is the jobs in the order of their names.
func (s *Server) list() []*job {
	s.mu.Lock()
	defer s.mu.Unlock()
	var jobs []*job
	for _, j := range s.jobs {
		jobs = append(jobs, j)
	}
	slices.SortFunc(jobs, func(a, b *job) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	return jobs
}
