package serve

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/internal/slow"
)

// listening starts a service that listens, and says where, and how to end it.
func listening(t *testing.T, s *Server) (string, func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	var once sync.Once
	end := func() {
		once.Do(func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(end)
	return "http://" + l.Addr().String(), end
}

// event is one as it came.
type event struct {
	id   int
	at   time.Time
	body struct {
		Epoch    int64
		Complete bool
		Job      JobState
		Names    *struct{ Nodes []string }
		Nodes    struct{ Share []int }
		Rounds   struct{ Number []int }
		Lanes    []struct{ Number int }
		Log      []struct{ Kind, Text string }
	}
}

// stream opens a stream of events. The channel ends with it.
func stream(t *testing.T, at, token string, last int) (<-chan event, func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		t.Fatal(err)
	}
	if last > 0 {
		r.Header.Set("Last-Event-ID", strconv.Itoa(last))
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	own := &http.Transport{}
	a, err := own.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	if a.StatusCode != http.StatusOK || a.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s %s", a.Status, a.Header.Get("Content-Type"))
	}
	events := make(chan event, 64)
	go func() {
		defer own.CloseIdleConnections()
		defer func() { _ = a.Body.Close() }()
		defer close(events)
		var e event
		for b := bufio.NewReader(a.Body); ; {
			line, err := b.ReadString('\n')
			if err != nil {
				return
			}
			if id, ok := strings.CutPrefix(line, "id: "); ok {
				e.id, _ = strconv.Atoi(strings.TrimSpace(id))
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				if err := json.Unmarshal([]byte(data), &e.body); err != nil {
					t.Error(err)
				}
				e.at = time.Now()
				events <- e
				e = event{}
			}
		}
	}()
	return events, stop
}

// However fast rounds are, an event comes once a second, and tells all of them; a stream that was cut off goes on where it was, and ends
// with the service.
func TestWatch(t *testing.T) {
	c, server := newClient(t, Config{})
	url, end := listening(t, server)
	s := c.start("job", "0123456789", 64, 2).Sizes
	path := url + "/v1/jobs/job/events"
	events, stop := stream(t, path, "", 0)
	e := <-events
	if !e.body.Complete || e.body.Names == nil || len(e.body.Names.Nodes) != 2 || e.id < 1 || len(e.body.Log) < 2 || len(e.body.Job.Ranks) != 0 || e.body.Job.RankCount != 2 {
		t.Fatalf("%+v", e)
	}
	var playing sync.WaitGroup
	playing.Go(func() {
		for k := range 50 {
			s = c.play("job", s, 4*k, 4, 0.001, 0.003)
			time.Sleep(50 * time.Millisecond)
		}
	})
	before, seen, rounds := e, 0, 0
	for rounds < 200 {
		e = <-events
		if gap := e.at.Sub(before.at); gap < 900*time.Millisecond {
			t.Errorf("an event %v after the one before", gap)
		}
		if e.id <= before.id || e.body.Complete || e.body.Names != nil {
			t.Errorf("event %d after %d: %+v", e.id, before.id, e.body)
		}
		for _, n := range e.body.Rounds.Number {
			if rounds++; n != rounds {
				t.Fatalf("round %d, not %d", n, rounds)
			}
		}
		if seen++; seen > 20 {
			t.Fatalf("%d rounds in %d events", rounds, seen)
		}
		before = e
	}
	stop()
	for range events { //nolint:revive // until it has ended
	}
	playing.Wait()
	s = c.play("job", s, 200, 3, 0.001, 0.003)
	again, _ := stream(t, path+"?epoch="+strconv.FormatInt(e.body.Epoch, 10), "", before.id)
	if e = <-again; e.body.Complete || len(e.body.Rounds.Number) != 3 || e.body.Rounds.Number[0] != 201 || len(e.body.Lanes) != 3 {
		t.Errorf("not where it was: %+v", e.body)
	}
	other, stopOther := stream(t, path+"?epoch=1", "", before.id) // ids of a service that is gone
	if e = <-other; !e.body.Complete || len(e.body.Rounds.Number) != 203 || e.body.Names == nil {
		t.Errorf("by ids of another epoch: %+v", e.body)
	}
	stopOther()
	begun := time.Now()
	end()
	for range again { //nolint:revive // until it has ended
	}
	if took := time.Since(begun); took > grace {
		t.Errorf("the stream held the service up for %v", took)
	}
}

// A stream outlives the time in which a request must be read and answered, and tells of a quiet job now and then.
func TestLongWatch(t *testing.T) {
	slow.Skip(t) // half a minute
	t.Parallel()
	c, server := newClient(t, Config{})
	url, _ := listening(t, server)
	c.start("job", "0123456789", 64, 2)
	events, stop := stream(t, url+"/v1/jobs/job/events", "", 0)
	defer stop()
	begun, n := time.Now(), 0
	for e := range events {
		if n++; e.at.Sub(begun) > answerTime+2*time.Second {
			break
		}
	}
	if took := time.Since(begun); took < answerTime || n < 3 || n > 5 {
		t.Errorf("%d events in %v", n, took)
	}
}

// Ten thousand streams: those beyond the limit get a problem that says so, nobody's connection is kept, and reports go on.
func TestManyStreams(t *testing.T) {
	slow.Skip(t) // opens a hundred streams
	c, server := newClient(t, Config{Token: "a token that is long enough"})
	url, _ := listening(t, server)
	if status := c.do("PUT", "/v1/jobs/job", object{}, nil); status != http.StatusCreated {
		t.Fatal(status)
	}
	s := c.start("job", "0123456789", 64, 2).Sizes
	path := url + "/v1/jobs/job/events"
	var stops []func()
	for range maxStreams {
		_, stop := stream(t, path, c.token, 0)
		stops = append(stops, stop)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	defer transport.CloseIdleConnections()
	var all sync.WaitGroup
	var mu sync.Mutex
	said := map[string]int{}
	for range 50 {
		all.Go(func() {
			for range 200 {
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
				r.Header.Set("Authorization", "Bearer "+c.token)
				a, err := transport.RoundTrip(r)
				if err != nil {
					t.Error(err)
					return
				}
				text, _ := io.ReadAll(a.Body)
				_ = a.Body.Close()
				mu.Lock()
				said[fmt.Sprintf("%d%s%s%v%v", a.StatusCode, a.Header.Get("Content-Type"), a.Header.Get("Retry-After"), a.Close, bytes.Contains(text, []byte("too many event streams")))]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(said) != 1 || said["503application/problem+json10truetrue"] != 10000 {
		t.Errorf("%v", said)
	}
	c.play("job", s, 0, 20, 0.001, 0.003)
	for _, stop := range stops {
		stop()
	}
	for range 100 { // there is room again, once the service has noticed
		if server.streams.open.Load() == 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	events, stop := stream(t, path, c.token, 0)
	defer stop()
	if e := <-events; e.body.Job.Rounds != 20 {
		t.Errorf("%+v", e.body.Job)
	}
}

// Streams are of jobs that there are, with a token that opens them; a job that is removed ends its own.
func TestWatchRefused(t *testing.T) {
	c, server := newClient(t, Config{Token: "a token that is long enough"})
	at, _ := listening(t, server)
	var made struct{ Token string }
	c.do("PUT", "/v1/jobs/job", object{}, &made)
	c.do("PUT", "/v1/jobs/other", object{}, nil)
	admin := c.token
	for _, x := range []struct {
		path, token string
		want        int
	}{
		{"job/events", "", 401}, {"job/events", "wrong", 401}, {"other/events", made.Token, 401}, {"none/events", admin, 404}, {"job/events?token=" + url.QueryEscape(admin), "", 400},
		{"job/history", "", 401}, {"job/ranks/0", "", 401}, {"job/ranks/0", admin, 404}, {"job/ranks/-1", admin, 422}, {"none/history", admin, 404},
	} {
		c.token = x.token
		var p struct{ Detail string }
		if got := c.do("GET", "/v1/jobs/"+x.path, nil, &p); got != x.want || p.Detail == "" {
			t.Errorf("%+v: %d %s", x, got, p.Detail)
		}
	}
	c.token = admin
	events, _ := stream(t, at+"/v1/jobs/job/events", made.Token, 0)
	<-events
	c.do("DELETE", "/v1/jobs/job", nil, nil)
	for range events { //nolint:revive // until it has ended
	}
}

// A rank's share is explained, by what was measured; a job's life is told.
func TestExplain(t *testing.T) {
	c, _ := newClient(t, Config{})
	s := c.start("job", "0123456789", 64, 2).Sizes
	c.play("job", s, 0, 30, 0.001, 0.003)
	c.settle("job", 31)
	var why rankWhy
	if got := c.do("GET", "/v1/jobs/job/ranks/1", nil, &why); got != http.StatusOK || why.Name != "a/1" || !strings.Contains(why.Why, "samples") || len(why.Details) < 3 || !strings.Contains(why.Details[0], "ms for 1") {
		t.Errorf("%d %+v", got, why)
	}
	var life struct {
		Number  []int
		Goodput []float64
	}
	if got := c.do("GET", "/v1/jobs/job/history", nil, &life); got != http.StatusOK || len(life.Number) != 30 || life.Number[29] != 30 || life.Goodput[29] < 1 {
		t.Errorf("%d %+v", got, life)
	}
	var list jobList
	if c.do("GET", "/v1/jobs?ranks=false", nil, &list); len(list.Jobs) != 1 || len(list.Jobs[0].Ranks) != 0 || list.Jobs[0].RankCount != 2 || list.Jobs[0].LastReport.IsZero() {
		t.Errorf("%+v", list)
	}
}

// What reports say that cannot be is counted, and told of.
func TestAbsurd(t *testing.T) {
	c, _ := newClient(t, Config{})
	s := c.start("job", "0123456789", 64, 2).Sizes
	for k := range 30 { // the second rank's clock stands still
		body := report(s, k, 0.001, 0.003)
		body["ranks"].([]any)[1].(object)["seconds"] = 0.02
		var a answer
		if got := c.do("POST", "/v1/jobs/job/reports", body, &a); got != http.StatusOK {
			t.Fatal(got)
		}
		c.settle("job", s.Plan+1)
		c.do("GET", "/v1/jobs/job/sizes", nil, &s)
	}
	state := c.settle("job", 0)
	if state.Absurd == 0 || state.RankCount != 2 {
		t.Errorf("%+v", state)
	}
}

// What changes a job is written to the log with the kind of token, and without the token.
func TestAudit(t *testing.T) {
	var log safe
	c, _ := newClient(t, Config{Token: "a token that is long enough", Log: logTo(&log)})
	var made struct{ Token string }
	c.do("PUT", "/v1/jobs/job", object{}, &made)
	admin := c.token
	c.token = made.Token
	c.do("PATCH", "/v1/jobs/job", object{"objectives": object{"speed": 1, "waiting": 0.5}}, nil)
	c.do("PATCH", "/v1/jobs/job", object{"paused": true}, nil)
	c.do("PATCH", "/v1/jobs/job", object{"limits": object{"nobody": 1}}, nil) // refused: no change
	c.do("GET", "/v1/jobs/job", nil, nil)
	c.token = admin
	c.do("PUT", "/v1/jobs/job", object{"deadline": "auto"}, nil)
	c.do("DELETE", "/v1/jobs/job", nil, nil)
	var got []string
	for line := range strings.Lines(log.String()) {
		var e struct {
			Audit                        bool
			Token, Job, Address, Message string
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Audit {
			got = append(got, strings.Join(strings.Fields(e.Token)[:2], " ")+" "+e.Job+": "+e.Message)
			if e.Address == "" {
				t.Error("from nowhere")
			}
		}
	}
	want := []string{
		"service admin job: job created", "job admin job: weights: speed 1, waiting 0.5, freshness 0, energy 0", "job admin job: paused",
		"service admin job: settings changed", "service admin job: job deleted",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	if text := log.String(); strings.Contains(text, admin) || strings.Contains(text, made.Token) {
		t.Error("a token in the log")
	}
}

// safe is a log that several write to.
type safe struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safe) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safe) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
