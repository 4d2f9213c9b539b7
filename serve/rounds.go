package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/evenkeel/evenkeel/agent/export"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/live"
)

// errGeneration says that a report is of another start than the newest.
var errGeneration = errors.New("serve: this generation is not the newest; register the process group")

// started is the answer to a registration.
type started struct {
	Generation int          `json:"generation" doc:"Number of this start, from 1"`
	Sizes      export.Sizes `json:"sizes"`
}

// reportBody is a report of rank 0, for all ranks.
type reportBody struct {
	Generation  int     `json:"generation" minimum:"1" doc:"As the registration was answered"`
	Round       int     `json:"round" minimum:"0" doc:"From 0 in each generation, rising; some may be missing"`
	Plan        int     `json:"plan" minimum:"1" doc:"Whose sizes the round ran"`
	WaitSeconds float64 `json:"wait_seconds" exclusiveMinimum:"0" maximum:"1000000" doc:"Time of the round on rank 0"`
	NormSquared float64 `json:"norm_squared,omitempty" minimum:"0" doc:"Of the aggregated gradient; absent: unknown"`
	Ranks       ranks   `json:"ranks" doc:"In rank order; null: the rank handed in nothing"`
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
	Plan  int `json:"plan" minimum:"1" doc:"Whose share it is"`
	live.RankReport
}

// answer to a report.
type answer struct {
	Verdict string       `json:"verdict" enum:"accepted,duplicate,old,early" doc:"early: of a single rank, whose share of this round is in; a newer plan has work for it"`
	Sizes   export.Sizes `json:"sizes" doc:"The newest"`
}

func (s *Server) roundRoutes(api huma.API) {
	register := s.operation("register", http.MethodPost, "/v1/jobs/{job}/generations", "Start of the process group, by rank 0", 404, 409, 422, 507)
	register.DefaultStatus = http.StatusCreated
	huma.Register(api, register, func(_ context.Context, in *jobBody[registration]) (*struct{ Body started }, error) {
		j, err := s.find(in.Job)
		if errors.Is(err, errNoJob) && s.admin == (hash{}) {
			if j, _, err = s.create(in.Job, Settings{}); err == nil && j == nil {
				j, err = s.find(in.Job)
			}
		}
		if err != nil {
			return nil, problem(err)
		}
		number, sizes, err := j.register(&in.Body)
		if err != nil {
			j.refuse()
			return nil, problem(err)
		}
		return &struct{ Body started }{started{number, sizes}}, nil
	})
	huma.Register(api, s.operation("report", http.MethodPost, "/v1/jobs/{job}/reports", "A round, by rank 0 for all ranks", 409, 422), func(_ context.Context, in *jobBody[reportBody]) (*struct{ Body answer }, error) {
		j, err := s.started(in.Job)
		if err != nil {
			return nil, problem(err)
		}
		a, err := j.report(&in.Body)
		return &struct{ Body answer }{a}, problem(err)
	})
	huma.Register(api, s.operation("report-own", http.MethodPost, "/v1/jobs/{job}/generations/{generation}/ranks/{rank}/reports", "A rank's own share, where there is no all-reduce", 409, 422), func(_ context.Context, in *struct {
		Job        string `path:"job" minLength:"1" maxLength:"63" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" patternDescription:"letters, digits and, not first, . _ -" example:"job"`
		Generation int    `path:"generation" minimum:"1"`
		Rank       int    `path:"rank" minimum:"0"`
		Body       ownBody
	}) (*struct{ Body answer }, error) {
		j, err := s.started(in.Job)
		if err != nil {
			return nil, problem(err)
		}
		a, err := j.reportOwn(in.Generation, in.Rank, &live.OwnReport{Round: in.Body.Round, Plan: in.Body.Plan, RankReport: in.Body.RankReport})
		return &struct{ Body answer }{a}, problem(err)
	})
	sizes := s.operation("get-sizes", http.MethodGet, "/v1/jobs/{job}/sizes", "The newest sizes, in any export format", 404, 409, 422)
	huma.Register(api, sizes, func(_ context.Context, in *struct {
		Job    string `path:"job" minLength:"1" maxLength:"63" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" patternDescription:"letters, digits and, not first, . _ -" example:"job"`
		Format string `query:"format" default:"json" enum:"json,yaml,csv,torchrun,deepspeed,kubernetes"`
	}) (*struct {
		ContentType string `header:"Content-Type"`
		Body        []byte
	}, error) {
		j, err := s.find(in.Job)
		if err != nil {
			return nil, problem(err)
		}
		newest, err := j.look()
		if err != nil {
			return nil, problem(err)
		}
		var b bytes.Buffer
		if err := export.Write(&b, in.Format, newest); err != nil {
			return nil, problem(err)
		}
		kind := "text/plain; charset=utf-8"
		if in.Format == "json" || in.Format == "deepspeed" {
			kind = "application/json"
		}
		return &struct {
			ContentType string `header:"Content-Type"`
			Body        []byte
		}{kind, b.Bytes()}, nil
	})
}

// started finds the job of a report. A job that is not there may have been lost with an older service: a conflict, upon
// which its ranks register anew.
func (s *Server) started(name string) (*job, error) {
	j, err := s.find(name)
	if errors.Is(err, errNoJob) {
		return nil, fmt.Errorf("%w; there is no job %s", errGeneration, name)
	}
	return j, err
}

// report judges a report of rank 0. The decision that rests on it comes later.
func (j *job) report(r *reportBody) (answer, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.gen == nil || r.Generation != j.number {
		j.count("unknown generation")
		return answer{}, fmt.Errorf("%w: it is %d, the newest is %d", errGeneration, r.Generation, j.number)
	}
	verdict, report, err := j.gen.Take(&live.Report{Round: r.Round, Plan: r.Plan, WaitSeconds: r.WaitSeconds, NormSquared: r.NormSquared, Ranks: r.Ranks}, j.now())
	if err != nil {
		j.count("malformed")
		return answer{}, err
	}
	j.count(verdict.String())
	if verdict == live.Accepted {
		j.took(report)
		j.await(report)
	}
	return answer{verdict.String(), j.sizes}, nil
}

// await lets a report wait for its decision.
func (j *job) await(report *cluster.Report) {
	if len(j.pending) == maxPending {
		j.pending = j.pending[1:]
		j.count("skipped")
	}
	own := *report
	own.Nodes = append([]cluster.NodeReport(nil), report.Nodes...)
	j.pending = append(j.pending, own)
	j.rouse()
}

// rouse wakes the job's goroutine.
func (j *job) rouse() {
	select {
	case j.wake <- struct{}{}:
	default: // it is awake
	}
}

// reportOwn judges a rank's own report.
func (j *job) reportOwn(generation, rank int, r *live.OwnReport) (answer, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.gen == nil || generation != j.number {
		j.count("unknown generation")
		return answer{}, fmt.Errorf("%w: it is %d, the newest is %d", errGeneration, generation, j.number)
	}
	verdict, err := j.gen.TakeOwn(rank, r, j.now())
	if err != nil {
		j.count("malformed")
		return answer{}, err
	}
	j.count(verdict.String())
	j.rouse()
	return answer{verdict.String(), j.sizes}, nil
}

// look returns the newest sizes. A round of single ranks may be over by now.
func (j *job) look() (export.Sizes, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.gen == nil {
		return export.Sizes{}, fmt.Errorf("%w: none has started", errGeneration)
	}
	j.rouse()
	return j.sizes, nil
}
