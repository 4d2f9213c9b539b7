package serve

import (
	"net/http"
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/cluster/live"
	"github.com/evenkeel/evenkeel/internal/slow"
)

// A job of as many ranks as there may be: its snapshots come by bytes, long before they would by messages, and it is read back as it was. Its ranks may
// report for themselves, all in one call.
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
	c, _ = newClient(t, Config{})
	sizes = c.start("job", "0123456789", 20*n, n).Sizes
	var reports []object
	for i := range n {
		reports = append(reports, own(i, 0, sizes, pace[i]))
	}
	var a answers
	if got := c.do("POST", together, object{"reports": reports}, &a); got != http.StatusOK || len(a.Sizes.Nodes) != n || slices.ContainsFunc(a.Reports, func(r judged) bool { return r.Verdict != "accepted" }) {
		t.Errorf("%d, %d sizes", got, len(a.Sizes.Nodes))
	}
	if s := c.settle("job", 2); s.Rounds != 1 {
		t.Errorf("%d rounds", s.Rounds)
	}
}
