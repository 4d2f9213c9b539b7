package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"evenkeel/internal/badinput"
	"evenkeel/serve/journal"
)

// Versions of the journal's messages.
const (
	messageVersion  = 1
	snapshotVersion = 2 // of messages with a snapshot, which version 1 does not know
)

// message is what a journal holds of a job: entries that were taken in together, or a snapshot.
type message struct {
	Version  int       `json:"version"`
	Entries  []entry   `json:"entries,omitempty"`
	Snapshot *snapshot `json:"snapshot,omitempty"` // instead of entries
}

var (
	// errJournal says that the journal does not take what happened, or cannot be read.
	errJournal = errors.New("serve: the journal cannot be reached; the job goes on with its last sizes")
	// errReading says that a job is not there yet.
	errReading = errors.New("serve: the job is being read from the journal; try again")
	// errUnread says that a job's journal cannot be understood.
	errUnread = errors.New("serve: the job's journal cannot be read; the service's log says why")
	// errAnew says that another service removed a job and made it anew.
	errAnew = errors.New("serve: another service deleted the job and created it again")
)

const (
	mostEntries = 1000 // of a message: a NATS server takes a million bytes by default

	// A snapshot is written after so many messages, or bytes of them: whoever reads the job has to decide what follows it anew.
	every     = 256
	mostBytes = 8 << 20 // half a second of work, 12 rounds of 10,000 ranks
)

// jobJournal is a job's part of the journal, and how far the job has read or written it.
type jobJournal struct {
	config *Config
	job    string
	last   uint64 // number of the newest message that the job knows
	// What follows the newest snapshot:
	messages, bytes int
}

// shared says whether other services may write, too.
func (k *jobJournal) shared() bool { return k.config.Journal != nil && k.config.Journal.Shared() }

// snapshotDue says whether it is time for a snapshot.
func (k *jobJournal) snapshotDue() bool {
	return k.config.Journal != nil && (k.messages >= k.config.every || k.bytes >= mostBytes)
}

func (k *jobJournal) add(text []byte) {
	k.messages++
	k.bytes += len(text)
}

// writable says whether the journal's disk takes what happens, before anything does.
func (k *jobJournal) writable() error {
	if k.config.Journal == nil {
		return nil
	}
	err := k.config.Journal.Writable()
	if err != nil {
		k.config.Log.Error().Str("job", k.job).Err(err).Msg("the journal cannot be written; requests that change the job are refused")
	}
	return err
}

// keep appends entries. After an error nobody knows what the journal holds, and the job has to be read anew.
func (k *jobJournal) keep(entries []entry, metrics *jobMetrics) error {
	if k.config.Journal == nil {
		return nil
	}
	for some := range slices.Chunk(entries, mostEntries) {
		begun := k.config.Clock()
		err := k.append(message{Version: messageVersion, Entries: some})
		switch {
		case err == nil:
			metrics.kept(k.config.Clock().Sub(begun))
			continue
		case errors.Is(err, journal.ErrStale):
			return err
		}
		k.config.Log.Error().Str("job", k.job).Err(err).Msg("writing to the journal failed; the job is read from it again")
		return fmt.Errorf("%w: %w", errJournal, err)
	}
	return nil
}

// append appends one message.
func (k *jobJournal) append(m message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("serve: job %s: %w", k.job, err)
	}
	last, err := k.config.Journal.Append(context.Background(), k.job, k.last, text)
	if err != nil {
		return err
	}
	if k.last = last; m.Snapshot == nil {
		k.add(text)
	}
	return nil
}

// read hands over each message that the job does not know, and returns the number of the newest one.
func (k *jobJournal) read(ctx context.Context, each func(*message) error) (uint64, error) {
	return k.config.Journal.Read(ctx, k.job, k.last, func(text []byte) error {
		m, err := decode(text)
		if err != nil {
			return err
		}
		if m.Snapshot == nil {
			k.add(text)
		}
		return each(m)
	})
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

// snap writes a snapshot, and cuts off what is before it. A failure does no harm: the entries say the same.
func (k *jobJournal) snap(s *snapshot, err error) {
	k.messages, k.bytes = 0, 0
	if err == nil {
		err = k.append(message{Version: snapshotVersion, Snapshot: s})
	}
	if err == nil {
		err = k.config.Journal.Cut(context.Background(), k.job, k.last)
	}
	if err != nil {
		k.config.Log.Warn().Str("job", k.job).Err(err).Msg("no snapshot; the job's journal grows")
	}
}
