package run

import (
	"regexp"
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
			if ahead = refs.ahead.Load(); refs.err != nil || ahead != int64(refs.total) || refs.total != 3*7+56*10*7 {
				t.Fatalf("%d of %d rounds: %v", ahead, refs.total, refs.err)
			}
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// A long run says how long the rest of it takes, a short one does not.
func TestTimeLeft(t *testing.T) {
	w := &watch{setup: &setup{rounds: 200}}
	w.history.rounds = make([]moment, 10)
	v := &liveView{w: w, worked: 10 * time.Second}
	if got := v.left(); !regexp.MustCompile(`^, about (190 s|3m10s) left$`).MatchString(got) {
		t.Errorf("%q", got)
	}
	if v.worked = 100 * time.Millisecond; v.left() != "" {
		t.Errorf("%q", v.left())
	}
}
