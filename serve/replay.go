package serve

import (
	"context"
	"errors"
	"fmt"

	"evenkeel/internal/badinput"
)

// read takes in what the journal has beyond what the job knows. After an error the job is of no use.
func (j *job) read(ctx context.Context) error {
	counts := j.record.metrics
	j.record.metrics = nil // it was counted when it happened
	defer func() { j.record.metrics = counts }()
	last, err := j.journal.read(ctx, func(m *message) error {
		if m.Snapshot != nil {
			return j.restore(m.Snapshot)
		}
		for k := range m.Entries {
			if err := j.replay(&m.Entries[k]); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && j.headless && !j.begun {
		err = badinput.New("its first entry is neither its creation nor a snapshot")
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
	j.journal.last = last
	return nil
}

// follow is read within a request, whose client waits.
func (j *job) follow() error {
	ctx, cancel := context.WithTimeout(context.Background(), loadWait)
	defer cancel()
	return j.read(ctx)
}

// upTo says whether the job knows the journal up to its newest message, whose number this is. It reads what is missing.
func (j *job) upTo(last uint64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed == nil && j.journal.last < last {
		j.failed = j.follow()
	}
	return j.failed == nil && j.journal.last >= last && last > 0
}

// replayFirst takes in the entry with which a job begins.
func (j *job) replayFirst(e *entry) error {
	switch {
	case e.Create == nil:
		j.headless = true // what was before is cut off, but not yet all of it
		return nil
	case j.headless:
		return badinput.New("a job begins with its creation")
	case j.begun && j.journal.last > 0:
		return errAnew
	case j.begun:
		return badinput.New("a job has one creation")
	}
	j.begin(e.Create)
	return nil
}

// replay takes in an entry of the journal. Where this program decides differently from the one that wrote the entry, or has other profiles of
// the ranks' devices, the generation cannot go on: its ranks register anew, as after the loss of a service without a journal.
func (j *job) replay(e *entry) error {
	if e.Create != nil || !j.begun {
		return j.replayFirst(e)
	}
	j.decideAll()
	j.at = max(e.At, j.at)
	alone := e.Start != nil || e.Settings != nil || e.Change != nil || e.Token != nil // it stands by itself
	if !alone && !j.gen.runs() {
		return nil // of a generation that was ended here
	}
	same := !j.gen.runs() || e.Plan == j.gen.plan.Number && e.Sum == j.gen.sum
	var r result
	var err error
	if same {
		r, err = j.apply(e)
	}
	if same && err == nil && r.changed {
		return nil
	}
	j.registerAnew(err)
	j.gen.end()
	if !same && alone {
		_, _ = j.apply(e)
	}
	return nil
}

// registerAnew notes that a generation cannot go on.
func (j *job) registerAnew(because error) {
	j.record.history.Note(j.at, "problem", "the journal is of another version of the program or of other profiles: the process group has to register anew")
	j.config.Log.Warn().Str("job", j.name).Int("generation", j.gen.number).AnErr("because", because).
		Msg("the journal is of another version of the program or of other profiles; the process group has to register anew")
}
