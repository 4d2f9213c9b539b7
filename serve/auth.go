package serve

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/internal/badinput"
)

// The scopes of a token. Each allows what those before it allow.
const (
	scopeRead   = "read"
	scopeReport = "report"
	scopeAdmin  = "admin"
)

var scopes = []string{scopeRead, scopeReport, scopeAdmin}

// within says whether a scope allows what needs another.
func within(need, scope string) bool {
	return slices.Index(scopes, need) <= slices.Index(scopes, scope)
}

// token is what the service keeps of a token: never the token itself.
type token struct {
	Hash    []byte    `json:"hash"`
	Scope   string    `json:"scope"`
	Created time.Time `json:"created,omitzero"`
	Expires time.Time `json:"expires,omitzero"` // zero: never
}

// id names a token without giving it away: four bytes of the hash of 256 random bits.
func (t *token) id() string { return hex.EncodeToString(t.Hash[:4]) }

// holds says whether a token is valid at a time.
func (t *token) holds(now time.Time) bool { return t.Expires.IsZero() || now.Before(t.Expires) }

// minToken is the fewest bytes of a token of the service.
const minToken = 16

// parseTokens reads the tokens of a service, one a line: the administrator's, or after "read " or "report " a token limited to that scope. Empty lines, and lines
// that begin with #, are ignored. No error contains a token.
func parseTokens(text string) ([]token, error) {
	var all []token
	for k, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		t := token{Scope: scopeAdmin}
		if scope, rest, ok := strings.Cut(line, " "); ok && slices.Contains(scopes, scope) {
			t.Scope, line = scope, strings.TrimSpace(rest)
		}
		if len(line) < minToken {
			return nil, badinput.Errorf("line %d: the token has %d bytes; it must have at least %d (openssl rand -hex 32 makes one)", k+1, len(line), minToken)
		}
		sum := sha256.Sum256([]byte(line))
		if slices.ContainsFunc(all, func(o token) bool { return bytes.Equal(o.Hash, sum[:]) }) {
			return nil, badinput.Errorf("line %d: the token is given twice; remove one of the lines", k+1)
		}
		t.Hash = sum[:]
		all = append(all, t)
	}
	return all, nil
}

// SetTokens replaces the tokens of the service (Config.Token). A service that began without tokens cannot get any. After an error the old tokens stay valid.
func (s *Server) SetTokens(text string) error {
	all, err := parseTokens(text)
	switch {
	case err != nil:
		return err
	case len(all) == 0 || s.open():
		return badinput.New("a service that began with tokens needs at least one; to run without tokens, or to begin using them, start it again")
	}
	s.tokens.Store(&all)
	return nil
}

// open says whether nobody needs a token.
func (s *Server) open() bool { return len(*s.tokens.Load()) == 0 }

// bearer is the hash of a request's token.
func bearer(header string) []byte {
	scheme, secret, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		secret = ""
	}
	sum := sha256.Sum256([]byte(strings.TrimSpace(secret)))
	return sum[:]
}

// match returns the valid token with a hash, nil if there is none. It always compares all bytes of all tokens, so its time tells nothing.
func match(all []token, given []byte, now time.Time) *token {
	var found *token
	for i := range all {
		if t := &all[i]; subtle.ConstantTimeCompare(t.Hash, given) == 1 && t.holds(now) {
			found = t
		}
	}
	return found
}

// again is how long another service's change of a job's tokens may go unseen.
const again = time.Second

// granted returns the valid token of a request about a job, or about the service if name is ""; nil if the request has none. The answer for a job that does
// not exist is that for a wrong token. It is an error if the job's tokens cannot be read now.
func (s *Server) granted(header, name string) (*token, error) {
	given, now := bearer(header), s.config.Clock()
	if t := match(*s.tokens.Load(), given, now); t != nil || name == "" {
		return t, nil
	}
	j, err := s.find(name)
	if err == nil && s.config.Journal != nil && (match(j.tokens.all(), given, now) == nil || j.tokens.due(now)) {
		j, err = s.fresh(name)
	}
	switch {
	case err == nil:
		return match(j.tokens.all(), given, now), nil
	case errors.Is(err, errNoJob), errors.Is(err, errUnread):
		return nil, nil //nolint:nilnil // no token is no error
	}
	return nil, err
}

// authorise refuses requests without a token of the scope that their operation needs: of its job, or of the service.
func (s *Server) authorise(api huma.API) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		if len(ctx.Operation().Security) == 0 || s.open() {
			next(called(ctx, "none"))
			return
		}
		need := ctx.Operation().Security[0]["token"][0]
		t, err := s.granted(ctx.Header("Authorization"), ctx.Param("job"))
		switch {
		case err != nil:
			_ = huma.WriteErr(api, ctx, http.StatusServiceUnavailable, "the job's tokens cannot be read from the journal now; try again")
		case t == nil:
			ctx.SetHeader("WWW-Authenticate", `Bearer realm="evenkeel"`)
			_ = huma.WriteErr(api, ctx, http.StatusUnauthorized, "the token is missing, wrong or has expired; send Authorization: Bearer TOKEN (EVENKEEL_TOKEN)")
		case !within(need, t.Scope):
			_ = huma.WriteErr(api, ctx, http.StatusForbidden, "the token's scope is "+t.Scope+"; this request needs "+need)
		default:
			if wait := s.limits.tokens.wait(string(t.Hash), s.config.Clock()); wait > 0 {
				ctx.SetHeader("Retry-After", seconds(wait))
				_ = huma.WriteErr(api, ctx, http.StatusTooManyRequests, "too many requests with this token (--token-rate); try again later")
				return
			}
			next(called(ctx, s.kind(t)))
		}
	}
}

// caller is who sends a request, as far as its token tells.
type caller struct{ token, address string }

type callerKey struct{}

func called(ctx huma.Context, token string) huma.Context {
	return huma.WithValue(ctx, callerKey{}, caller{token, ctx.RemoteAddr()})
}

// kind describes a token in the audit log: of the service or of a job, its scope, and the id of a job's token.
func (s *Server) kind(t *token) string {
	for _, own := range *s.tokens.Load() {
		if bytes.Equal(own.Hash, t.Hash) {
			return "service " + t.Scope // an id would help to guess one that a person made up
		}
	}
	return "job " + t.Scope + " " + t.id()
}

// audit writes a change through the API to the log: who, which job, and what.
func (s *Server) audit(ctx context.Context, job, what string) {
	c, _ := ctx.Value(callerKey{}).(caller)
	s.config.Log.Info().Bool("audit", true).Str("token", c.token).Str("address", c.address).Str("job", job).Msg(what)
}
