package serve

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client sends requests to a service of a test.
type client struct {
	t     testing.TB
	to    http.Handler
	token string
}

func newClient(t testing.TB, c Config) (*client, *Server) {
	t.Helper()
	s, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	first, _, _ := strings.Cut(c.Token, "\n") // the administrator's
	return &client{t: t, to: s.handler, token: first}, s
}

// do sends a request and reads the answer into out, if that is not nil. It returns the status.
func (c *client) do(method, path string, body, out any) int {
	c.t.Helper()
	var text io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		text = bytes.NewBufferString(b)
	default:
		j, err := json.Marshal(b)
		if err != nil {
			c.t.Fatal(err)
		}
		text = bytes.NewReader(j)
	}
	r := httptest.NewRequest(method, "http://127.0.0.1"+path, text)
	r.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	w := httptest.NewRecorder()
	c.to.ServeHTTP(w, r)
	if w.Code == http.StatusInternalServerError {
		c.t.Errorf("%s %s: %s", method, path, w.Body)
	}
	if w.Code >= 400 && w.Header().Get("Content-Type") != "application/problem+json" {
		c.t.Errorf("%s %s: %d as %s", method, path, w.Code, w.Header().Get("Content-Type"))
	}
	if out != nil {
		if err := json.Unmarshal(w.Body.Bytes(), out); err != nil {
			c.t.Fatalf("%s %s: %d: %v: %s", method, path, w.Code, err, w.Body)
		}
	}
	return w.Code
}

func logTo(w io.Writer) zerolog.Logger { return zerolog.New(w) }
