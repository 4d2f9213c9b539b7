package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"evenkeel/internal/broker"
	"evenkeel/internal/slow"
	"evenkeel/serve/journal"
)

// A job is read once, however many ask for it; others do not wait for it; and who asks for one that takes long is told so, with a token, too.
func TestLoads(t *testing.T) {
	slow.Skip(t) // waits for time limits
	log := &safe{}
	config := Config{Journal: openJournal(t, t.TempDir()), Token: strings.Repeat("x", 32)}
	_, s := newClient(t, config)
	tokens := map[string]string{}
	for _, name := range []string{"slow", "quick"} {
		var err error
		if tokens[name], err = s.CreateJob(name, Settings{GlobalBatch: 8}); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	config.Log = logTo(log)
	c, s := newClient(t, config)
	held := &load{done: make(chan struct{})}
	s.loads.open["slow"] = held
	var all sync.WaitGroup
	begun := time.Now()
	for range 20 {
		all.Go(func() {
			if j, err := s.find("quick"); err != nil || j != s.known("quick") {
				t.Error(err)
			}
		})
	}
	if all.Wait(); time.Since(begun) > loadWait/2 || strings.Count(log.String(), "job read") != 1 {
		t.Errorf("%v, read %d times", time.Since(begun), strings.Count(log.String(), "job read"))
	}
	for token, want := range map[string]int{tokens["slow"]: 503, "another": 503, c.token: 503} {
		own := *c
		own.token = token
		begun := time.Now()
		if status := own.do("GET", "/v1/jobs/slow", nil, nil); status != want || time.Since(begun) > 5*loadWait {
			t.Errorf("%d after %v", status, time.Since(begun))
		}
	}
	if _, err := s.find("slow"); !errors.Is(err, errReading) {
		t.Error(err)
	}
	delete(s.loads.open, "slow")
	c.token = tokens["slow"]
	if status := c.do("GET", "/v1/jobs/slow", nil, nil); status != http.StatusOK {
		t.Error(status)
	}
}

// A job that cannot be read is read once for each state of its journal, and those beside it are well.
func TestUnreadable(t *testing.T) {
	log := &safe{}
	j := openJournal(t, t.TempDir())
	first, err := j.Append(t.Context(), "job", 0, []byte("{"))
	if err != nil {
		t.Fatal(err)
	}
	c, s := newClient(t, Config{Journal: j, Log: logTo(log)})
	c.t = quiet{t}
	for range 5 {
		if status := c.do("GET", "/v1/jobs/job", nil, nil); status != http.StatusInternalServerError {
			t.Error(status)
		}
	}
	if n := strings.Count(log.String(), "cannot be read"); n != 1 {
		t.Errorf("read %d times", n)
	}
	if _, err := j.Append(t.Context(), "job", first, []byte("{")); err != nil {
		t.Fatal(err)
	}
	c.do("GET", "/v1/jobs/job", nil, nil)
	if n := strings.Count(log.String(), "cannot be read"); n != 2 {
		t.Errorf("with another message: read %d times", n)
	}
	if status := c.do("PUT", "/v1/jobs/other", object{}, nil); status != http.StatusCreated {
		t.Error(status)
	}
	if jobs := s.list(true); len(jobs) != 1 || jobs[0].Name != "other" {
		t.Errorf("%d jobs", len(jobs))
	}
	if status := c.do("DELETE", "/v1/jobs/job", nil, nil); status != http.StatusNoContent {
		t.Error(status)
	}
	if status := c.do("PUT", "/v1/jobs/job", object{}, nil); status != http.StatusCreated || len(s.loads.unread) != 0 {
		t.Errorf("made anew: %d, %d", status, len(s.loads.unread))
	}
}

// A job that another service deleted and made anew is the new one, and creations at once make one.
func TestMadeAnew(t *testing.T) {
	n, url := natsAt(t, t.TempDir(), server.RANDOM_PORT)
	t.Cleanup(func() { broker.Stop(n) })
	a, _ := newClient(t, Config{Journal: openURL(t, url)})
	b, _ := newClient(t, Config{Journal: openURL(t, url)})
	sizes := a.start("job", "0123456789", 64, 2).Sizes
	sizes = a.play("job", sizes, 0, 3, 0.001, 0.002)
	b.settle("job", 4)
	a.do("DELETE", "/v1/jobs/job", nil, nil)
	if status := b.do("GET", "/v1/jobs/job", nil, nil); status != http.StatusNotFound {
		t.Errorf("a job that another service removed: %d", status)
	}
	a.do("PUT", "/v1/jobs/job", object{"global_batch": 6}, nil)
	b.settle("job", 0)
	a.do("DELETE", "/v1/jobs/job", nil, nil)
	a.do("PUT", "/v1/jobs/job", object{"global_batch": 7}, nil)
	var state JobState
	if status := b.do("GET", "/v1/jobs/job", nil, &state); status != http.StatusOK || state.GlobalBatch != 7 || state.Rounds != 0 {
		t.Errorf("%d %+v", status, state)
	}
	b.do("DELETE", "/v1/jobs/job", nil, nil)
	b.do("PUT", "/v1/jobs/job", object{"global_batch": 9}, nil)
	if status := a.do("POST", "/v1/jobs/job/reports", report(sizes, 3, 0.001, 0.002), nil); status != http.StatusConflict {
		t.Errorf("a report of the job before: %d", status)
	}
	var all sync.WaitGroup
	made := make([]int, 12)
	for k := range made {
		all.Go(func() { made[k] = []*client{a, b}[k%2].do("PUT", "/v1/jobs/new", object{"global_batch": 3}, nil) })
	}
	all.Wait()
	created := 0
	for _, status := range made {
		if status == http.StatusCreated {
			created++
		} else if status != http.StatusOK {
			t.Error(status)
		}
	}
	if created != 1 {
		t.Errorf("made %d times: %v", created, made)
	}
}

// Of a job that two requests have made, or read, one is used.
func TestOneOfTwo(t *testing.T) {
	_, s := newClient(t, Config{})
	first := newJob("job", &s.config, nil)
	for _, j := range []*job{first, newJob("job", &s.config, nil)} {
		if got, err := s.put(j); got != first || err != nil {
			t.Error(err)
		}
	}
}

// Where nothing is kept, creations at once make one job, and no more than there is room for.
func TestCreatedAtOnce(t *testing.T) {
	c, s := newClient(t, Config{Jobs: 3})
	var all sync.WaitGroup
	made := make([]int, 20)
	for k := range made {
		all.Go(func() { made[k] = c.do("PUT", "/v1/jobs/"+string(rune('a'+k%5)), object{}, nil) })
	}
	all.Wait()
	created := 0
	for _, status := range made {
		if status == http.StatusCreated {
			created++
		}
	}
	if created > 3 || created == 0 || len(s.jobs) != created || s.making != 0 {
		t.Errorf("%d created, %d there, %d being made: %v", created, len(s.jobs), s.making, made)
	}
}

// A job without a report for a day leaves memory, is still listed, and is where it was with the next request. One that reports stays, and so does all without a journal.
func TestPutAside(t *testing.T) {
	at := clock{time.Unix(1_800_000_000, 0)}
	config := Config{Journal: openJournal(t, t.TempDir()), Clock: at.read}
	c, s := newClient(t, config)
	sizes := c.start("job", "0123456789", 64, 2).Sizes
	sizes = c.play("job", sizes, 0, 5, 0.001, 0.002)
	other := c.start("other", "0123456789", 64, 2).Sizes
	at.now = at.now.Add(restAfter - time.Minute)
	if s.sweep(); s.known("job") == nil {
		t.Error("put aside too early")
	}
	c.play("other", other, 0, 1, 0.001, 0.002)
	old := s.known("job")
	before := old.memory()
	at.now = at.now.Add(time.Minute)
	s.sweep()
	if s.known("job") != nil || s.known("other") == nil || len(s.aside) != 1 {
		t.Fatalf("%d jobs, %d put aside", len(s.jobs), len(s.aside))
	}
	if err := old.submit(entry{Change: &change{}}).err; !errors.Is(err, errResting) {
		t.Errorf("who still has it may write: %v", err)
	}
	var list jobList
	c.do("GET", "/v1/jobs", nil, &list)
	if len(list.Jobs) != 2 || !list.Jobs[0].Aside || list.Jobs[0].Rounds != 5 || list.Jobs[1].Aside || s.known("job") != nil {
		t.Errorf("%+v", list.Jobs)
	}
	if _, err := s.find("job"); err != nil || s.known("job").memory() != before || len(s.aside) != 0 {
		t.Errorf("%v, %d put aside\n%s\n%s", err, len(s.aside), before, s.known("job").memory())
	}
	s.sweep() // it was looked at, no more
	c.play("job", sizes, 5, 1, 0.001, 0.002)
	if state := c.settle("job", 7); state.Rounds != 6 || state.Aside || len(s.aside) != 0 {
		t.Errorf("%+v", state)
	}
	at.now = at.now.Add(2 * restAfter)
	s.sweep()
	if status := c.do("DELETE", "/v1/jobs/job", nil, nil); status != http.StatusNoContent || len(s.aside) != 1 {
		t.Errorf("%d, %d put aside", status, len(s.aside))
	}
}

// BenchmarkTurns is a report of 16 ranks to one service of a NATS server, and to two that take turns.
func BenchmarkTurns(b *testing.B) {
	for _, services := range []int{1, 2} {
		b.Run(strconv.Itoa(services), func(b *testing.B) {
			n, err := broker.Start(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: b.TempDir(), SyncAlways: true}, 10*time.Second)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { broker.Stop(n) })
			var clients []*client
			for range services {
				j, err := journal.Open(b.Context(), journal.Options{URL: n.ClientURL()})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(j.Close)
				c, _ := newClient(b, Config{Journal: j})
				clients = append(clients, c)
			}
			sizes, perSample := clients[0].start("job", "0123456789", 1600, 16).Sizes, make([]float64, 16)
			for i := range perSample {
				perSample[i] = 0.001 * float64(1+i%4)
			}
			var before, after syscall.Rusage
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
			for k := 0; b.Loop(); k++ {
				var a answer
				if status := clients[k%services].do("POST", "/v1/jobs/job/reports", report(sizes, k, perSample...), &a); status != http.StatusOK || a.Verdict != "accepted" {
					b.Fatalf("round %d: %d %+v", k, status, a)
				}
				sizes = a.Sizes
			}
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
			cpu := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
			b.ReportMetric(float64(cpu.Microseconds())/float64(b.N), "cpu-us/op")
		})
	}
}

// BenchmarkSingle is a call of a single rank over HTTP, of 64 that report one by one, with a journal: client, service and journal together.
func BenchmarkSingle(b *testing.B) {
	const n = 64
	c, s := newClient(b, Config{Journal: openJournal(b, b.TempDir())})
	sizes := c.start("job", "0123456789", 100*n, n).Sizes
	l := httptest.NewServer(s.handler)
	defer l.Close()
	to := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n}}
	defer to.CloseIdleConnections()
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	var calls atomic.Int64
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			own := sizes
			for round := 0; calls.Add(1) <= int64(b.N); {
				body, err := json.Marshal(object{"round": round, "plan": own.Plan, "seconds": 0.1 * float64(1+i%3), "samples": own.Nodes[i].Share, "micro_steps": own.Nodes[i].MicroSteps})
				if err != nil {
					b.Error(err)
				}
				r, err := to.Post(fmt.Sprintf("%s/v1/jobs/job/generations/1/ranks/%d/reports", l.URL, i), "application/json", bytes.NewReader(body)) //nolint:noctx // of a test
				if err != nil {
					b.Error(err)
					return
				}
				var a answer
				err = json.NewDecoder(r.Body).Decode(&a)
				if _ = r.Body.Close(); err != nil || r.StatusCode != http.StatusOK {
					b.Errorf("%d, %v", r.StatusCode, err)
					return
				}
				if own = a.Sizes; a.Verdict == "accepted" {
					round++
				}
			}
		})
	}
	all.Wait()
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	cpu := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	b.ReportMetric(float64(cpu.Microseconds())/float64(b.N), "cpu-us/op")
	last, err := s.config.Journal.Last(b.Context(), "job")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(last)/float64(b.N), "messages/op")
}
