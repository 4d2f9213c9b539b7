package serve

import (
	"net/http"
	"testing"

	"evenkeel/cluster/live"
	"evenkeel/internal/slow"
)

// A job of as many ranks as there may be: its snapshots come by bytes, long before they would by messages, and it is read back as it was.
func TestLargestJob(t *testing.T) {
	slow.Skip(t)
	const n, rounds = live.MaxRanks, 22
	j := openJournal(t, t.TempDir())
	c, s := newClient(t, Config{Journal: j})
	sizes := c.start("job", "0123456789", 20*n, n).Sizes
	pace := make([]float64, n)
	for i := range pace {
		pace[i] = 0.001 * float64(1+i%7)
	}
	for k := range rounds {
		var a answer
		if got := c.do("POST", "/v1/jobs/job/reports", report(sizes, k, pace...), &a); got != http.StatusOK || a.Verdict != "accepted" {
			t.Fatalf("round %d: %d, %s", k, got, a.Verdict)
		}
		sizes = a.Sizes
	}
	c.settle("job", rounds+1)
	messages, snapshots := 0, 0
	if _, err := j.Read(t.Context(), "job", 0, func(text []byte) error {
		m, err := decode(text)
		if messages++; m != nil && m.Snapshot != nil {
			snapshots++
		}
		return err
	}); err != nil || snapshots != 1 || messages > rounds {
		t.Errorf("%d messages, %d snapshots, %v", messages, snapshots, err)
	}
	was := s.known("job").memory()
	s.Close()
	again, s := newClient(t, Config{Journal: j})
	if again.settle("job", rounds+1); s.known("job").memory() != was {
		t.Error("read back it is another")
	}
}

// A service that has just started takes a report that only a job of many ranks may send: the job is read before its size is judged.
func TestLargeReportAfterStart(t *testing.T) {
	j := openJournal(t, t.TempDir())
	c, s := newClient(t, Config{Journal: j})
	const n = 1500
	sizes := c.start("job", "0123456789", 10*n, n).Sizes
	s.Close()
	again, s := newClient(t, Config{Journal: j})
	pace := make([]float64, n)
	for i := range pace {
		pace[i] = 0.001 * float64(1+i%3)
	}
	var a answer
	if got := again.do("POST", "/v1/jobs/job/reports", report(sizes, 0, pace...), &a); got != http.StatusOK || a.Verdict != "accepted" {
		t.Errorf("%d %s", got, a.Verdict)
	}
	held := &load{done: make(chan struct{})}
	s.loads.open["slow"] = held
	if got := again.do("POST", "/v1/jobs/slow/reports", report(sizes, 0, pace...), nil); got != http.StatusServiceUnavailable {
		t.Errorf("of a job that is being read: %d", got)
	}
	delete(s.loads.open, "slow")
}
