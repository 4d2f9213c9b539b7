package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// bearer is the hash of a request's token.
func bearer(header string) hash {
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		token = ""
	}
	return sha256.Sum256([]byte(strings.TrimSpace(token)))
}

func same(a, b hash) bool { return subtle.ConstantTimeCompare(a[:], b[:]) == 1 }

// allowed says whether a request's token opens a job; "" is the service itself, which only the administrator's opens. A job that does not exist
// takes as long, and gives the same answer, as one with another token.
func (s *Server) allowed(header, name string) bool {
	if s.admin == (hash{}) {
		return true
	}
	given := bearer(header)
	admin := same(given, s.admin)
	var own hash
	if name != "" {
		if j, err := s.find(name); err == nil {
			own = j.token
		}
	}
	return same(given, own) || admin // nothing hashes to the zero of a job that is not there
}

// authorise refuses requests without the token that their operation needs: a job's own, or the administrator's.
func (s *Server) authorise(api huma.API) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		if len(ctx.Operation().Security) == 0 {
			next(ctx)
			return
		}
		if !s.allowed(ctx.Header("Authorization"), ctx.Param("job")) {
			ctx.SetHeader("WWW-Authenticate", `Bearer realm="evenkeel"`)
			_ = huma.WriteErr(api, ctx, http.StatusUnauthorized, "the token is missing or wrong; send Authorization: Bearer TOKEN (EVENKEEL_TOKEN)")
			return
		}
		next(ctx)
	}
}
