package serve

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// maxTokens is how many good tokens a job may have.
const maxTokens = 16

// Errors about tokens.
var (
	errOpen       = errors.New("serve: the service runs without tokens; start it with --token-file")
	errNoToken    = errors.New("serve: the job has no such token; GET /v1/jobs/{job}/tokens lists its tokens")
	errManyTokens = errors.New("serve: the job has 16 tokens; revoke one")
)

// retoken is a change of a job's tokens.
type retoken struct {
	Add    *token    `json:"add,omitempty"`
	Retire time.Time `json:"retire,omitzero"` // when older tokens of the same scope end; zero: as before
	Revoke string    `json:"revoke,omitempty"`
	Now    time.Time `json:"now"`
}

// keyring holds a job's tokens. They are read without the job's lock, which may wait for the journal.
type keyring struct {
	tokens atomic.Pointer[[]token]
	looked atomic.Int64 // when the journal was last asked whether another service changed them, in nanoseconds
}

func (k *keyring) all() []token {
	if all := k.tokens.Load(); all != nil {
		return *all
	}
	return nil
}

func (k *keyring) set(all []token) { k.tokens.Store(&all) }

// due says, to one who asks, whether it is time to ask the journal again.
func (k *keyring) due(now time.Time) bool {
	last, at := k.looked.Load(), now.UnixNano()
	return (at-last >= int64(again) || at < last) && k.looked.CompareAndSwap(last, at)
}

// firstToken returns the token that a job was created with.
func firstToken(c *creation) []token {
	if len(c.Token) == 0 {
		return nil
	}
	return []token{{Hash: c.Token, Scope: scopeAdmin, Created: c.Created}}
}

// change adds or revokes a token. Those that have expired are dropped.
func (k *keyring) change(r *retoken) error {
	all := slices.Clone(k.all())
	all = slices.DeleteFunc(all, func(t token) bool { return !t.holds(r.Now) })
	if r.Revoke != "" {
		before := len(all)
		if all = slices.DeleteFunc(all, func(t token) bool { return t.id() == r.Revoke }); len(all) == before {
			return errNoToken
		}
	}
	if r.Add != nil {
		if len(all) >= maxTokens {
			return errManyTokens
		}
		for i := range all {
			if t := &all[i]; t.Scope == r.Add.Scope && !r.Retire.IsZero() && t.holds(r.Retire) {
				t.Expires = r.Retire
			}
		}
		all = append(all, *r.Add)
	}
	k.set(all)
	return nil
}

// newSecret makes a token, and its hash.
func newSecret() (secret string, sum []byte) {
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	secret = base64.RawURLEncoding.EncodeToString(random)
	h := sha256.Sum256([]byte(secret))
	return secret, h[:]
}

// TokenState is what the service says of a job's token.
type TokenState struct {
	ID      string    `json:"id" example:"9f86d081"`
	Scope   string    `json:"scope" enum:"read,report,admin"`
	Created time.Time `json:"created,omitzero"`
	Expires time.Time `json:"expires,omitzero" doc:"When the token expires; absent: never"`
	Token   string    `json:"token,omitempty" doc:"The token; only in the answer that makes it"`
}

func (t *token) state() TokenState {
	return TokenState{ID: t.id(), Scope: t.Scope, Created: t.Created, Expires: t.Expires}
}

// tokenBody asks for another token of a job.
type tokenBody struct {
	Scope   string `json:"scope" enum:"read,report,admin" doc:"read: look; report: also register and report, all a training job needs; admin: also change and delete the job, and its tokens"`
	Expires int    `json:"expires_in_seconds,omitempty" minimum:"0" maximum:"315360000" doc:"Seconds until the token expires; 0: never"`
	Retire  *int   `json:"retire_in_seconds,omitempty" minimum:"0" maximum:"315360000" doc:"Seconds for which the job's older tokens of this scope stay valid; absent: until they are revoked"`
}

// tokenList is the answer of list-tokens.
type tokenList struct {
	Tokens []TokenState `json:"tokens" nullable:"false"`
}

func (s *Server) tokenRoutes(api huma.API) {
	const path = "/v1/jobs/{job}/tokens"
	add := s.operation("add-token", http.MethodPost, path, "Make another token of a job", 404, 409, 422, 503, 507)
	add.DefaultStatus = http.StatusCreated
	huma.Register(api, add, func(ctx context.Context, in *jobBody[tokenBody]) (*struct{ Body TokenState }, error) {
		if s.open() {
			return nil, problem(errOpen)
		}
		secret, sum := newSecret()
		now := s.config.Clock()
		change := &retoken{Add: &token{Hash: sum, Scope: in.Body.Scope, Created: now}, Now: now}
		if in.Body.Expires > 0 {
			change.Add.Expires = now.Add(time.Duration(in.Body.Expires) * time.Second)
		}
		if in.Body.Retire != nil {
			change.Retire = now.Add(time.Duration(*in.Body.Retire) * time.Second)
		}
		if _, err := s.submit(in.Job, entry{Token: change}); err != nil {
			return nil, problem(err)
		}
		s.audit(ctx, in.Job, "token made: "+in.Body.Scope+" "+change.Add.id())
		made := change.Add.state()
		made.Token = secret
		return answered(made, nil)
	})
	list := s.operation("list-tokens", http.MethodGet, path, "List a job's tokens, without the secrets", 404, 503)
	list.Security = needs(scopeAdmin)
	huma.Register(api, list, func(_ context.Context, in *jobPath) (*struct{ Body tokenList }, error) {
		j, err := s.fresh(in.Job)
		if err != nil {
			return nil, problem(err)
		}
		list := tokenList{[]TokenState{}}
		for _, t := range j.tokens.all() {
			if t.holds(s.config.Clock()) {
				list.Tokens = append(list.Tokens, t.state())
			}
		}
		return answered(list, nil)
	})
	revoke := s.operation("revoke-token", http.MethodDelete, path+"/{id}", "Revoke a token of a job", 404, 409, 422, 503, 507)
	revoke.DefaultStatus = http.StatusNoContent
	huma.Register(api, revoke, func(ctx context.Context, in *struct {
		Job string `path:"job" minLength:"1" maxLength:"63" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" patternDescription:"letters, digits and, not first, . _ -" example:"job"`
		ID  string `path:"id" minLength:"8" maxLength:"8" pattern:"^[0-9a-f]+$"`
	}) (*struct{}, error) {
		if _, err := s.submit(in.Job, entry{Token: &retoken{Revoke: in.ID, Now: s.config.Clock()}}); err != nil {
			return nil, problem(err)
		}
		s.audit(ctx, in.Job, "token revoked: "+in.ID)
		return nil, nil //nolint:nilnil // no content is no error
	})
}

// needs says which scope the token of an operation must have.
func needs(scope string) []map[string][]string { return []map[string][]string{{"token": {scope}}} }
