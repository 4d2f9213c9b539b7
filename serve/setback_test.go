package serve

import (
	"net/http"
	"os"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"evenkeel/internal/broker"
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

// What a journal that cannot be written says may be of the past: a report of a plan, or a start, that it does not have is no conflict but has to wait.
func TestConflictsAreSure(t *testing.T) {
	n, url := natsAt(t, t.TempDir(), server.RANDOM_PORT)
	t.Cleanup(func() { broker.Stop(n) })
	c, _ := newClient(t, Config{Journal: openURL(t, url)})
	sizes := c.play("job", c.start("job", "0123456789", 64, 2).Sizes, 0, 3, 0.001, 0.002)
	conn, err := nats.Connect(url)
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
	for _, writable := range []bool{false, true} {
		config := stream.CachedInfo().Config
		if config.MaxMsgSize = 1; writable {
			config.MaxMsgSize = -1
		}
		if _, err := js.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		want := map[bool]int{false: http.StatusServiceUnavailable, true: http.StatusConflict}[writable]
		ahead, started := report(sizes, 9, 0.001, 0.002), report(sizes, 9, 0.001, 0.002)
		ahead["plan"], started["generation"] = sizes.Plan+5, 2
		for name, body := range map[string]object{"a plan": ahead, "a start": started} {
			if got := c.do("POST", "/v1/jobs/job/reports", body, nil); got != want {
				t.Errorf("%s of the future, writable %v: %d, want %d", name, writable, got, want)
			}
		}
	}
	c.play("job", sizes, 3, 2, 0.001, 0.002)
}
