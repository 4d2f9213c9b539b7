package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// history is what the clients of several services were told, by job. It and its check know of the services only what docs/guides/serve.md says of
// answers, and what lies in the journal.
type history struct {
	mu       sync.Mutex
	accepted map[string]map[int]bool  // rounds, by job
	shares   map[string]map[int][]int // by job and plan
	faults   []string
}

func newHistory() *history {
	return &history{accepted: map[string]map[int]bool{}, shares: map[string]map[int][]int{}}
}

// told notes an answer to a report.
func (h *history) told(job string, round int, a *sizesAnswer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.accepted[job] == nil {
		h.accepted[job], h.shares[job] = map[int]bool{}, map[int][]int{}
	}
	if a.Verdict == "accepted" {
		if h.accepted[job][round] {
			h.faults = append(h.faults, fmt.Sprintf("%s: round %d was accepted twice", job, round))
		}
		h.accepted[job][round] = true
	}
	now := a.shares()
	if before, ok := h.shares[job][a.Sizes.Plan]; ok && fmt.Sprint(before) != fmt.Sprint(now) {
		h.faults = append(h.faults, fmt.Sprintf("%s: plan %d is %v and %v", job, a.Sizes.Plan, before, now))
	}
	h.shares[job][a.Sizes.Plan] = now
}

// kept is a message of the journal, as far as the check reads it.
type kept struct {
	Snapshot *struct{ Number, Rounds int }
	Entries  []struct {
		At     int64
		Create json.RawMessage
		Start  json.RawMessage
		Round  *struct{ Generation, Round, Plan int }
		Plan   int
		Sum    uint64
	}
}

// check reads the journal of a NATS server: every round that was called accepted is there, none twice, each by the decisions on all before it, and the
// sizes that clients were told are those that the journal has the sums of.
func (h *history) check(t *testing.T, url string) {
	t.Helper()
	conn, err := nats.Connect(url, nats.Timeout(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "EVENKEEL_JOBS")
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	jobs := map[string]*recorded{}
	for n := info.State.FirstSeq; n <= info.State.LastSeq; n++ {
		m, err := stream.GetMsg(t.Context(), n)
		if errors.Is(err, jetstream.ErrMsgNotFound) { // it was of a job that was removed, or of none
			continue
		}
		if err != nil {
			t.Fatalf("message %d: %v", n, err)
		}
		job := strings.TrimPrefix(m.Subject, "evenkeel.jobs.")
		if jobs[job] == nil {
			jobs[job] = &recorded{}
		}
		var k kept
		if err := json.Unmarshal(m.Data, &k); err != nil {
			t.Fatalf("message %d: %v", n, err)
		}
		if s := k.Snapshot; s != nil { // what was before may have been cut off
			if r := jobs[job]; r.begun && r.rounds != s.Rounds {
				h.faults = append(h.faults, fmt.Sprintf("%s: message %d: a snapshot of %d rounds; there were %d", job, n, s.Rounds, r.rounds))
			}
			jobs[job].begun, jobs[job].starts, jobs[job].rounds = true, s.Number, s.Rounds
		}
		for i := range k.Entries {
			if fault := jobs[job].take(&k, i, h.shares[job]); fault != "" {
				h.faults = append(h.faults, fmt.Sprintf("%s: message %d: %s", job, n, fault))
			}
		}
	}
	for job, rounds := range h.accepted {
		for round := range rounds {
			if jobs[job] == nil || round >= jobs[job].rounds {
				h.faults = append(h.faults, fmt.Sprintf("%s: round %d was called accepted and is not in the journal", job, round))
			}
		}
	}
	for i, fault := range h.faults {
		if t.Error(fault); i > 10 {
			t.Fatalf("and %d more", len(h.faults)-i)
		}
	}
}

// recorded is a job as far as its messages were read. Its process group starts once.
type recorded struct {
	at     int64
	starts int
	rounds int // 0 to that, less one
	begun  bool
}

// take checks an entry.
func (r *recorded) take(k *kept, i int, shares map[int][]int) string {
	e := &k.Entries[i]
	if e.At < r.at {
		return fmt.Sprintf("it is of %d, after one of %d", e.At, r.at)
	}
	r.at = e.At
	if (e.Create != nil) == r.begun {
		return "a job begins with its creation, and has one"
	}
	r.begun = true
	if e.Start != nil {
		r.starts++
	}
	if e.Round == nil {
		return ""
	}
	if e.Round.Generation != r.starts {
		return fmt.Sprintf("a report of generation %d; there were %d starts", e.Round.Generation, r.starts)
	}
	if e.Round.Round != r.rounds || e.Plan != r.rounds+1 { // every round before it led to one decision
		return fmt.Sprintf("round %d was judged by plan %d; it should be round %d by plan %d", e.Round.Round, e.Plan, r.rounds, r.rounds+1)
	}
	r.rounds++
	if told, ok := shares[e.Plan]; ok {
		sum := fnv.New64a()
		for _, share := range told {
			_, _ = fmt.Fprintf(sum, "%d ", share)
		}
		if sum.Sum64() != e.Sum {
			return fmt.Sprintf("the sum of plan %d is %x; clients were told %v", e.Plan, e.Sum, told)
		}
	}
	return ""
}
