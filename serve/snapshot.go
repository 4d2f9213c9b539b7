package serve

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"time"

	"evenkeel/agent/export"
	"evenkeel/cluster"
	"evenkeel/cluster/live"
	"evenkeel/internal/badinput"
	"evenkeel/internal/state"
	"evenkeel/serve/history"
)

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

// rest is the part of a generation that no other package keeps.
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

// snapshot is what the job is now.
func (j *job) snapshot() (*snapshot, error) {
	g, r := &j.gen, &j.record
	s := &snapshot{
		After: j.journal.last, Create: creation{Created: j.created}, Tokens: j.tokens.all(), At: j.at, Settings: j.settings, Paused: j.paused, Number: g.number, Ended: j.ended,
		Rounds: r.rounds, Samples: r.samples, Counts: r.counts, Newest: r.newest,
	}
	past, err := r.history.Keep()
	if err != nil {
		return nil, err
	}
	if s.History = pack(past); !g.runs() {
		return s, nil
	}
	s.Start = &kept{ID: g.id, Settings: g.running, Ranks: g.ranks, Profiles: profiles(g.nodes())}
	own := rest{g.plan, g.waiting, g.ran, g.newest, r.paces, g.problem, g.limits, g.sizes}
	for i, keep := range [...]func() ([]byte, error){
		g.rounds.Keep, func() ([]byte, error) { return state.Encode(g.agent) }, func() ([]byte, error) { return state.Encode(g.control) }, func() ([]byte, error) { return state.Encode(&own) },
	} {
		part, err := keep()
		if err != nil {
			return nil, err
		}
		s.Start.Parts[i] = pack(part)
	}
	return s, nil
}

// restore makes the job what it was. Where the snapshot is of another version of the program, or of other profiles, the process group has to register anew.
func (j *job) restore(s *snapshot) error {
	j.journal.messages, j.journal.bytes = 0, 0
	if j.begun && s.After == j.journal.last {
		return nil
	}
	j.begin(&s.Create)
	j.tokens.set(s.Tokens)
	j.at, j.settings, j.paused, j.gen.number, j.ended = s.At, s.Settings, s.Paused, s.Number, s.Ended
	j.record.rounds, j.record.samples, j.record.counts, j.record.newest = s.Rounds, s.Samples, s.Counts, s.Newest
	if s.Counts == nil {
		j.record.counts = map[string]int64{}
	}
	j.gen.end()
	var err error
	var c *cluster.Cluster
	if s.Start != nil {
		if err = j.recall(s.Start); err == nil {
			c = j.gen.rounds.Cluster()
		}
	}
	past, damaged := unpack(s.History)
	if damaged == nil {
		damaged = j.record.history.Recall(past, c)
	}
	if err != nil {
		j.record.history = history.History{} // it is of that process group
	}
	for _, err := range []error{err, damaged} {
		if errors.Is(err, state.ErrDamaged) {
			return badinput.Wrap(fmt.Errorf("snapshot: %w", err))
		}
	}
	if err != nil {
		j.registerAnew(err)
	} else if damaged != nil && c != nil {
		j.record.history.Start(j.at, j.gen.number, c)
	}
	return nil
}

// recall begins the generation as it was begun, and makes it what it was.
func (j *job) recall(k *kept) error {
	f, err := form(j.config, k.Settings, k.Ranks, j.gen.control)
	if err != nil {
		return err
	}
	if profiles(f.rounds.Cluster().Nodes) != k.Profiles {
		return errors.New("serve: the snapshot was made with other profiles of the ranks' devices")
	}
	var own rest
	for i, recall := range [...]func([]byte) error{
		f.rounds.Recall, func(b []byte) error { return state.Decode(b, f.agent) }, func(b []byte) error { return state.Decode(b, f.control) }, func(b []byte) error { return state.Decode(b, &own) },
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
	j.gen = generation{
		number: j.gen.number, id: k.ID, running: k.Settings, ranks: k.Ranks, rounds: f.rounds, agent: f.agent, control: f.control,
		plan: own.plan, sum: sum(&own.plan), sizes: own.sizes, waiting: own.waiting, ran: own.ran, newest: own.newest, limits: own.limits, problem: own.problem,
	}
	j.record.paces = own.paces
	j.show()
	return nil
}

// profiles is a hash of the nodes' profiles.
func profiles(nodes []cluster.Node) uint64 {
	h := fnv.New64a()
	for i := range nodes {
		if p := nodes[i].Profile; p != nil {
			_, _ = fmt.Fprintf(h, "%d %q %v ", i, p.Device, p.Points) // never fails
		}
	}
	return h.Sum64()
}

func pack(b []byte) []byte {
	var out bytes.Buffer
	w, _ := flate.NewWriter(&out, flate.BestSpeed) // the level is valid
	_, _ = w.Write(b)                              // a buffer takes everything
	_ = w.Close()
	return out.Bytes()
}

func unpack(b []byte) ([]byte, error) {
	out, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(b)), mostState))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", state.ErrDamaged, err)
	}
	return out, nil
}
