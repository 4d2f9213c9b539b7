package run

import (
	"testing"
	"time"
)

// The references are told in rounds from the start how long they take: all of them are done
// in the end, no more and no fewer.
func TestReferencesKeepCount(t *testing.T) {
	r := smallRun(7)
	s, err := r.load()
	if err != nil {
		t.Fatal(err)
	}
	config := s.tuning(56)
	if config.Rounds != 7 || config.TuneSeeds != 10 {
		t.Errorf("tuned on %d seeds of %d rounds", config.TuneSeeds, config.Rounds)
	}
	refs := s.compare(t.Context())
	last := int64(0)
	for {
		ahead := refs.ahead.Load()
		if ahead < last || ahead > int64(refs.total) {
			t.Fatalf("%d rounds after %d, of %d", ahead, last, refs.total)
		}
		last = ahead
		select {
		case <-refs.done:
			if ahead = refs.ahead.Load(); refs.err != nil || ahead != int64(refs.total) || refs.total != 4*7+2*56*10*7 {
				t.Fatalf("%d of %d rounds: %v", ahead, refs.total, refs.err)
			}
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// Equal sizes and one water-filling wait for all; the others are played, and tuned, with the
// deadline of the agent. Without a deadline there is nothing to tell apart.
func TestReferencesUnderADeadline(t *testing.T) {
	for quorum, want := range map[string]map[string]bool{
		"":    {uniformReference: false, oracleReference: true, tunedReference: true, waitingReference: false},
		"all": {uniformReference: false, oracleReference: false, tunedReference: false},
	} {
		r := smallRun(7)
		r.Quorum = quorum
		s, err := r.load()
		if err != nil {
			t.Fatal(err)
		}
		named, err := s.named()
		if err != nil || len(named) != len(want) {
			t.Fatalf("%d references: %v", len(named), err)
		}
		for _, p := range named {
			if timed := p.on.Collect.Timed(); timed != want[p.title] || timed && !p.Deadline {
				t.Errorf("quorum %q: %s has a deadline: %v, keeps it in tuning: %v", quorum, p.title, timed, p.Deadline)
			}
		}
	}
}
