package serve

import (
	"bytes"
	"compress/flate"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"time"

	"github.com/evenkeel/evenkeel/agent/export"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/live"
	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/internal/state"
	"github.com/evenkeel/evenkeel/serve/history"
)

// A snapshot is written after so many messages, or bytes of them: what is behind it has to be read, and decided, anew.
const (
	every     = 256
	mostBytes = 8 << 20 // half a second of work, 12 rounds of 10,000 ranks
)

// tail is what a journal holds of a job behind its newest snapshot.
type tail struct{ messages, bytes int }

func (t *tail) add(message []byte) {
	t.messages++
	t.bytes += len(message)
}

// long says whether it is time for a snapshot, of which there is one after so many messages at the latest.
func (t *tail) long(every int) bool { return t.messages >= every || t.bytes >= mostBytes }

// mostState is how many bytes a part of a snapshot may have.
const mostState = 256 << 20

// snapshot is what a job was after a message: whoever reads it need not read what was before.
type snapshot struct {
	After    uint64              `json:"after"` // number of that message
	Create   creation            `json:"create"`
	Tokens   []token             `json:"tokens,omitempty"`
	At       time.Duration       `json:"at"`
	Settings Settings            `json:"settings"`
	Paused   bool                `json:"paused,omitempty"`
	Number   int                 `json:"number"`
	Ended    [][sha256.Size]byte `json:"ended,omitempty"`
	Rounds   int                 `json:"rounds"`
	Samples  int64               `json:"samples"`
	Counts   map[string]int64    `json:"counts"`
	Newest   time.Time           `json:"newest,omitzero"` // report came then
	History  []byte              `json:"history"`         // for people, compressed
	Start    *kept               `json:"start,omitempty"` // nil: no process group has started
}

// kept is a generation in a snapshot.
type kept struct {
	ID       string      `json:"id"`
	Settings Settings    `json:"settings"`
	Ranks    []live.Rank `json:"ranks"`
	Profiles uint64      `json:"profiles"` // hash of those that were used
	// Parts are the state of the rounds, the agent, its control and the rest (package state), compressed.
	Parts [4][]byte `json:"parts"`
}

// rest is of a generation what is the job's own.
type rest struct {
	plan    cluster.Plan
	waiting *cluster.Report
	ran     map[int]cluster.Plan
	newest  cluster.Report
	paces   paces
	problem string
	limits  map[int]int
	sizes   export.Sizes // of the nodes as they were then
}

// snap writes a snapshot into the journal, and cuts off what is before it. Failing does no harm: the journal says all the same.
func (j *job) snap() {
	j.since = tail{}
	s, err := j.snapshot()
	var text []byte
	if err == nil {
		text, err = json.Marshal(message{Version: snapshotVersion, Snapshot: s})
	}
	if err == nil {
		var last uint64
		if last, err = j.config.Journal.Append(context.Background(), j.name, j.last, text); err == nil {
			j.last = last
			err = j.config.Journal.Cut(context.Background(), j.name, last)
		}
	}
	if err != nil {
		j.config.Log.Warn().Str("job", j.name).Err(err).Msg("no snapshot; the job's journal grows")
	}
}

func (j *job) snapshot() (*snapshot, error) {
	s := &snapshot{
		After: j.last, Create: creation{Created: j.created}, Tokens: j.holders(), At: j.at, Settings: j.settings, Paused: j.paused, Number: j.number, Ended: j.ended,
		Rounds: j.rounds, Samples: j.samples, Counts: j.counts, Newest: j.newestAt,
	}
	past, err := j.history.Keep()
	if err != nil {
		return nil, err
	}
	if s.History, err = pack(past); err != nil || j.gen == nil {
		return s, err
	}
	s.Start = &kept{ID: j.id, Settings: j.running, Ranks: j.ranks, Profiles: profiles(j.gen.Cluster())}
	own := rest{j.plan, j.waiting, j.ran, j.newest, j.paces, j.problem, j.limits, j.sizes}
	for i, keep := range [...]func() ([]byte, error){
		j.gen.Keep, func() ([]byte, error) { return state.Encode(j.agent) }, func() ([]byte, error) { return state.Encode(j.control) }, func() ([]byte, error) { return state.Encode(&own) },
	} {
		part, err := keep()
		if err != nil {
			return nil, err
		}
		if s.Start.Parts[i], err = pack(part); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// restore makes the job what it was. Where the snapshot is of another version of the program, or of other profiles, the process group has to register anew.
func (j *job) restore(s *snapshot) error {
	if j.since = (tail{}); j.begun && s.After == j.last {
		return nil
	}
	j.begin(&s.Create)
	j.hold(s.Tokens)
	j.at, j.settings, j.paused, j.number, j.ended, j.rounds, j.samples, j.counts, j.newestAt = s.At, s.Settings, s.Paused, s.Number, s.Ended, s.Rounds, s.Samples, s.Counts, s.Newest
	if j.counts == nil {
		j.counts = map[string]int64{}
	}
	j.forget()
	var err error
	var c *cluster.Cluster
	if s.Start != nil {
		if err = j.recall(s.Start); err == nil {
			c = j.gen.Cluster()
		}
	}
	past, damaged := unpack(s.History)
	if damaged == nil {
		damaged = j.history.Recall(past, c)
	}
	if err != nil {
		j.history = history.History{} // it is of that process group
	}
	for _, err := range []error{err, damaged} {
		if errors.Is(err, state.ErrDamaged) {
			return badinput.Wrap(fmt.Errorf("snapshot: %w", err))
		}
	}
	if err != nil {
		j.anew(err)
	} else if damaged != nil && c != nil {
		j.history.Start(j.at, j.number, c)
	}
	return nil
}

// errProfiles says that what was known beforehand of the ranks' devices is another than it was.
var errProfiles = errors.New("serve: other profiles")

// recall begins the generation as it was begun, and makes it what it was.
func (j *job) recall(k *kept) error {
	f, err := j.form(k.Settings, k.Ranks)
	if err != nil {
		return err
	}
	if profiles(f.gen.Cluster()) != k.Profiles {
		return errProfiles
	}
	var own rest
	for i, recall := range [...]func([]byte) error{
		f.gen.Recall, func(b []byte) error { return state.Decode(b, f.agent) }, func(b []byte) error { return state.Decode(b, f.control) }, func(b []byte) error { return state.Decode(b, &own) },
	} {
		part, err := unpack(k.Parts[i])
		if err != nil {
			return err
		}
		if err := recall(part); err != nil {
			return err
		}
	}
	if n := len(k.Ranks); len(own.plan.Sizes) != n {
		return state.ErrDamaged
	}
	j.gen, j.agent, j.control, j.running, j.ranks, j.id = f.gen, f.agent, f.control, k.Settings, k.Ranks, k.ID
	j.plan, j.waiting, j.ran, j.newest, j.paces, j.problem, j.limits = own.plan, own.waiting, own.ran, own.newest, own.paces, own.problem, own.limits
	j.sizes, j.sum = own.sizes, sum(&j.plan)
	j.show()
	return nil
}

// profiles is a hash of the profiles that a cluster's nodes have.
func profiles(c *cluster.Cluster) uint64 {
	h := fnv.New64a()
	for i := range c.Nodes {
		if p := c.Nodes[i].Profile; p != nil {
			_, _ = fmt.Fprintf(h, "%d %q %v ", i, p.Device, p.Points) // never fails
		}
	}
	return h.Sum64()
}

func pack(b []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestSpeed)
	if err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	if _, err := w.Write(b); err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	return out.Bytes(), nil
}

func unpack(b []byte) ([]byte, error) {
	out, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(b)), mostState))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", state.ErrDamaged, err)
	}
	return out, nil
}
