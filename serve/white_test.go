package serve

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"evenkeel/cluster/live"
)

// Every byte of a token's hash counts.
func TestSame(t *testing.T) {
	a := bearer("Bearer secret")
	same := func(a, b []byte) bool { return match([]token{{Hash: a}}, b, time.Now()) != nil }
	for i := range a {
		b := slices.Clone(a)
		if b[i] ^= 1; same(a, b) {
			t.Errorf("byte %d does not count", i)
		}
	}
	for header, want := range map[string]bool{
		"Bearer secret": true, "bearer secret": true, "Bearer  secret ": true, "Bearer Secret": false, "Basic secret": false, "secret": false, "Bearer": false, "": false,
	} {
		if got := same(bearer(header), a); got != want {
			t.Errorf("%q: %v", header, got)
		}
	}
}

// Reports that come before the job's goroutine has decided find their decisions made: each is judged by the plan before it.
func TestDecisionsInOrder(t *testing.T) {
	config := Config{}
	if err := config.complete(); err != nil {
		t.Fatal(err)
	}
	config.Log = zerolog.Nop()
	j := newJob("job", &config, newMetrics("").of("job"))
	j.begin(&creation{Created: config.Clock()})
	j.close() // nobody decides beside
	r := j.submit(entry{Start: &registration{ID: "0123456789", GlobalBatch: 64, Ranks: []live.Rank{{Name: "a"}, {Name: "b"}}}})
	if r.err != nil || r.sizes.Plan != 1 {
		t.Fatal(r, r.err)
	}
	for k := range 20 {
		body := &reportBody{Generation: 1, Round: k, Plan: r.sizes.Plan, WaitSeconds: 1, Ranks: ranks{{Seconds: float64(k + 1), Samples: 1, MicroSteps: 1}, nil}}
		if r = j.submit(entry{Round: body}); r.err != nil || r.verdict != live.Accepted || r.sizes.Plan != k+1 {
			t.Fatalf("round %d: %+v, %v", k, r, r.err)
		}
	}
	if j.decideAll(); j.gen.plan.Number != 21 {
		t.Errorf("plan %d", j.gen.plan.Number)
	}
}

// Limits on jobs and ranks, and a deadline that waits for paces.
func TestLimits(t *testing.T) {
	c, _ := newClient(t, Config{Jobs: 2, Ranks: 2})
	for name, want := range map[string]int{"a": 201, "b": 201} {
		if got := c.do("PUT", "/v1/jobs/"+name, object{"deadline": "auto"}, nil); got != want {
			t.Errorf("%s: %d", name, got)
		}
	}
	body := object{"id": "0123456789", "global_batch": 8, "ranks": []object{{"name": "x"}, {"name": "y"}, {"name": "z"}}}
	for path, want := range map[string]int{"/v1/jobs/c/generations": http.StatusInsufficientStorage, "/v1/jobs/a/generations": 422} {
		if got := c.do("POST", path, body, nil); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	s := c.start("a", "0123456789", 64, 2).Sizes
	if s.Deadline != nil {
		t.Errorf("a deadline at once: %+v", s.Deadline)
	}
	if s = c.play("a", s, 0, 1, 0.001, 0.002); s.Deadline == nil || s.Deadline.Auto || s.Deadline.Seconds < 0.03 || s.Deadline.Seconds > 0.08 || s.Nodes[0].Deadline == nil {
		t.Errorf("%+v", s.Deadline)
	}
}

// Names that may have been pointed at loopback, and pages of other origins, are kept out.
func TestBrowsers(t *testing.T) {
	c, _ := newClient(t, Config{})
	for _, x := range []struct {
		host, origin string
		want         int
	}{
		{"127.0.0.1:7070", "", 200}, {"localhost:7070", "", 200}, {"[::1]:7070", "", 200}, {"[::1]", "", 200}, {"evil.example", "", 403}, {"evil.example:7070", "", 403},
		{"localhost:7070", "http://localhost:7070", 200}, {"localhost:7070", "https://evil.example", 403},
	} {
		r := httptest.NewRequest(http.MethodPut, "http://"+x.host+"/v1/jobs/job", nil)
		if x.want == 200 {
			r = httptest.NewRequest(http.MethodPut, "http://"+x.host+"/v1/jobs/job", http.NoBody)
		}
		r.Header.Set("Content-Type", "application/json")
		if x.origin != "" {
			r.Header.Set("Origin", x.origin)
		}
		w := httptest.NewRecorder()
		c.to.ServeHTTP(w, r)
		if refused := w.Code == http.StatusForbidden; refused != (x.want == 403) {
			t.Errorf("%+v: %d %s", x, w.Code, w.Body)
		}
	}
}
