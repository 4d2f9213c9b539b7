package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/rs/zerolog"
)

// health is the answer of /livez and /readyz.
type health struct {
	Status string `json:"status" example:"ok"`
	Jobs   int    `json:"jobs"`
}

func (s *Server) healthRoutes(api huma.API) {
	for _, x := range []struct {
		id, path, summary string
	}{
		{"live", "/livez", "Whether the process works"},
		{"ready", "/readyz", "Whether the service can keep what jobs report"},
	} {
		huma.Register(api, huma.Operation{OperationID: x.id, Method: http.MethodGet, Path: x.path, Summary: x.summary, Errors: []int{503}},
			func(ctx context.Context, _ *struct{}) (*struct{ Body health }, error) {
				if x.id == "ready" {
					if err := problem(s.ready.check(ctx, &s.config)); err != nil {
						return nil, huma.Error503ServiceUnavailable(err.Error())
					}
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.closed {
					return nil, problem(errClosed)
				}
				return &struct{ Body health }{health{"ok", len(s.jobs)}}, nil
			})
	}
	metrics := s.operation("metrics", http.MethodGet, "/metrics", "Metrics for Prometheus")
	metrics.Responses = map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{"text/plain": {}}}}
	huma.Register(api, metrics, func(context.Context, *struct{}) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(ctx huma.Context) {
			r, w := humago.Unwrap(ctx)
			s.metrics.handler().ServeHTTP(w, r)
		}}, nil
	})
}

// readiness is whether the journal can be written, looked at once a second at most however many ask.
type readiness struct {
	mu  sync.Mutex
	at  time.Time
	err error
}

func (r *readiness) check(ctx context.Context, c *Config) error {
	if c.Journal == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := c.Clock(); r.at.IsZero() || now.Sub(r.at).Abs() >= time.Second {
		before := r.err
		r.at, r.err = now, c.Journal.Check(context.WithoutCancel(ctx)) // who goes away does not decide for the others
		if r.err != nil {
			r.err = fmt.Errorf("%w: %w", errJournal, r.err)
		}
		switch {
		case before == nil && r.err != nil:
			c.Log.Warn().Err(r.err).Msg("the journal cannot be written: the service is not ready")
		case before != nil && r.err == nil:
			c.Log.Info().Msg("the journal can be written again: the service is ready")
		}
	}
	return r.err
}

// guard keeps pages of other origins out, which a browser on the same machine would let through to
// loopback, and counts problems.
func (s *Server) guard(next http.Handler) http.Handler {
	origins := http.NewCrossOriginProtection()
	origins.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, http.StatusForbidden, "requests from web pages of another origin are refused")
	}))
	inside := origins.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		w = &counted{w, s.metrics}
		if s.open() && !local(r.Host) {
			writeProblem(w, http.StatusForbidden, "a service without tokens answers to localhost and addresses only, not to names")
			return
		}
		if secretive(r.URL) {
			writeProblem(w, http.StatusBadRequest, "a token in an address ends up in logs: revoke it, and send the next as Authorization: Bearer TOKEN")
			return
		}
		if path.Clean(r.URL.Path) != r.URL.Path { // it would be sent on
			noRoute(w, r)
			return
		}
		if r.URL.Path != "/livez" && r.URL.Path != "/readyz" { // of those who watch over the service
			if wait := s.limits.addresses.wait(host(r.RemoteAddr), s.config.Clock()); wait > 0 {
				h.Set("Retry-After", seconds(wait))
				writeProblem(w, http.StatusTooManyRequests, "more requests from this address than the service takes (--address-rate); try again later")
				return
			}
		}
		inside.ServeHTTP(w, r)
	})
}

// secretive says whether an address seems to hold a token.
func secretive(u *url.URL) bool {
	for key := range u.Query() {
		if key = strings.ToLower(key); strings.Contains(key, "token") || key == "authorization" || key == "bearer" {
			return true
		}
	}
	return false
}

// failures writes what net/http says of connections (handshakes that fail, above all) to the log.
type failures struct{ log zerolog.Logger }

// Write is io.Writer's.
func (q failures) Write(text []byte) (int, error) {
	q.log.Debug().Str("said", strings.TrimSpace(string(text))).Msg("a connection failed")
	return len(text), nil
}

// local says whether a request's host is an address or localhost: a name may have been pointed at loopback
// by whoever owns it (DNS rebinding).
func local(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	return name == "localhost" || net.ParseIP(name) != nil
}

// counted counts answers that are problems.
type counted struct {
	http.ResponseWriter
	metrics *metrics
}

// WriteHeader is http.ResponseWriter's.
func (c *counted) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		c.metrics.refused.WithLabelValues(strconv.Itoa(status)).Inc()
	}
	c.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController set deadlines.
func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// writeProblem answers with problem details (RFC 9457).
func writeProblem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(huma.ErrorModel{Title: http.StatusText(status), Status: status, Detail: detail})
}

func noRoute(w http.ResponseWriter, _ *http.Request) {
	writeProblem(w, http.StatusNotFound, "no such route; /openapi.json describes the routes")
}

// said is the most bytes of problem details, and so of what they repeat of a request.
const said = 250

// refusals shortens problems, and remembers why a job's newest registration was refused: a client goes on without the service, and nobody may read its log.
func (s *Server) refusals(ctx huma.Context, _ string, answer any) (any, error) {
	p, refused := answer.(*huma.ErrorModel)
	if refused {
		shorten(p)
	}
	if ctx.Operation().OperationID != "register" {
		return answer, nil
	}
	if j := s.known(ctx.Param("job")); j != nil {
		switch {
		case !refused:
			j.refuse("")
		case slices.Contains([]int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity}, p.Status):
			j.refuse(why(p))
		}
	}
	return answer, nil
}

// shorten leaves out the values that problem details repeat, and cuts them to their most bytes.
func shorten(p *huma.ErrorModel) {
	p.Detail = clip(p.Detail, said)
	left := said
	for i, e := range p.Errors {
		e.Value, e.Location, e.Message = nil, clip(e.Location, said/3), clip(e.Message, said-said/3)
		if left -= len(e.Location) + len(e.Message); left < 0 && i > 0 {
			p.Errors = append(p.Errors[:i], &huma.ErrorDetail{Message: fmt.Sprintf("and %d more", len(p.Errors)-i)})
			return
		}
	}
}

// refuse notes why the newest registration was refused, "" if it was not.
func (j *job) refuse(why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.record.refused = why
}

// why is what problem details say, in one line.
func why(p *huma.ErrorModel) string {
	texts := make([]string, 0, len(p.Errors))
	for _, e := range p.Errors {
		texts = append(texts, strings.TrimSpace(strings.TrimPrefix(e.Location, "body.")+" "+e.Message))
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, cmp.Or(strings.Join(texts, "; "), p.Detail))
}

// clip cuts a text to so many bytes.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
