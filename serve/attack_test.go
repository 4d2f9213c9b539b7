package serve

import (
	"bufio"
	"context"
	"evenkeel/internal/slow"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Whatever a report says that cannot be is answered with a problem or does nothing; the sizes of the job, and of
// any other, stay as they are, and a counter says what came.
func TestAttacks(t *testing.T) {
	c, _ := newClient(t, Config{Ranks: 64})
	other := c.start("other", "another-id", 30, 3).Sizes
	first := c.start("job", "0123456789", 256, 4).Sizes
	s := c.play("job", first, 0, 5, 0.001, 0.0015, 0.002, 0.004)
	sound := func() object { return report(s, 5, 0.001, 0.0015, 0.002, 0.004) }
	rank := func(r object, i int) object { return r["ranks"].([]any)[i].(object) }
	for name, x := range map[string]struct {
		spoil   func(object)
		status  int
		verdict string
		counter string
	}{
		"generation 2":     {func(r object) { r["generation"] = 2 }, 409, "", "unknown generation"},
		"generation 0":     {func(r object) { r["generation"] = 0 }, 422, "", ""},
		"the same round":   {func(r object) { r["round"] = 4 }, 200, "duplicate", "duplicate"},
		"a negative round": {func(r object) { r["round"] = -1 }, 422, "", ""},
		"round 10^12":      {func(r object) { r["round"] = 1e12 }, 422, "", "malformed"},
		"half a round":     {func(r object) { r["round"] = 5.5 }, 422, "", ""},
		"a future plan":    {func(r object) { r["plan"] = s.Plan + 1 }, 409, "", "unknown plan"},
		"plan 0":           {func(r object) { r["plan"] = 0 }, 422, "", ""},
		"negative time":    {func(r object) { rank(r, 1)["seconds"] = -1 }, 422, "", ""},
		"a time of 10^9":   {func(r object) { rank(r, 1)["seconds"] = 1e9 }, 422, "", ""},
		"no time":          {func(r object) { rank(r, 1)["seconds"] = 0 }, 422, "", "malformed"},
		"no wait":          {func(r object) { r["wait_seconds"] = 0 }, 422, "", ""},
		"a wait of 10^9":   {func(r object) { r["wait_seconds"] = 1e9 }, 422, "", ""},
		"samples of another": {func(r object) {
			rank(r, 0)["samples"], rank(r, 3)["samples"] = rank(r, 3)["samples"], rank(r, 0)["samples"]
		}, 422, "", "malformed"},
		"no micro-steps":      {func(r object) { rank(r, 1)["micro_steps"] = 0 }, 422, "", "malformed"},
		"a rank twice":        {func(r object) { r["ranks"] = append(r["ranks"].([]any), rank(r, 0)) }, 422, "", "malformed"},
		"another world size":  {func(r object) { r["ranks"] = r["ranks"].([]any)[:3] }, 422, "", "malformed"},
		"no ranks":            {func(r object) { r["ranks"] = nil }, 422, "", ""},
		"an unknown field":    {func(r object) { r["clock"] = 1 }, 422, "", ""},
		"text for a number":   {func(r object) { r["round"] = "5" }, 422, "", ""},
		"memory beyond sizes": {func(r object) { rank(r, 0)["out_of_memory"] = 1 << 20 }, 422, "", "malformed"},
	} {
		before := c.settle("job", 0)
		r := sound()
		x.spoil(r)
		var a answer
		if got := c.do("POST", "/v1/jobs/job/reports", r, nil); got != x.status {
			t.Errorf("%s: %d, want %d", name, got, x.status)
		}
		if x.status == http.StatusOK {
			if c.do("POST", "/v1/jobs/job/reports", r, &a); a.Verdict != x.verdict {
				t.Errorf("%s: %s, want %s", name, a.Verdict, x.verdict)
			}
		}
		after := c.settle("job", 0)
		if after.Plan != before.Plan || after.Rounds != before.Rounds || !slices.Equal(after.Ranks, before.Ranks) {
			t.Errorf("%s changed the job: %+v, before %+v", name, after, before)
		}
		if x.counter != "" && after.Reports[x.counter] <= before.Reports[x.counter] || x.counter == "" && !maps.Equal(after.Reports, before.Reports) {
			t.Errorf("%s: counted as %v, before %v", name, after.Reports, before.Reports)
		}
	}
	if got := c.do("POST", "/v1/jobs/job/reports", sound(), nil); got != http.StatusOK {
		t.Errorf("a sound report afterwards: %d", got)
	}
	var now answer
	c.do("POST", "/v1/jobs/other/reports", report(other, 0, 1, 1, 1), &now)
	if !slices.Equal(now.Sizes.Nodes, other.Nodes) || now.Sizes.Generation != 1 {
		t.Errorf("another job has sizes %+v, before %+v", now.Sizes, other)
	}
}

// A service that was started anew knows nothing of a job's generation: a conflict, and the registration that
// follows on it is answered as ever.
func TestServiceStartsAnew(t *testing.T) {
	c, s := newClient(t, Config{})
	sizes := c.play("job", c.start("job", "0123456789", 256, 4).Sizes, 0, 5, 0.001, 0.0015, 0.002, 0.004)
	s.Close()
	again, _ := newClient(t, Config{})
	for _, path := range []string{"/v1/jobs/job/reports", "/v1/jobs/job/generations/1/ranks/0/reports"} {
		body := any(report(sizes, 5, 1, 1, 1, 1))
		if strings.Contains(path, "ranks") {
			body = object{"round": 0, "plan": 1, "seconds": 1, "samples": 1, "micro_steps": 1}
		}
		if got := again.do("POST", path, body, nil); got != http.StatusConflict {
			t.Errorf("%s: %d", path, got)
		}
	}
	if fresh := again.start("job", "0123456789", 256, 4); fresh.Generation != 1 || fresh.Sizes.Plan != 1 {
		t.Errorf("%+v", fresh)
	}
}

// Bodies that are no report, however large or deep.
func TestBadBodies(t *testing.T) {
	c, _ := newClient(t, Config{Ranks: 64})
	c.start("job", "0123456789", 256, 4)
	for name, x := range map[string]struct {
		body string
		want []int
	}{
		"10 MB":        {`{"generation":1,"ranks":[` + strings.Repeat("null,", 2<<20) + `null]}`, []int{413}},
		"too many":     {`{"generation":1,"round":0,"plan":1,"wait_seconds":1,"ranks":[` + strings.Repeat("null,", 5_000) + `null]}`, []int{422}},
		"too large":    {`{"generation":1,"round":0,"plan":1,"wait_seconds":1,"ranks":[` + strings.Repeat("null,", 20_000) + `null]}`, []int{413}},
		"nothing":      {``, []int{400}},
		"null":         {`null`, []int{400, 422}},
		"no JSON":      {`{"generation":`, []int{400}},
		"NaN":          {`{"generation":1,"round":0,"plan":1,"wait_seconds":NaN,"ranks":[null]}`, []int{400}},
		"infinite":     {`{"generation":1,"round":0,"plan":1,"wait_seconds":1e999,"ranks":[null]}`, []int{400, 422}},
		"deep":         {strings.Repeat("[", 50_000), []int{400}},
		"a list":       {`[1]`, []int{400, 422}},
		"a huge digit": {`{"generation":` + strings.Repeat("9", 400) + `}`, []int{400, 422}},
	} {
		if got := c.do("POST", "/v1/jobs/job/reports", x.body, nil); !slices.Contains(x.want, got) {
			t.Errorf("%s: %d, want one of %v", name, got, x.want)
		}
	}
	var s JobState
	if c.do("GET", "/v1/jobs/job", nil, &s); s.Rounds != 0 || s.Plan != 1 {
		t.Errorf("%+v", s)
	}
}

// With tokens nothing of a job, nor whether it exists, is told to who has none; a job's token opens that job only.
func TestTokens(t *testing.T) {
	const admin = "a token of the administrator"
	var log strings.Builder
	c, s := newClient(t, Config{Token: admin, Log: logTo(&log)})
	var made created
	if got := c.do("PUT", "/v1/jobs/a", object{}, &made); got != http.StatusCreated || len(made.Token) < 40 {
		t.Fatalf("%d, %+v", got, made)
	}
	var again created
	if got := c.do("PUT", "/v1/jobs/a", object{}, &again); got != http.StatusOK || again.Token != "" {
		t.Errorf("again: %d, token %q", got, again.Token)
	}
	c.do("PUT", "/v1/jobs/b", object{}, nil)
	own, wrong, none := *c, *c, *c
	own.token, wrong.token, none.token = made.Token, "a token of somebody else", ""
	for _, x := range []struct {
		who          *client
		method, path string
		want         int
	}{
		{&own, "GET", "/v1/jobs/a", 200}, {&own, "GET", "/v1/jobs/b", 401}, {&own, "GET", "/v1/jobs/none", 401}, {&own, "GET", "/v1/jobs", 401},
		{&own, "GET", "/metrics", 401}, {&own, "PUT", "/v1/jobs/new", 401}, {&own, "GET", "/livez", 200}, {&none, "GET", "/readyz", 200},
		{&wrong, "GET", "/v1/jobs/a", 401}, {&none, "GET", "/v1/jobs/a", 401}, {&none, "GET", "/v1/jobs/none", 401}, {&none, "DELETE", "/v1/jobs/a", 401},
		{&wrong, "POST", "/v1/jobs/a/reports", 401}, {&none, "POST", "/v1/jobs/none/generations", 401}, {&none, "PATCH", "/v1/jobs/a", 401},
		{&none, "POST", "/v1/jobs/a/generations/1/ranks/0/reports", 401}, {&none, "GET", "/v1/jobs/a/sizes", 401},
		{c, "GET", "/v1/jobs", 200}, {c, "GET", "/v1/jobs/none", 404}, {c, "GET", "/metrics", 200}, {c, "DELETE", "/v1/jobs/b", 204},
	} {
		var body any
		if x.method != "GET" && x.method != "DELETE" {
			body = object{}
		}
		if got := x.who.do(x.method, x.path, body, nil); got != x.want {
			t.Errorf("%s %s: %d, want %d", x.method, x.path, got, x.want)
		}
	}
	own.start("a", "0123456789", 64, 2)
	if s.config.Token != "" || len(s.jobs["a"].tokens.all()) != 1 {
		t.Error("a token is kept as it is, or none is")
	}
	for _, secret := range []string{admin, made.Token} {
		if strings.Contains(log.String(), secret) {
			t.Error("a token is in the log")
		}
	}
}

// A restart gets a generation of its own; the older one's reports, and its registration, are refused.
func TestGenerations(t *testing.T) {
	c, _ := newClient(t, Config{})
	first := c.start("job", "first-id", 256, 4)
	s := c.play("job", first.Sizes, 0, 10, 0.001, 0.0015, 0.002, 0.004)
	if again := c.start("job", "first-id", 256, 4); again.Generation != 1 || again.Sizes.Plan != s.Plan {
		t.Errorf("the same id: %+v", again)
	}
	second := c.start("job", "second-id", 256, 3)
	if second.Generation != 2 || second.Sizes.Plan != 1 || len(second.Sizes.Nodes) != 3 {
		t.Fatalf("%+v", second)
	}
	// What was learnt of the ranks is carried over: the first sizes are near to the best.
	wait := 0.0
	for i, n := range second.Sizes.Nodes {
		wait = max(wait, float64(n.Share)*[]float64{0.001, 0.0015, 0.002}[i])
	}
	if best := 256 / (1000 + 1000/1.5 + 500); wait > 1.05*best {
		t.Errorf("after a restart a round takes %.4f s, at best %.4f: %+v", wait, best, second.Sizes.Nodes)
	}
	if got := c.do("POST", "/v1/jobs/job/reports", report(s, 10, 1, 1, 1, 1), nil); got != http.StatusConflict {
		t.Errorf("a report of the older generation: %d", got)
	}
	if got := c.do("POST", "/v1/jobs/job/generations", object{"id": "first-id", "global_batch": 256, "ranks": []object{{"name": "a"}}}, nil); got != http.StatusConflict {
		t.Errorf("the older registration: %d", got)
	}
}

// Clocks do not matter: a client an hour ahead, or a service whose clock jumps back, changes nothing but times that are shown.
func TestClocks(t *testing.T) {
	now, mu := time.Now(), sync.Mutex{}
	c, _ := newClient(t, Config{Clock: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}})
	s := c.start("job", "0123456789", 256, 4).Sizes
	for k := range 6 {
		mu.Lock()
		now = now.Add(time.Duration(1-2*(k%2)) * time.Hour)
		mu.Unlock()
		s = c.play("job", s, k, 1, 0.001, 0.0015, 0.002, 0.004)
	}
	if s.Nodes[0].Share < 100 {
		t.Errorf("%+v", s.Nodes)
	}
}

// serve runs a service on a port of its own until the test ends.
func serveAt(t *testing.T, c Config) string {
	t.Helper()
	s, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// Connections that dribble their headers do not keep others out, and are closed.
func TestSlowLoris(t *testing.T) {
	slow.Skip(t) // waits for a time-out
	at := serveAt(t, Config{})
	var waiting []net.Conn
	for range 50 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /v1/jobs/job/reports HTTP/1.1\r\nHost: 127.0.0.1\r\n")
		waiting = append(waiting, conn)
	}
	begun := time.Now()
	client := &http.Client{Timeout: 2 * time.Second}
	defer client.CloseIdleConnections()
	answer, err := client.Get("http://" + at + "/livez") //nolint:noctx // it has a time-out
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	for _, conn := range waiting {
		_ = conn.SetReadDeadline(begun.Add(headerTime + 5*time.Second))
		if _, err := io.Copy(io.Discard, bufio.NewReader(conn)); err != nil {
			t.Fatalf("a slow connection is open after %v: %v", time.Since(begun), err)
		}
	}
}

// Requests from many ranks and operators at once, under the race detector, leave a job sound, and no goroutine behind.
func TestConcurrent(t *testing.T) {
	c, s := newClient(t, Config{Each: func(Event) {}})
	var clients sync.WaitGroup
	for k := range 4 {
		clients.Go(func() {
			name := fmt.Sprintf("job%d", k%2)
			for i := range 20 {
				sizes := c.start(name, fmt.Sprintf("id-%d-%d---", k, i), 64, 2).Sizes
				for round := range 10 {
					var a answer
					if c.do("POST", "/v1/jobs/"+name+"/reports", report(sizes, round, 0.01, 0.02), &a) != http.StatusOK {
						break // the other has started anew
					}
					sizes = a.Sizes
				}
			}
		})
		clients.Go(func() {
			for i := range 50 {
				name := fmt.Sprintf("job%d", k%2)
				c.do("GET", "/v1/jobs/"+name, nil, nil)
				c.do("PATCH", "/v1/jobs/"+name, object{"objectives": object{"speed": 1, "waiting": i}, "paused": i%5 == 0}, nil)
				c.do("GET", "/metrics", nil, nil)
				c.do("GET", "/v1/jobs/"+name+"/sizes?format=yaml", nil, nil)
			}
		})
	}
	clients.Wait()
	for _, name := range []string{"job0", "job1"} {
		if state, ok := s.Job(name); !ok || state.Generation == 0 {
			t.Errorf("%s: %+v", name, state)
		}
	}
}
