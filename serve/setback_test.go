package serve

import (
	"net/http"
	"os"
	"testing"
)

// A journal that was set back, to a backup, knows less than the ranks: they are told so, register by the id they have, and are tuned on.
func TestJournalSetBack(t *testing.T) {
	dir, backup := t.TempDir(), t.TempDir()
	j := openJournal(t, dir)
	c, s := newClient(t, Config{Journal: j})
	sizes := c.play("job", c.start("job", "0123456789", 64, 2).Sizes, 0, 3, 0.001, 0.002)
	s.Close()
	j.Close()
	if err := os.CopyFS(backup, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	j = openJournal(t, dir)
	c, s = newClient(t, Config{Journal: j})
	sizes = c.play("job", sizes, 3, 5, 0.001, 0.002)
	s.Close()
	j.Close()
	c, _ = newClient(t, Config{Journal: openJournal(t, backup)})
	if got := c.do("POST", "/v1/jobs/job/reports", report(sizes, 8, 0.001, 0.002), nil); got != http.StatusConflict {
		t.Fatalf("a plan that the journal does not have: %d", got)
	}
	again := c.start("job", "0123456789", 64, 2)
	if again.Generation != 1 || again.Sizes.Plan != 4 {
		t.Errorf("%+v", again)
	}
	c.play("job", again.Sizes, 9, 2, 0.001, 0.002)
	if state := c.settle("job", 6); state.Rounds != 5 || state.Reports["unknown plan"] == 0 {
		t.Errorf("%+v", state)
	}
}
