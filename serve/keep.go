package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/serve/journal"
)

// messageVersion is that of the journal's messages.
const messageVersion = 1

// loadTime is how long a job may take to be read.
const loadTime = 10 * time.Minute

// message is what a journal holds of a job: entries that were taken in together.
type message struct {
	Version int     `json:"version"`
	Entries []entry `json:"entries"`
}

// errJournal says that the journal does not take what happened, or does not say what did.
var errJournal = errors.New("serve: the journal cannot be reached; the job goes on with its last sizes")

// errNoRoom says that the journal has reached its limit.
var errNoRoom = fmt.Errorf("%w: it is full; delete jobs that are over", errJournal)

// errUnread says that a job's journal cannot be understood.
var errUnread = errors.New("serve: the job's journal cannot be read; the service's log says why")

// keep appends entries to the journal. After an error nobody knows what it holds, and this job is dropped.
func (j *job) keep(entries []entry) error {
	if j.config.Journal == nil {
		return nil
	}
	text, err := json.Marshal(message{messageVersion, entries})
	if err != nil {
		return fmt.Errorf("serve: job %s: %w", j.name, err)
	}
	begun := j.config.Clock()
	last, err := j.config.Journal.Append(context.Background(), j.name, j.last, text)
	if err != nil {
		if !errors.Is(err, journal.ErrStale) {
			j.config.Log.Error().Str("job", j.name).Int("generation", j.number).Int("rounds", j.rounds).Err(err).Msg("the journal does not take what happened")
			if errors.Is(err, journal.ErrFull) {
				return errNoRoom
			}
			err = fmt.Errorf("%w: %w", errJournal, err)
		}
		return err
	}
	j.last = last
	j.metrics.kept(j.config.Clock().Sub(begun))
	return nil
}

// behind says whether the journal has more than this job took in.
func (j *job) behind(last uint64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last != last
}

// load reads a job from its journal; nil if there is none.
func (s *Server) load(name string) (*job, error) {
	ctx, cancel := context.WithTimeout(context.Background(), loadTime)
	defer cancel()
	var j *job
	entries := 0
	last, err := s.config.Journal.Read(ctx, name, func(text []byte) error {
		var m message
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&m); err != nil {
			return badinput.Wrap(err)
		}
		if m.Version != messageVersion {
			return badinput.Errorf("has version %d; this evenkeel reads version %d", m.Version, messageVersion)
		}
		for k := range m.Entries {
			e := &m.Entries[k]
			if entries++; (j == nil) != (e.Create != nil) {
				return badinput.Errorf("entry %d: a job begins with its creation, and has one", entries)
			}
			if j == nil {
				j = newJob(name, &s.config, nil, *e.Create)
			} else {
				j.replay(e)
			}
		}
		return nil
	})
	if j != nil && (err != nil || last == 0) {
		j.close()
	}
	switch {
	case badinput.Is(err):
		s.config.Log.Error().Str("job", name).Err(err).Msg("the journal of the job cannot be read")
		return nil, fmt.Errorf("%w: %w", errUnread, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errJournal, err)
	case last == 0 || j == nil:
		return nil, nil //nolint:nilnil // no job is no error
	}
	j.mu.Lock()
	j.decideAll()
	j.metrics, j.last = s.metrics.of(name), last
	j.show()
	j.mu.Unlock()
	s.config.Log.Info().Str("job", name).Int("rounds", j.rounds).Msg("job read from the journal")
	return j, nil
}

// replay takes in an entry of the journal. Where this program decides otherwise than the one that wrote it, or takes another profile
// for a rank's, the generation cannot go on: its ranks register anew, as after the loss of a service without a journal.
func (j *job) replay(e *entry) {
	j.decideAll()
	j.at = max(e.At, j.at)
	alone := e.Start != nil || e.Settings != nil || e.Change != nil || e.Token != nil // it stands by itself
	if !alone && j.gen == nil {
		return // of a generation that was ended here
	}
	same := j.gen == nil || e.Plan == j.plan.Number && e.Sum == j.sum
	var r result
	var err error
	if same {
		r, err = j.apply(e)
	}
	if same && err == nil && r.changed {
		return
	}
	j.config.Log.Warn().Str("job", j.name).Int("generation", j.number).Int("plan", e.Plan).AnErr("because", err).
		Msg("the journal is of another version of the program or of other profiles; the process group has to register anew")
	j.gen, j.agent, j.control, j.waiting, j.id = nil, nil, nil, nil, "" // so that the id may register again
	if !same && alone {
		_, _ = j.apply(e)
	}
}

// recover reads the jobs that the journal has.
func (s *Server) recover(ctx context.Context) error {
	names, err := s.config.Journal.Jobs(ctx)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("serve: %w", err)
		}
		if _, err := s.find(name); err != nil && !errors.Is(err, errNoJob) && !errors.Is(err, errUnread) {
			return err
		}
	}
	return nil
}
