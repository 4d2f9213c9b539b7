package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/serve/journal"
)

// Versions of the journal's messages.
const (
	messageVersion  = 1
	snapshotVersion = 2 // of those with a snapshot, which version 1 does not know
)

// message is what a journal holds of a job: entries that were taken in together.
type message struct {
	Version  int       `json:"version"`
	Entries  []entry   `json:"entries,omitempty"`
	Snapshot *snapshot `json:"snapshot,omitempty"` // instead of entries
}

// errJournal says that the journal does not take what happened, or does not say what did.
var errJournal = errors.New("serve: the journal cannot be reached; the job goes on with its last sizes")

// errNoRoom says that the journal has reached its limit.
var errNoRoom = fmt.Errorf("%w: it is full; delete jobs that are over", errJournal)

// errReading says that a job is not there yet.
var errReading = errors.New("serve: the job is being read from the journal; try again")

// errUnread says that a job's journal cannot be understood.
var errUnread = errors.New("serve: the job's journal cannot be read; the service's log says why")

// mostEntries is how many entries a message has: a NATS server takes a million bytes by default.
const mostEntries = 1000

// keep appends entries to the journal. After an error nobody knows what it holds, and this job is dropped.
func (j *job) keep(entries []entry) error {
	if j.config.Journal == nil {
		return nil
	}
	for some := range slices.Chunk(entries, mostEntries) {
		if err := j.append(some); err != nil {
			return err
		}
	}
	return nil
}

// append appends a message to the journal.
func (j *job) append(entries []entry) error {
	text, err := json.Marshal(message{Version: messageVersion, Entries: entries})
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
	j.since.add(text)
	j.metrics.kept(j.config.Clock().Sub(begun))
	return nil
}

// read takes in what the journal has beyond what the job knows. After an error the job is of no use.
func (j *job) read(ctx context.Context) error {
	counts := j.metrics
	j.metrics = nil // it was counted when it happened
	defer func() { j.metrics = counts }()
	last, err := j.config.Journal.Read(ctx, j.name, j.last, func(text []byte) error {
		m, err := decode(text)
		if err != nil {
			return err
		}
		if m.Snapshot != nil {
			return j.restore(m.Snapshot)
		}
		j.since.add(text)
		for k := 0; k < len(m.Entries) && err == nil; k++ {
			err = j.replay(&m.Entries[k])
		}
		return err
	})
	if err == nil && j.headless && !j.begun {
		err = badinput.New("the job begins neither with its creation nor with a snapshot")
	}
	switch {
	case badinput.Is(err):
		j.config.Log.Error().Str("job", j.name).Err(err).Msg("the journal of the job cannot be read")
		return fmt.Errorf("%w: %w", errUnread, err)
	case err != nil && !errors.Is(err, errAnew):
		return fmt.Errorf("%w: %w", errJournal, err)
	case err != nil:
		return err
	}
	j.decideAll()
	j.last = last
	return nil
}

// follow is read in a request, whose client waits.
func (j *job) follow() error {
	ctx, cancel := context.WithTimeout(context.Background(), loadWait)
	defer cancel()
	return j.read(ctx)
}

// upTo says whether the job is as the journal has it, whose newest message is this; what is missing is read.
func (j *job) upTo(last uint64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed == nil && j.last < last {
		j.failed = j.follow()
	}
	return j.failed == nil && j.last >= last && last > 0
}

// decode reads a message.
func decode(text []byte) (*message, error) {
	var m message
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return nil, badinput.Wrap(err)
	}
	if m.Version != messageVersion && m.Version != snapshotVersion {
		return nil, badinput.Errorf("has version %d; this evenkeel reads versions %d and %d", m.Version, messageVersion, snapshotVersion)
	}
	return &m, nil
}

// errAnew says that a job was removed and made anew by another service.
var errAnew = errors.New("serve: another service made the job anew")

// first takes in the entry with which a job begins.
func (j *job) first(e *entry) error {
	switch {
	case e.Create == nil:
		j.headless = true // what was before is cut off, but not yet all of it
		return nil
	case j.headless:
		return badinput.New("a job begins with its creation")
	case j.begun && j.last > 0:
		return errAnew
	case j.begun:
		return badinput.New("a job has one creation")
	}
	j.begin(e.Create)
	return nil
}

// replay takes in an entry of the journal. Where this program decides otherwise than the one that wrote it, or takes another profile
// for a rank's, the generation cannot go on: its ranks register anew, as after the loss of a service without a journal.
func (j *job) replay(e *entry) error {
	if e.Create != nil || !j.begun {
		return j.first(e)
	}
	j.decideAll()
	j.at = max(e.At, j.at)
	alone := e.Start != nil || e.Settings != nil || e.Change != nil || e.Token != nil // it stands by itself
	if !alone && j.gen == nil {
		return nil // of a generation that was ended here
	}
	same := j.gen == nil || e.Plan == j.plan.Number && e.Sum == j.sum
	var r result
	var err error
	if same {
		r, err = j.apply(e)
	}
	if same && err == nil && r.changed {
		return nil
	}
	j.anew(err)
	j.forget()
	if !same && alone {
		_, _ = j.apply(e)
	}
	return nil
}

// anew says that a generation cannot go on.
func (j *job) anew(because error) {
	j.history.Note(j.at, "problem", "the journal is of another version of the program or of other profiles: the process group has to register anew")
	j.config.Log.Warn().Str("job", j.name).Int("generation", j.number).AnErr("because", because).
		Msg("the journal is of another version of the program or of other profiles; the process group has to register anew")
}
