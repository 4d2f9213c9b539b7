package serve

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"evenkeel/internal/broker"
)

const adminToken = "the-administrators-own-token"

// newToken asks for a token of a job.
func (c *client) newToken(job string, body object) TokenState {
	c.t.Helper()
	var out TokenState
	if got := c.do("POST", "/v1/jobs/"+job+"/tokens", body, &out); got != http.StatusCreated || len(out.Token) != 43 {
		c.t.Fatalf("%d %+v", got, out)
	}
	return out
}

// Each scope may what is written here, and a job's tokens nothing of another job or of the service.
func TestScopes(t *testing.T) {
	c, _ := newClient(t, Config{Token: adminToken + "\nread one-who-only-looks-at-it\n# old\n\nreport one-who-reports-for-all"})
	c.do("PUT", "/v1/jobs/a", object{}, nil)
	c.do("PUT", "/v1/jobs/b", object{}, nil)
	who := map[string]string{"reader": "one-who-only-looks-at-it", "reporter": "one-who-reports-for-all", "admin": adminToken, "nobody": "", "stranger": "one-who-was-never-told-any"}
	for _, scope := range scopes {
		who["a's "+scope] = c.newToken("a", object{"scope": scope}).Token
		who["b's "+scope] = c.newToken("b", object{"scope": scope}).Token
	}
	level := map[string]int{"nobody": 0, "stranger": 0, "reader": 1, "a's read": 1, "reporter": 2, "a's report": 2, "a's admin": 3, "admin": 3}
	for name, secret := range who {
		for _, x := range []struct {
			method, path string
			needs        int
			service      bool // of the service, not of a job
		}{
			{"GET", "/v1/jobs/a", 1, false}, {"GET", "/v1/jobs/a/sizes", 1, false}, {"GET", "/v1/jobs", 1, true}, {"GET", "/metrics", 1, true},
			{"POST", "/v1/jobs/a/generations", 2, false}, {"POST", "/v1/jobs/a/reports", 2, false}, {"POST", "/v1/jobs/a/generations/1/ranks/0/reports", 2, false},
			{"PATCH", "/v1/jobs/a", 3, false}, {"PUT", "/v1/jobs/a", 3, false}, {"GET", "/v1/jobs/a/tokens", 3, false}, {"POST", "/v1/jobs/a/tokens", 3, false},
			{"DELETE", "/v1/jobs/a/tokens/00000000", 3, false},
		} {
			own := *c
			own.token = secret
			var body any
			if x.method != "GET" && x.method != "DELETE" {
				body = "[]" // no request has a list for a body
			}
			got := own.do(x.method, x.path, body, nil)
			ofJob := strings.HasPrefix(name, "a's") && !x.service
			ofService := level[name] > 0 && !strings.HasPrefix(name, "a's")
			switch {
			case !ofJob && !ofService:
				if got != http.StatusUnauthorized {
					t.Errorf("%s, %s %s: %d", name, x.method, x.path, got)
				}
			case level[name] < x.needs:
				if got != http.StatusForbidden {
					t.Errorf("%s, %s %s: %d", name, x.method, x.path, got)
				}
			case got == http.StatusUnauthorized || got == http.StatusForbidden || got == http.StatusTooManyRequests:
				t.Errorf("%s, %s %s: %d", name, x.method, x.path, got)
			}
		}
	}
}

// A token takes another's place while both are good for a while; it ends, is revoked, and is the same after the service has begun anew.
func TestRotation(t *testing.T) {
	now := clock{time.Unix(1_800_000_000, 0)}
	dir := t.TempDir()
	j := openJournal(t, dir)
	config := Config{Token: adminToken, Clock: now.read, Journal: j}
	c, s := newClient(t, config)
	c.do("PUT", "/v1/jobs/a", object{}, nil)
	works := func(x TokenState, want bool) {
		t.Helper()
		own := *c
		own.token = x.Token
		if got := own.do("GET", "/v1/jobs/a", nil, nil); (got == http.StatusOK) != want || got != http.StatusOK && got != http.StatusUnauthorized {
			t.Errorf("%s at %v: %d", x.ID, now.now, got)
		}
	}
	first := c.newToken("a", object{"scope": "report"})
	other := c.newToken("a", object{"scope": "read"})
	short := c.newToken("a", object{"scope": "report", "expires_in_seconds": 10})
	now.now = now.now.Add(5 * time.Second)
	second := c.newToken("a", object{"scope": "report", "retire_in_seconds": 60})
	for _, x := range []TokenState{first, short, second, other} {
		works(x, true)
	}
	now.now = now.now.Add(4999 * time.Millisecond)
	works(short, true)
	now.now = now.now.Add(time.Millisecond) // it does not live longer because another retires it
	works(short, false)
	s.Close()
	j.Close()
	config.Journal = openJournal(t, dir)
	c, _ = newClient(t, config)
	works(short, false)
	now.now = now.now.Add(54999 * time.Millisecond)
	works(first, true)
	now.now = now.now.Add(time.Millisecond)
	works(first, false)
	works(second, true)
	works(other, true)
	var list tokenList
	if c.do("GET", "/v1/jobs/a/tokens", nil, &list); len(list.Tokens) != 3 { // the creation's, other, second
		t.Errorf("%+v", list)
	}
	for _, x := range list.Tokens {
		if x.Token != "" || x.ID == first.ID || x.ID == short.ID {
			t.Errorf("%+v", x)
		}
	}
	for want, id := range map[int]string{204: second.ID, 404: first.ID, 422: "x"} {
		if got := c.do("DELETE", "/v1/jobs/a/tokens/"+id, nil, nil); got != want {
			t.Errorf("%s: %d, want %d", id, got, want)
		}
	}
	works(second, false)
	for k := range maxTokens - 2 {
		c.newToken("a", object{"scope": scopes[k%3]})
	}
	if got := c.do("POST", "/v1/jobs/a/tokens", object{"scope": "read"}, nil); got != http.StatusConflict {
		t.Errorf("one more: %d", got)
	}
	open, _ := newClient(t, Config{})
	open.do("PUT", "/v1/jobs/a", object{}, nil)
	if got := open.do("POST", "/v1/jobs/a/tokens", object{"scope": "read"}, nil); got != http.StatusConflict {
		t.Errorf("without tokens: %d", got)
	}
}

// What another service of the same journal does to tokens holds here within a second, and at once if it adds one.
func TestTokensOfOtherServices(t *testing.T) {
	now := clock{time.Unix(1_800_000_000, 0)}
	n, url := natsAt(t, t.TempDir(), server.RANDOM_PORT)
	t.Cleanup(func() { broker.Stop(n) })
	var both [2]*client
	for i := range both {
		both[i], _ = newClient(t, Config{Token: adminToken, Clock: now.read, Journal: openURL(t, url)})
	}
	both[0].do("PUT", "/v1/jobs/a", object{}, nil)
	x := both[0].newToken("a", object{"scope": "read"})
	own := *both[1]
	own.token = x.Token
	if got := own.do("GET", "/v1/jobs/a", nil, nil); got != http.StatusOK {
		t.Errorf("a new one elsewhere: %d", got)
	}
	y := both[0].newToken("a", object{"scope": "read"})
	own.token = y.Token
	if got := own.do("GET", "/v1/jobs/a", nil, nil); got != http.StatusOK {
		t.Errorf("a second one elsewhere: %d", got)
	}
	both[0].do("DELETE", "/v1/jobs/a/tokens/"+y.ID, nil, nil)
	now.now = now.now.Add(again)
	if got := own.do("POST", "/v1/jobs/a/reports", "[]", nil); got != http.StatusUnauthorized {
		t.Errorf("revoked elsewhere a second ago: %d", got)
	}
}

// The tokens of the service are replaced while it runs; what is wrong with them names the line, and changes nothing.
func TestSetTokens(t *testing.T) {
	c, s := newClient(t, Config{Token: adminToken})
	works := func(secret string, want int) {
		t.Helper()
		own := *c
		own.token = secret
		if got := own.do("GET", "/v1/jobs", nil, nil); got != want {
			t.Errorf("%s: %d, want %d", secret, got, want)
		}
	}
	next := "the-administrators-next-token"
	if err := s.SetTokens(adminToken + "\n" + next); err != nil {
		t.Fatal(err)
	}
	works(adminToken, 200)
	works(next, 200)
	if err := s.SetTokens(next + "\r\n"); err != nil {
		t.Fatal(err)
	}
	works(adminToken, 401)
	works(next, 200)
	for text, want := range map[string]string{
		"": "at least one", "# none\n": "at least one", next + "\nfifteen--bytes-": "line 2: the token has 15 bytes", next + "\nread " + next: "line 2: the token is given twice",
	} {
		if err := s.SetTokens(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), next) || strings.Contains(err.Error(), "fifteen") {
			t.Errorf("%q: %v", text, err)
		}
	}
	works(next, 200)
	open, s := newClient(t, Config{})
	if err := s.SetTokens(next); err == nil {
		t.Error("a service that began without tokens has some")
	}
	if got := open.do("GET", "/v1/jobs", nil, nil); got != 200 {
		t.Error(got)
	}
}

// A token in an address is refused, whoever sends it, and no token is in the log or in an answer but the one that hands it out.
func TestNoTokenIsTold(t *testing.T) {
	var log bytes.Buffer
	now := clock{time.Unix(1_800_000_000, 0)}
	j := openJournal(t, t.TempDir())
	c, s := newClient(t, Config{Token: adminToken, Log: logTo(&log), Clock: func() time.Time { now.now = now.now.Add(2 * time.Second); return now.now }, Journal: j}) // each request is slow
	var made created
	c.do("PUT", "/v1/jobs/a", object{}, &made)
	more := c.newToken("a", object{"scope": "admin"})
	secrets := []string{adminToken, made.Token, more.Token}
	var answers bytes.Buffer
	send := func(method, path, header, body string) int {
		r := httptest.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", header)
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		fmt.Fprintln(&answers, w.Header(), w.Body)
		return w.Code
	}
	round := func() {
		for _, secret := range secrets {
			for _, query := range []string{"token=", "access_token=", "x=1&Token=", "%74oken=", "authorization=", "evenkeel_token="} {
				if got := send("GET", "/v1/jobs/a?"+query+secret, "Bearer "+secret, ""); got != http.StatusBadRequest {
					t.Errorf("%s: %d", query, got)
				}
			}
			for _, header := range []string{"Bearer " + secret, secret, "Basic " + secret, "Bearer " + secret + "x", "Bearer x" + secret} {
				for _, x := range [][3]string{
					{"GET", "/v1/jobs", ""}, {"GET", "/v1/jobs/a", ""}, {"GET", "/v1/jobs/a/tokens", ""}, {"GET", "/metrics", ""}, {"GET", "/nowhere", ""}, {"GET", "/openapi.json", ""},
					{"POST", "/v1/jobs/a/reports", "{"}, {"PATCH", "/v1/jobs/a", "{}"}, {"PUT", "/v1/jobs/b", `{"deadline":"soon"}`}, {"DELETE", "/v1/jobs/none", ""}, {"POST", "/v1/jobs/a/generations", "[]"},
				} {
					send(x[0], x[1], header, x[2])
				}
			}
		}
	}
	round()
	j.Close() // and the same again with a journal that fails
	round()
	if !strings.Contains(log.String(), "a slow request") || !strings.Contains(log.String(), `"operation":"get-job"`) || !strings.Contains(log.String(), "token made") {
		t.Errorf("the log does not say what it should: %s", log.String()[:2000])
	}
	for _, secret := range secrets {
		for where, text := range map[string]string{"log": log.String(), "answers": answers.String()} {
			if at := strings.Index(text, secret[:20]); at >= 0 {
				t.Errorf("a token is in the %s: %s", where, text[max(0, at-100):at])
			}
		}
	}
}
