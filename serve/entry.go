package serve

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"evenkeel/agent/export"
	"evenkeel/cluster"
	"evenkeel/cluster/live"
)

// entry is one change of a job. A job is its entries, in their order.
type entry struct {
	At       time.Duration `json:"at"` // since the job was created; it does not decrease
	Create   *creation     `json:"create,omitempty"`
	Settings *Settings     `json:"settings,omitempty"`
	Change   *change       `json:"change,omitempty"`
	Start    *registration `json:"start,omitempty"`
	Round    *reportBody   `json:"round,omitempty"`
	Token    *retoken      `json:"token,omitempty"`
	Own      *ownEntry     `json:"own,omitempty"`
	Expire   bool          `json:"expire,omitempty"` // the open round has waited long enough
	Plan     int           `json:"plan,omitempty"`   // the newest plan when the entry came in
	Sum      uint64        `json:"sum,omitempty"`    // of its shares
}

// ownEntry is a rank's report of its own share.
type ownEntry struct {
	Generation int `json:"generation"`
	Rank       int `json:"rank"`
	ownBody
}

// result is what came of an entry.
type result struct {
	verdict live.Verdict
	number  int          // of the generation
	sizes   export.Sizes // the newest
	changed bool         // the job; else the entry need not be kept
}

// request is an entry that waits to be taken in, and what came of it.
type request struct {
	entry
	result
	err  error
	done bool
}

// creation is a job's first entry.
type creation struct {
	Created  time.Time `json:"created"`
	Token    []byte    `json:"token,omitempty"` // its hash
	Settings Settings  `json:"settings"`
}

// inbox holds the entries that wait for a job's lock.
type inbox struct {
	mu       sync.Mutex
	requests []*request
}

// submit takes in an entry. When it returns, the journal has what came of the entry. Whoever gets the job's lock first takes in the entries of all that wait.
func (j *job) submit(e entry) *request {
	r := &request{entry: e}
	r.At = j.config.Clock().Sub(j.created)
	j.inbox.mu.Lock()
	j.inbox.requests = append(j.inbox.requests, r)
	j.inbox.mu.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	if r.done {
		return r
	}
	j.inbox.mu.Lock()
	all := j.inbox.requests
	j.inbox.requests = nil
	j.inbox.mu.Unlock()
	j.takeIn(all)
	return r
}

// takeIn takes in requests in their order, and writes what changed the job to the journal before anyone is answered.
func (j *job) takeIn(requests []*request) {
	var changes []entry
	if j.failed == nil && j.journal.shared() {
		j.failed = j.follow() // another service may have written since
	}
	refused := cmp.Or(j.failed, j.journal.writable()) // for lack of room: then the job stays as it is
	for _, r := range requests {
		r.done = true
		if r.err = refused; r.err != nil {
			continue
		}
		j.decideAll()
		before := j.at
		r.At = max(r.At, before)
		r.Plan, r.Sum = j.gen.plan.Number, j.gen.sum
		j.at = r.At
		if r.result, r.err = j.apply(&r.entry); r.err == nil && r.changed {
			changes = append(changes, r.entry)
		} else {
			j.at = before
		}
	}
	if j.failed == nil && len(changes) > 0 {
		if j.failed = j.journal.keep(changes, j.record.metrics); j.failed != nil { // duplicates, too: the journal may lack the entry that they repeat
			for _, r := range requests {
				r.err = j.failed
			}
			return
		}
	}
	select {
	case j.wake <- struct{}{}: // for the decision
	default: // it is awake
	}
}

// sum is a hash of a plan's shares.
func sum(p *cluster.Plan) uint64 {
	h := fnv.New64a()
	for _, share := range p.Sizes {
		_, _ = fmt.Fprintf(h, "%d ", share) // never fails
	}
	return h.Sum64()
}

// apply changes the job as an entry says; after an error nothing has changed.
func (j *job) apply(e *entry) (result, error) {
	changed := result{changed: true}
	switch {
	case e.Settings != nil:
		return changed, j.set(*e.Settings)
	case e.Change != nil:
		return changed, j.change(e.Change)
	case e.Token != nil:
		return changed, j.tokens.change(e.Token)
	case e.Start != nil:
		r, err := j.register(e.Start)
		if err != nil {
			j.record.count("malformed")
		}
		return r, err
	case e.Round != nil:
		return j.report(e.Round)
	case e.Own != nil:
		return j.reportOwn(e.Own)
	}
	return changed, nil // Expire: a later time is all there is to it
}
