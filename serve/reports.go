package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"evenkeel/agent/export"
	"evenkeel/cluster/live"
)

// started is the answer to a registration.
type started struct {
	Generation int          `json:"generation" doc:"Number of this start, from 1"`
	Sizes      export.Sizes `json:"sizes"`
}

// reportBody is a report of rank 0, for all ranks.
type reportBody struct {
	Generation  int     `json:"generation" minimum:"1" doc:"Number of the generation, from the answer to the registration"`
	Round       int     `json:"round" minimum:"0" doc:"Number of the round, from 0 in each generation, rising; numbers may be missing"`
	Plan        int     `json:"plan" minimum:"1" doc:"Number of the plan whose sizes the round ran"`
	WaitSeconds float64 `json:"wait_seconds" exclusiveMinimum:"0" maximum:"1000000" doc:"Duration of the round, measured on rank 0"`
	NormSquared float64 `json:"norm_squared,omitempty" minimum:"0" doc:"Squared norm of the aggregated gradient; absent: unknown"`
	Ranks       ranks   `json:"ranks" doc:"Reports in rank order; null: the rank handed in nothing"`
}

// ranks may be null one by one, which a type of its own has to say.
type ranks []*live.RankReport

// Schema is huma's.
func (ranks) Schema(r huma.Registry) *huma.Schema {
	report := huma.SchemaFromType(r, reflect.TypeFor[live.RankReport]())
	report.Nullable = true
	least, most := 1, live.MaxRanks
	return &huma.Schema{Type: huma.TypeArray, Items: report, MinItems: &least, MaxItems: &most}
}

// ownBody is a rank's report of its own share.
type ownBody struct {
	Round int `json:"round" minimum:"0" doc:"Number of the rank's report, from 0, rising"`
	Plan  int `json:"plan" minimum:"1" doc:"Number of the plan whose share the rank ran"`
	live.RankReport
	PauseSeconds float64 `json:"pause_seconds,omitempty" minimum:"0" maximum:"1000000" doc:"Seconds that the rank will stand still before its next share, to save for example; the next sizes leave room for it, and the seconds of that share include it"`
}

// answer to a report.
type answer struct {
	Verdict string       `json:"verdict" enum:"accepted,duplicate,old,early" doc:"early: the rank has already handed in its share of this round; it goes on with the next plan"`
	Sizes   export.Sizes `json:"sizes" doc:"Newest sizes"`
}

// sizesAnswer is the answer of get-sizes.
type sizesAnswer struct {
	ContentType string `header:"Content-Type"`
	Body        []byte
}

func (s *Server) roundRoutes(api huma.API) {
	register := s.operation("register", http.MethodPost, "/v1/jobs/{job}/generations", "Register a start of the process group, by rank 0", 404, 409, 422, 503, 507)
	register.DefaultStatus = http.StatusCreated
	register.Security = needs(scopeReport)
	huma.Register(api, register, func(_ context.Context, in *jobBody[registration]) (*struct{ Body started }, error) {
		_, err := s.find(in.Job)
		if errors.Is(err, errNoJob) && s.open() {
			_, _, err = s.create(in.Job, Settings{})
		}
		if err != nil { // that it cannot be read now, too: what cannot be read is not created, and would be missing a moment later
			return nil, problem(err)
		}
		r, err := s.submit(in.Job, entry{Start: &in.Body})
		return answered(started{r.number, r.sizes}, err)
	})
	report := s.operation("report", http.MethodPost, "/v1/jobs/{job}/reports", "Report a round, by rank 0 for all ranks", 409, 422, 503, 507)
	report.Security, report.Middlewares = needs(scopeReport), huma.Middlewares{s.bounded(api)}
	huma.Register(api, report, func(_ context.Context, in *jobBody[reportBody]) (*struct{ Body answer }, error) {
		return reply(s.submit(in.Job, entry{Round: &in.Body}))
	})
	own := s.operation("report-own", http.MethodPost, "/v1/jobs/{job}/generations/{generation}/ranks/{rank}/reports", "Report a rank's own share, in jobs without all-reduce", 409, 422, 503, 507)
	own.Security, own.MaxBodyBytes = needs(scopeReport), ownBytes
	huma.Register(api, own, func(_ context.Context, in *struct {
		Job        string `path:"job" minLength:"1" maxLength:"63" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" patternDescription:"letters, digits and, not first, . _ -" example:"job"`
		Generation int    `path:"generation" minimum:"1"`
		Rank       int    `path:"rank" minimum:"0"`
		Body       ownBody
	}) (*struct{ Body answer }, error) {
		return reply(s.submit(in.Job, entry{Own: &ownEntry{in.Generation, in.Rank, in.Body}}))
	})
	sizes := s.operation("get-sizes", http.MethodGet, "/v1/jobs/{job}/sizes", "The newest sizes, in an export format", 404, 409, 422, 503, 507)
	huma.Register(api, sizes, func(_ context.Context, in *struct {
		Job    string `path:"job" minLength:"1" maxLength:"63" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" patternDescription:"letters, digits and, not first, . _ -" example:"job"`
		Format string `query:"format" default:"json" enum:"json,csv,torchrun,kubernetes"`
	}) (*sizesAnswer, error) {
		newest, err := s.look(in.Job)
		if err != nil {
			return nil, problem(err)
		}
		var b bytes.Buffer
		if err := export.Write(&b, in.Format, newest); err != nil {
			return nil, problem(err)
		}
		kind := "text/plain; charset=utf-8"
		if in.Format == "json" {
			kind = "application/json"
		}
		return &sizesAnswer{kind, b.Bytes()}, nil
	})
}

// bounded refuses reports that are larger than a report for the job's number of ranks can be.
func (s *Server) bounded(api huma.API) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		most := int64(ownBytes)
		switch j, err := s.find(ctx.Param("job")); {
		case err == nil:
			if now := j.shown.Load(); now != nil {
				most += rankBytes * int64(now.ranks)
			}
		case !errors.Is(err, errNoJob): // it is not known yet how many ranks it has
			refused := problem(err).(huma.StatusError) //nolint:errorlint // problem makes no other
			_ = huma.WriteErr(api, ctx, refused.GetStatus(), refused.Error())
			return
		}
		r, _ := humago.Unwrap(ctx)
		text, err := []byte(nil), error(nil)
		if r.ContentLength < 0 { // of unknown length
			text, err = io.ReadAll(io.LimitReader(r.Body, most+1))
			r.Body = io.NopCloser(bytes.NewReader(text))
		}
		switch {
		case err != nil:
			_ = huma.WriteErr(api, ctx, http.StatusBadRequest, "the body ends too early")
		case max(r.ContentLength, int64(len(text))) > most:
			_ = huma.WriteErr(api, ctx, http.StatusRequestEntityTooLarge, fmt.Sprintf("the report is larger than %d bytes, the limit for the job's number of ranks", most))
		default:
			next(ctx)
		}
	}
}

// reply answers a report. A job that is not there may have been lost with an older service: a conflict, upon which its
// ranks register anew.
func reply(r result, err error) (*struct{ Body answer }, error) {
	if errors.Is(err, errNoJob) {
		err = fmt.Errorf("%w; there is no such job", errGeneration)
	}
	return answered(answer{r.verdict.String(), r.sizes}, err)
}

// report judges a report of rank 0. The decision that rests on it comes later.
func (j *job) report(r *reportBody) (result, error) {
	if count, err := j.gen.check(r.Generation, r.Plan); err != nil {
		j.record.count(count)
		return result{}, err
	}
	verdict, report, err := j.gen.rounds.Take(&live.Report{Round: r.Round, Plan: r.Plan, WaitSeconds: r.WaitSeconds, NormSquared: r.NormSquared, Ranks: r.Ranks}, j.at)
	if err != nil {
		j.record.count("malformed")
		return result{}, err
	}
	j.record.count(verdict.String())
	if verdict == live.Accepted {
		j.took(report)
		own := *report // valid until the next
		own.Nodes = slices.Clone(report.Nodes)
		j.gen.waiting = &own
	}
	return result{verdict: verdict, sizes: j.gen.sizes, changed: verdict == live.Accepted}, nil
}

// reportOwn judges a rank's own report.
func (j *job) reportOwn(e *ownEntry) (result, error) {
	if count, err := j.gen.check(e.Generation, e.Plan); err != nil {
		j.record.count(count)
		return result{}, err
	}
	verdict, err := j.gen.rounds.TakeOwn(e.Rank, &live.OwnReport{Round: e.Round, Plan: e.Plan, Pause: e.PauseSeconds, RankReport: e.RankReport}, j.at)
	if err != nil {
		j.record.count("malformed")
		return result{sizes: j.gen.sizes}, err
	}
	j.record.count(verdict.String())
	return result{verdict: verdict, sizes: j.gen.sizes, changed: verdict == live.Accepted}, nil
}

// look returns the newest sizes of a job. A round of single ranks may be over by now.
func (s *Server) look(name string) (export.Sizes, error) {
	j, err := s.fresh(name)
	if err == nil && j.due() {
		if _, err = s.submit(name, entry{Expire: true}); err == nil {
			j, err = s.find(name)
		}
	}
	if err != nil {
		return export.Sizes{}, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.gen.runs() {
		return export.Sizes{}, fmt.Errorf("%w: none has started", errGeneration)
	}
	j.decideAll()
	return j.gen.sizes, nil
}

// due says whether a round of ranks that report for themselves has ended by its time limits.
func (j *job) due() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.decideAll()
	return j.gen.runs() && j.gen.rounds.Due(j.config.Clock().Sub(j.created))
}
