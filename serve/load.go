package serve

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	loadTime = 10 * time.Minute // that a job may take to be read
	loadWait = time.Second      // that a request waits for it: its client waits for 2 s as a rule
	listWait = 10 * time.Second // the same, of a list of all jobs
)

// loads keeps track of the jobs that are being read from the journal, and of those that cannot be read.
type loads struct {
	ctx    context.Context // of all of them
	cancel func()
	all    sync.WaitGroup
	room   chan struct{} // bounds how many are read at once

	mu     sync.Mutex
	closed bool
	open   map[string]*load
	unread map[string]unread
}

// load is the reading of a job.
type load struct {
	done chan struct{}
	j    *job
	err  error
}

// unread says why a job cannot be read. It is tried again when its journal has another message.
type unread struct {
	last uint64
	err  error
}

func (l *loads) begin(ctx context.Context) {
	l.room, l.open, l.unread = make(chan struct{}, runtime.GOMAXPROCS(0)), map[string]*load{}, map[string]unread{}
	l.ctx, l.cancel = context.WithCancel(ctx)
}

// stop ends those that are under way, and waits for them.
func (l *loads) stop() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cancel()
	l.all.Wait()
}

// known is a job by name, nil if there is none here.
func (s *Server) known(name string) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs[name]
}

// put adds a job and returns it, or the one that another request added first.
func (s *Server) put(j *job) (*job, error) {
	s.mu.Lock()
	closed, other := s.closed, s.jobs[j.name]
	if !closed && other == nil {
		s.jobs[j.name] = j
		delete(s.aside, j.name)
	}
	s.mu.Unlock()
	switch {
	case closed:
		j.close()
		return nil, errClosed
	case other != nil:
		j.close()
		return other, nil
	}
	return j, nil
}

// find finds a job by name, and reads it from the journal if need be. Requests for a job wait for the same reading, and for no other job's.
func (s *Server) find(name string) (*job, error) { return s.await(name, loadWait) }

// await is find with a time limit of its own.
func (s *Server) await(name string, patience time.Duration) (*job, error) {
	if j := s.known(name); j != nil {
		return j, nil
	}
	if s.config.Journal == nil {
		return nil, errNoJob
	}
	x, err := s.loads.of(name, s.load)
	if err != nil {
		return nil, err
	}
	wait := time.NewTimer(patience)
	defer wait.Stop()
	select {
	case <-x.done:
		return x.j, x.err
	case <-wait.C:
		return nil, errReading
	}
}

// of is the reading of a job, which begins if it is not under way.
func (l *loads) of(name string, read func(string) (*job, error)) (*load, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errClosed
	}
	if x := l.open[name]; x != nil {
		return x, nil
	}
	x := &load{done: make(chan struct{})}
	l.open[name] = x
	l.all.Go(func() {
		x.j, x.err = read(name)
		l.mu.Lock()
		delete(l.open, name)
		l.mu.Unlock()
		close(x.done)
	})
	return x, nil
}

// known is why a job could not be read up to a message; nil: it was not tried, or could.
func (l *loads) known(name string, last uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if u := l.unread[name]; u.last == last {
		return u.err
	}
	return nil
}

// note notes what came of reading a job.
func (l *loads) note(name string, last uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if delete(l.unread, name); errors.Is(err, errUnread) {
		l.unread[name] = unread{last, err}
	}
}

// load reads a job from the journal and makes it known.
func (s *Server) load(name string) (*job, error) {
	ctx, cancel := context.WithTimeout(s.loads.ctx, loadTime)
	defer cancel()
	if j := s.known(name); j != nil { // between two looks it was read
		return j, nil
	}
	last, err := s.config.Journal.Last(ctx, name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errJournal, err)
	case last == 0:
		s.loads.note(name, 0, nil)
		return nil, errNoJob
	}
	if err := s.loads.known(name, last); err != nil {
		return nil, err
	}
	select {
	case s.loads.room <- struct{}{}:
		defer func() { <-s.loads.room }()
	case <-ctx.Done():
		return nil, errClosed
	}
	j := newJob(name, &s.config, nil)
	j.mu.Lock()
	err = j.read(ctx)
	rounds, begun := j.record.rounds, j.begun
	j.mu.Unlock()
	s.loads.note(name, last, err)
	if err == nil && !begun {
		err = errNoJob
	}
	if err != nil {
		j.close()
		return nil, err
	}
	j.mu.Lock()
	j.record.metrics = s.metrics.of(name)
	j.show()
	j.mu.Unlock()
	s.config.Log.Info().Str("job", name).Int("rounds", rounds).Msg("job read from the journal")
	return s.put(j)
}

// list is the jobs in the order of their names. Those that cannot be read now are left out, and those that were put aside are not read.
func (s *Server) list(ranks bool) []JobState {
	var all []JobState
	if s.config.Journal != nil {
		names, err := s.config.Journal.Jobs(s.loads.ctx)
		if err != nil { // then those that are known here
			s.config.Log.Error().Err(err).Msg("the journal cannot list its jobs")
		}
		var reading sync.WaitGroup
		for _, name := range names {
			if state, ok := s.resting(name); ok {
				all = append(all, state)
			} else if s.known(name) == nil {
				reading.Go(func() { _, _ = s.await(name, listWait) }) // the log says why not
			}
		}
		reading.Wait()
	}
	s.mu.Lock()
	jobs := slices.Collect(maps.Values(s.jobs))
	s.mu.Unlock()
	for _, j := range jobs {
		all = append(all, j.describe(ranks))
	}
	slices.SortFunc(all, func(a, b JobState) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(all, func(a, b JobState) bool { return a.Name == b.Name }) // one that has just come back
}

const (
	restAfter = 24 * time.Hour // without a report a job is put aside
	sweepEach = time.Minute
)

// errResting says that a job was put aside.
var errResting = errors.New("serve: the job was put aside")

// resting is what is known of a job that was put aside.
type resting struct {
	last  uint64 // number of its newest message
	state JobState
}

// resting is the state of a job that was put aside, unless somebody has written of it since.
func (s *Server) resting(name string) (JobState, bool) {
	s.mu.Lock()
	r, ok := s.aside[name]
	s.mu.Unlock()
	if ok && s.config.Journal.Shared() {
		last, err := s.config.Journal.Last(s.loads.ctx, name)
		ok = err == nil && last == r.last
	}
	return r.state, ok
}

// sweeps puts jobs aside until the service ends.
func (s *Server) sweeps() {
	tick := time.NewTicker(sweepEach)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.sweep()
		case <-s.loads.ctx.Done():
			return
		}
	}
}

// sweep puts jobs aside that have long been silent: the journal keeps them, and the next request brings them back.
func (s *Server) sweep() {
	s.mu.Lock()
	jobs := slices.Collect(maps.Values(s.jobs))
	s.mu.Unlock()
	for _, j := range jobs {
		r, ok := j.rest()
		if !ok {
			continue
		}
		s.mu.Lock()
		here := s.jobs[j.name] == j
		if here {
			delete(s.jobs, j.name)
			s.aside[j.name] = r
		}
		s.mu.Unlock()
		if here {
			j.close()
			s.metrics.forget(j.name)
			s.config.Log.Info().Str("job", j.name).Msg("no reports for a day: the job is put aside until the next request")
		}
	}
}

// rest ends the job, in memory, if nothing was heard of it for long.
func (j *job) rest() (resting, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed != nil || j.config.Clock().Sub(j.created.Add(j.at)) < restAfter {
		return resting{}, false
	}
	j.decideAll()
	if j.journal.messages > 0 {
		j.journal.snap(j.snapshot())
	}
	j.failed = errResting
	r := resting{j.journal.last, j.state(false)}
	r.state.Aside = true
	return r, true
}
