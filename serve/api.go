package serve

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"evenkeel/cluster/live"
	"evenkeel/internal/badinput"
	"evenkeel/serve/dashboard"
	"evenkeel/serve/journal"
)

// bodies of requests: a million bytes, and a thousand for every rank.
const (
	bodyBytes = 1 << 20
	rankBytes = 1 << 10
	ownBytes  = 64 << 10 // of a report, beside its ranks
)

// jobPath is what every route of a job begins with.
type jobPath struct {
	Job string `path:"job" minLength:"1" maxLength:"63" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" patternDescription:"letters, digits and, not first, . _ -" example:"job"`
}

// jobBody is a request about a job with a body.
type jobBody[T any] struct {
	Job  string `path:"job" minLength:"1" maxLength:"63" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" patternDescription:"letters, digits and, not first, . _ -" example:"job"`
	Body T
}

// created is a job, with its token where it has just got one.
type created struct {
	JobState
	Token string `json:"token,omitempty" doc:"First token of the job; only in this answer, and only if the service has tokens"`
}

// putAnswer is the answer of put-job.
type putAnswer struct {
	Status int
	Body   created
}

// routes makes the API.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	config := huma.DefaultConfig("Evenkeel", "1")
	config.Info.Description = "The control service of training jobs: a job says how long its rounds took and gets the sizes of its next ones."
	config.DocsPath, config.SchemasPath, config.CreateHooks = "", "", nil
	config.Transformers = []huma.Transformer{s.refusals}
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer", Description: "Needed if the service has tokens. Scopes: read, report, admin; each includes those before it"}}
	api := humago.New(mux, config)
	api.UseMiddleware(s.timed, s.authorise(api))
	s.jobRoutes(api)
	s.tokenRoutes(api)
	s.roundRoutes(api)
	s.watchRoutes(api)
	s.healthRoutes(api)
	mux.Handle("GET /{$}", dashboard.Handler())
	mux.Handle("GET /static/{file}", dashboard.Handler()) // not /static/: then it would send on /static with all that follows it
	mux.HandleFunc("/", noRoute)
	return s.guard(mux)
}

// operation is an operation of a job, or of the service.
func (s *Server) operation(id, method, path, summary string, errs ...int) huma.Operation {
	errs = append(errs, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests)
	scope := scopeAdmin
	if method == http.MethodGet {
		scope = scopeRead
	}
	if method != http.MethodGet && method != http.MethodDelete { // bodies that are no JSON, too slow, or too large
		errs = append(errs, http.StatusBadRequest, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	return huma.Operation{
		OperationID: id, Method: method, Path: path, Summary: summary, Errors: errs,
		MaxBodyBytes: bodyBytes + rankBytes*int64(s.config.Ranks), BodyReadTimeout: bodyTime,
		Security: needs(scope),
	}
}

func (s *Server) jobRoutes(api huma.API) {
	put := s.operation("put-job", http.MethodPut, "/v1/jobs/{job}", "Create a job, or change its settings", 409, 422, 503, 507)
	put.Responses = map[string]*huma.Response{"201": {Description: "Created"}}
	huma.Register(api, put, func(ctx context.Context, in *jobBody[Settings]) (*putAnswer, error) {
		out := &putAnswer{Status: http.StatusOK}
		j, token, err := s.create(in.Job, in.Body)
		if err != nil {
			return nil, problem(err)
		}
		if j != nil {
			out.Status, out.Body.Token = http.StatusCreated, token
			s.audit(ctx, in.Job, "job created")
		} else if _, err := s.submit(in.Job, entry{Settings: &in.Body}); err != nil {
			return nil, problem(err)
		} else {
			s.audit(ctx, in.Job, "settings changed")
		}
		if out.Body.JobState, err = s.describe(in.Job); err != nil {
			return nil, problem(err)
		}
		return out, nil
	})
	huma.Register(api, s.operation("list-jobs", http.MethodGet, "/v1/jobs", "List the jobs"), func(_ context.Context, in *struct {
		Ranks bool `query:"ranks" default:"true" doc:"Whether to list each job's ranks"`
	}) (*struct{ Body jobList }, error) {
		return answered(jobList{Jobs: append([]JobState{}, s.list(in.Ranks)...)}, nil)
	})
	huma.Register(api, s.operation("get-job", http.MethodGet, "/v1/jobs/{job}", "Inspect a job", 404, 503), func(_ context.Context, in *jobPath) (*struct{ Body JobState }, error) {
		return answered(s.describe(in.Job))
	})
	huma.Register(api, s.operation("patch-job", http.MethodPatch, "/v1/jobs/{job}", "Change weights, limits, or pause a job", 404, 422, 503, 507), func(ctx context.Context, in *jobBody[change]) (*struct{ Body JobState }, error) {
		if _, err := s.submit(in.Job, entry{Change: &in.Body}); err != nil {
			return nil, problem(err)
		}
		s.audit(ctx, in.Job, in.Body.String())
		return answered(s.describe(in.Job))
	})
	remove := s.operation("delete-job", http.MethodDelete, "/v1/jobs/{job}", "Delete a job", 404, 503, 507)
	remove.DefaultStatus = http.StatusNoContent
	huma.Register(api, remove, func(ctx context.Context, in *jobPath) (*struct{}, error) {
		err := s.remove(in.Job)
		if err == nil {
			s.audit(ctx, in.Job, "job deleted")
		}
		return nil, problem(err)
	})
}

// answered is the answer of an operation: a body, or the problem details of an error.
func answered[T any](body T, err error) (*struct{ Body T }, error) {
	if err != nil {
		return nil, problem(err)
	}
	return &struct{ Body T }{body}, nil
}

// jobList is the answer of list-jobs.
type jobList struct {
	Jobs []JobState `json:"jobs" nullable:"false"`
}

// problem turns an error into problem details.
func problem(err error) error {
	if err == nil {
		return nil
	}
	if disk := (*journal.DiskError)(nil); errors.As(err, &disk) {
		return huma.NewError(http.StatusInsufficientStorage, "serve: "+disk.Error()+"; make room, or delete jobs that are over")
	}
	for _, x := range []struct {
		status int
		errs   []error
	}{
		{http.StatusNotFound, []error{errNoJob, errNoToken}},
		{http.StatusConflict, []error{errOpen, errManyTokens}},
		{http.StatusInsufficientStorage, []error{errFull, journal.ErrFull}}, // before errJournal, which wraps it
		{http.StatusServiceUnavailable, []error{errJournal, errReading, errClosed}},
		{http.StatusInternalServerError, []error{errUnread}},
	} {
		for _, known := range x.errs {
			if errors.Is(err, known) {
				return huma.NewError(x.status, known.Error()) // without what else err wraps, which is for the log
			}
		}
	}
	var faults live.Faults
	switch {
	case errors.As(err, &faults):
		details := make([]error, len(faults))
		for i, f := range faults {
			details[i] = &huma.ErrorDetail{Location: "body." + f.Path, Message: f.Text}
		}
		return huma.Error422UnprocessableEntity("the request has impossible values", details...)
	case errors.Is(err, errEnded), errors.Is(err, errGeneration), errors.Is(err, live.ErrMixed):
		return huma.Error409Conflict(err.Error())
	case badinput.Is(err):
		return huma.Error422UnprocessableEntity(err.Error())
	}
	return huma.Error500InternalServerError("the service failed; its log says why")
}
