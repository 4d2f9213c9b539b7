package serve

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/nats-io/nats-server/v2/server"

	"evenkeel/agent/export"
	"evenkeel/cluster"
	"evenkeel/internal/broker"
	"evenkeel/internal/fulldisk"
	"evenkeel/serve/journal"
)

func openJournal(t testing.TB, dir string) *journal.Journal {
	t.Helper()
	return opened(t, journal.Options{Dir: dir})
}

// opened is a journal that is closed with the test.
func opened(t testing.TB, o journal.Options) *journal.Journal {
	t.Helper()
	j, err := journal.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	return j
}

// natsAt starts a NATS server that listens, as one of its own would, at a port or at any, and says where.
func natsAt(t *testing.T, dir string, port int) (*server.Server, string) {
	t.Helper()
	n, err := broker.Start(&server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, SyncAlways: true}, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return n, n.ClientURL()
}

// openURL is a connection of its own to a server's journal.
func openURL(t *testing.T, url string) *journal.Journal {
	t.Helper()
	return opened(t, journal.Options{URL: url})
}

// Two services of one NATS server: each takes any request, and none writes behind the other's back. Where one forgets, both do.
func TestTwoServices(t *testing.T) {
	n, url := natsAt(t, t.TempDir(), server.RANDOM_PORT)
	t.Cleanup(func() { broker.Stop(n) })
	a, one := newClient(t, Config{Journal: openURL(t, url)})
	b, two := newClient(t, Config{Journal: openURL(t, url)})
	s := a.start("job", "0123456789", 64, 2).Sizes
	for k := range 30 {
		c := []*client{a, b}[k/3%2]
		var got answer
		if status := c.do("POST", "/v1/jobs/job/reports", report(s, k, 0.001, 0.003), &got); status != http.StatusOK || got.Verdict != "accepted" {
			t.Fatalf("round %d: %d %+v", k, status, got)
		}
		if got.Sizes.Plan != k+1 { // that of the reports before, whoever took them
			t.Fatalf("round %d: plan %d", k, got.Sizes.Plan)
		}
		s = got.Sizes
	}
	if status := b.do("POST", "/v1/jobs/job/reports", report(s, 29, 0.001, 0.003), nil); status != http.StatusOK {
		t.Error(status)
	}
	if rounds := two.known("job").record.rounds; rounds != 30 {
		t.Errorf("%d rounds", rounds)
	}
	if s.Nodes[0].Share < 44 {
		t.Errorf("nothing was learnt: %+v", s.Nodes)
	}
	if status := a.do("DELETE", "/v1/jobs/job", nil, nil); status != http.StatusNoContent {
		t.Error(status)
	}
	if status := b.do("POST", "/v1/jobs/job/reports", report(s, 30, 0.001, 0.003), nil); status != http.StatusConflict {
		t.Errorf("a report of a job that another service removed: %d", status)
	}
	if one.known("job") != nil || two.known("job") != nil {
		t.Error("it is still there")
	}
}

// A round that two services get at once counts once: one of them accepts it, for the other it is a duplicate.
func TestRacingServices(t *testing.T) {
	n, url := natsAt(t, t.TempDir(), server.RANDOM_PORT)
	t.Cleanup(func() { broker.Stop(n) })
	a, _ := newClient(t, Config{Journal: openURL(t, url)})
	b, _ := newClient(t, Config{Journal: openURL(t, url)})
	s := a.start("job", "0123456789", 64, 2).Sizes
	for k := range 20 {
		var got [2]answer
		var both sync.WaitGroup
		for i, c := range []*client{a, b} {
			both.Go(func() {
				if status := c.do("POST", "/v1/jobs/job/reports", report(s, k, 0.001, 0.003), &got[i]); status != http.StatusOK {
					t.Errorf("round %d: %d", k, status)
				}
			})
		}
		both.Wait()
		verdicts := []string{got[0].Verdict, got[1].Verdict}
		if slices.Sort(verdicts); !slices.Equal(verdicts, []string{"accepted", "duplicate"}) {
			t.Fatalf("round %d: %v", k, verdicts)
		}
		one, two := a.settle("job", k+2), b.settle("job", k+2)
		if one.Rounds != k+1 || !reflect.DeepEqual(one.Ranks, two.Ranks) || one.Plan != two.Plan {
			t.Fatalf("round %d: %+v\n%+v", k, one, two)
		}
		if status := a.do("GET", "/v1/jobs/job/sizes", nil, &s); status != http.StatusOK {
			t.Fatal(status)
		}
	}
}

// A name that stands for any in NATS opens no job but its own: who has no token reads nothing by it.
func TestWildNames(t *testing.T) {
	c, s := newClient(t, Config{Journal: openJournal(t, t.TempDir()), Token: strings.Repeat("x", 32)})
	if _, err := s.CreateJob("job", Settings{}); err != nil {
		t.Fatal(err)
	}
	c.token = ""
	for _, name := range []string{"*", ">", "%2A", "%3E", "job.>"} {
		if status := c.do("GET", "/v1/jobs/"+name, nil, nil); status < 400 || status >= 500 {
			t.Errorf("%s: %d", name, status)
		}
		if _, err := s.find(name); !errors.Is(err, errNoJob) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s.known("job") == nil || len(s.jobs) != 1 {
		t.Errorf("%d jobs", len(s.jobs))
	}
}

// Entries that change nothing leave nothing in the journal, and what is told of a job is told once: not when it is read.
func TestToldOnce(t *testing.T) {
	told := 0
	config := Config{Journal: openJournal(t, t.TempDir()), Each: func(Event) { told++ }}
	c, s := newClient(t, config)
	sizes := c.start("job", "0123456789", 64, 2).Sizes
	body := report(sizes, 0, 0.001, 0.002)
	c.do("POST", "/v1/jobs/job/reports", body, nil)
	c.settle("job", 2)
	before, err := config.Journal.Last(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	c.do("POST", "/v1/jobs/job/reports", body, nil)                            // a duplicate
	c.do("POST", "/v1/jobs/job/reports", report(sizes, -1, 0.001, 0.002), nil) // malformed
	c.do("PATCH", "/v1/jobs/job", object{"limits": object{"nobody": 1}}, nil)  // refused
	c.do("GET", "/v1/jobs/job/sizes", nil, nil)                                // nothing is due
	c.start("job", "0123456789", 64, 2)                                        // again
	if after, err := config.Journal.Last(t.Context(), "job"); after != before || err != nil {
		t.Errorf("message %d after %d, %v", after, before, err)
	}
	s.Close()
	if told != 2 {
		t.Errorf("told %d times of a start and a round", told)
	}
	c, _ = newClient(t, config)
	if c.settle("job", 2); told != 2 {
		t.Errorf("told again: %d", told)
	}
	if c.play("job", sizes, 1, 1, 0.001, 0.002); told != 3 {
		c.settle("job", 3)
		if told != 3 {
			t.Errorf("told %d times", told)
		}
	}
	text := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/metrics", nil)
	if c.to.ServeHTTP(text, r); !strings.Contains(text.Body.String(), `evenkeel_reports_total{job="job",verdict="accepted"} 1`) {
		t.Errorf("%s", text.Body)
	}
}

// A NATS server that goes away and comes back: meanwhile nothing is accepted, and afterwards nothing is missing, without a new service.
func TestNATSComesBack(t *testing.T) {
	dir := t.TempDir()
	nats, url := natsAt(t, dir, server.RANDOM_PORT)
	port := nats.Addr().(*net.TCPAddr).Port
	c, s := newClient(t, Config{Journal: openURL(t, url)})
	sizes := c.start("job", "0123456789", 64, 2).Sizes
	sizes = c.play("job", sizes, 0, 5, 0.001, 0.002)
	kept := s.known("job")
	broker.Stop(nats)
	if status := c.do("POST", "/v1/jobs/job/reports", report(sizes, 5, 0.001, 0.002), nil); status != http.StatusServiceUnavailable {
		t.Errorf("without NATS: %d", status)
	}
	if err := kept.submit(entry{Change: &change{}}).err; !errors.Is(err, errJournal) {
		t.Errorf("a job of which nobody knows what is kept takes entries: %v", err)
	}
	nats, _ = natsAt(t, dir, port)
	defer broker.Stop(nats)
	for k := 0; ; k++ {
		if k == 500 {
			t.Fatal("NATS is back, and reports are refused")
		}
		var got answer
		if status := c.do("POST", "/v1/jobs/job/reports", report(sizes, 5, 0.001, 0.002), &got); status == http.StatusOK {
			if got.Verdict != "accepted" && got.Verdict != "duplicate" {
				t.Errorf("%+v", got)
			}
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if state := c.settle("job", 7); state.Rounds != 6 {
		t.Errorf("%+v", state)
	}
}

// A journal that ends takes reports no more: none is called accepted. When it is back the job goes on where it was.
func TestJournalGone(t *testing.T) {
	dir := t.TempDir()
	j := openJournal(t, dir)
	c, s := newClient(t, Config{Journal: j})
	sizes := c.start("job", "0123456789", 64, 2).Sizes
	sizes = c.play("job", sizes, 0, 5, 0.001, 0.002)
	j.Close()
	for range 2 {
		if status := c.do("POST", "/v1/jobs/job/reports", report(sizes, 5, 0.001, 0.002), nil); status != http.StatusServiceUnavailable {
			t.Fatal(status)
		}
	}
	for path, want := range map[string]int{"/readyz": 503, "/livez": 200, "/v1/jobs/job": 503} {
		if status := c.do("GET", path, nil, nil); status != want {
			t.Errorf("%s: %d", path, status)
		}
	}
	if status := c.do("PUT", "/v1/jobs/other", object{}, nil); status != http.StatusServiceUnavailable {
		t.Errorf("a new job: %d", status)
	}
	s.Close()
	c, _ = newClient(t, Config{Journal: openJournal(t, dir)})
	if status := c.do("GET", "/readyz", nil, nil); status != http.StatusOK {
		t.Error(status)
	}
	c.play("job", sizes, 5, 1, 0.001, 0.002) // was not accepted before
	if state := c.settle("job", 7); state.Rounds != 6 {
		t.Errorf("%+v", state)
	}
}

// A full disk is named at once, to those who report, register and watch over the service; jobs keep their sizes, and go on once there is room.
func TestDiskFull(t *testing.T) {
	j := openJournal(t, t.TempDir())
	var now clock
	var log strings.Builder
	c, s := newClient(t, Config{Journal: j, Clock: now.read, Log: logTo(&log)})
	sizes := c.play("job", c.start("job", "0123456789", 64, 2).Sizes, 0, 5, 0.001, 0.002)
	if _, err := j.Append(t.Context(), "large", 0, make([]byte, fulldisk.Most)); err != nil {
		t.Fatal(err)
	}
	free := fulldisk.Fill(t)
	registration := object{"id": "9876543210", "global_batch": 64, "ranks": []object{{"name": "a"}}}
	for range 3 {
		now.now = now.now.Add(2 * time.Second)
		for _, x := range []struct {
			method, path string
			body         any
			status       int
		}{
			{"POST", "/v1/jobs/job/reports", report(sizes, 5, 0.001, 0.002), 507}, {"POST", "/v1/jobs/job/generations", registration, 507}, {"POST", "/v1/jobs/other/generations", registration, 507},
			{"PATCH", "/v1/jobs/job", object{"paused": true}, 507}, {"GET", "/readyz", nil, 503},
		} {
			var p huma.ErrorModel
			begun := time.Now()
			if got := c.do(x.method, x.path, x.body, &p); got != x.status || !strings.Contains(p.Detail, "the journal's disk is full: file too large; make room") || time.Since(begun) > time.Second {
				t.Errorf("%s %s: %d %q after %v", x.method, x.path, got, p.Detail, time.Since(begun))
			}
		}
		var kept export.Sizes
		if got := c.do("GET", "/v1/jobs/job/sizes", nil, &kept); got != 200 || !reflect.DeepEqual(kept, sizes) {
			t.Errorf("%d %+v, want %+v", got, kept, sizes)
		}
	}
	if state, ok := s.Job("job"); !ok || state.Rounds != 5 || state.Paused || !strings.Contains(log.String(), "disk is full") {
		t.Errorf("%+v: %s", state, log.String())
	}
	free()
	now.now = now.now.Add(2 * time.Second)
	if got := c.do("GET", "/readyz", nil, nil); got != 200 {
		t.Error(got)
	}
	c.play("job", sizes, 5, 1, 0.001, 0.002)
	c.start("other", "9876543210", 64, 2)
	if state := c.settle("job", 7); state.Rounds != 6 {
		t.Errorf("%+v", state)
	}
}

// A journal that has reached its limit says so, and takes reports again when jobs were deleted.
func TestJournalFull(t *testing.T) {
	j := opened(t, journal.Options{Dir: t.TempDir(), MaxBytes: 32 << 10})
	c, _ := newClient(t, Config{Journal: j})
	c.start("other", "0123456789", 64, 2)
	sizes := c.start("job", "0123456789", 64, 2).Sizes
	round, status := 0, http.StatusOK
	for ; status == http.StatusOK && round < 500; round++ {
		status = c.do("POST", "/v1/jobs/job/reports", report(sizes, round, 0.001, 0.002), nil)
	}
	if status != http.StatusInsufficientStorage {
		t.Fatalf("round %d: %d", round, status)
	}
	if got := c.do("DELETE", "/v1/jobs/other", nil, nil); got != http.StatusNoContent {
		t.Fatal(got)
	}
	if got := c.do("POST", "/v1/jobs/job/reports", report(sizes, round-1, 0.001, 0.002), nil); got != http.StatusOK {
		t.Errorf("after jobs were deleted: %d", got)
	}
	if state := c.settle("job", 2); state.Rounds != round {
		t.Errorf("%d rounds, want %d", state.Rounds, round)
	}
}

// What another version decided is not taken for what this one would: the generation ends, and its ranks register anew under the same id. A journal that
// cannot be read is an error of its job alone, which can still be deleted.
func TestOtherJournals(t *testing.T) {
	j := openJournal(t, t.TempDir())
	first := `{"version":1,"entries":[{"at":0,"create":{"created":"2026-01-01T00:00:00Z","settings":{"global_batch":64}}}]}`
	start := `{"version":1,"entries":[{"at":1,"start":{"id":"0123456789","ranks":[{"name":"a/0"},{"name":"a/1"}]}}]}`
	round := func(at int, plan int, sum uint64) string {
		return fmt.Sprintf(`{"version":1,"entries":[{"at":%d,"plan":%d,"sum":%d,"round":{"generation":1,"round":%d,"plan":1,"wait_seconds":1,"ranks":[{"seconds":1,"samples":32,"micro_steps":1},{"seconds":0.5,"samples":32,"micro_steps":1}]}}]}`, at, plan, sum, at)
	}
	setting := `{"version":1,"entries":[{"at":2,"plan":1,"sum":1,"settings":{"global_batch":32}}]}`
	even := sum(&cluster.Plan{Sizes: []int{32, 32}})
	for name, x := range map[string]struct {
		messages []string
		status   int // of the job
		rounds   int
		fresh    bool // the same id starts another generation
	}{
		"good":             {[]string{first, start, round(2, 1, even)}, 200, 1, false},
		"another-sum":      {[]string{first, start, round(2, 1, even+1), round(3, 2, 7)}, 200, 0, true},
		"another-plan":     {[]string{first, start, round(2, 2, even)}, 200, 0, true},
		"changed-beside":   {[]string{first, start, strings.Replace(setting, `"sum":1`, `"sum":7`, 1)}, 200, 0, true},
		"refused":          {[]string{first, start, strings.Replace(round(2, 1, even), `"samples":32`, `"samples":64`, 1)}, 200, 0, true},
		"newer":            {[]string{first, `{"version":3,"entries":[]}`}, 500, 0, false},
		"another-field":    {[]string{first, `{"version":1,"entries":[{"at":1,"stop":true}]}`}, 500, 0, false},
		"cut":              {[]string{first, start[:40]}, 500, 0, false},
		"headless":         {[]string{start}, 500, 0, false},
		"created-twice":    {[]string{first, first}, 500, 0, false},
		"no-job-but-empty": {[]string{`{"version":1,"entries":[]}`}, 404, 0, false},
	} {
		last := uint64(0)
		for _, m := range x.messages {
			var err error
			if last, err = j.Append(t.Context(), name, last, []byte(m)); err != nil {
				t.Fatal(err)
			}
		}
		s, err := New(t.Context(), Config{Journal: j})
		if err != nil {
			t.Fatal(err)
		}
		c := &client{t: quiet{t}, to: s.handler}
		var state JobState
		if status := c.do("GET", "/v1/jobs/"+name, nil, &state); status != x.status || state.Rounds != x.rounds {
			t.Errorf("%s: %d, %d rounds", name, status, state.Rounds)
		}
		if x.status == 200 {
			var got started
			want := map[bool]int{false: 1, true: 2}[x.fresh]
			if c.do("POST", "/v1/jobs/"+name+"/generations", object{"id": "0123456789", "ranks": []object{{"name": "a/0"}, {"name": "a/1"}}}, &got); got.Generation != want {
				t.Errorf("%s: generation %d, want %d", name, got.Generation, want)
			}
			if name == "changed-beside" && got.Sizes.GlobalBatch != 32 {
				t.Errorf("a change of settings was lost: %d", got.Sizes.GlobalBatch)
			}
			c.play(name, got.Sizes, 5, 3, 0.001, 0.002)
			s.drop(s.known(name))
			if again, err := s.find(name); err != nil || again.record.rounds != x.rounds+3 {
				t.Errorf("%s: read anew %v, %v", name, again, err)
			}
		}
		if x.status != 404 {
			if status := c.do("DELETE", "/v1/jobs/"+name, nil, nil); status != http.StatusNoContent {
				t.Errorf("%s: deleted with %d", name, status)
			}
		} else if err := j.Remove(t.Context(), name); err != nil {
			t.Error(err)
		}
		s.Close()
	}
}

// quiet is a test for which an answer of 500 is none of its errors.
type quiet struct{ *testing.T }

func (quiet) Errorf(string, ...any) {}
