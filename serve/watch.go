package serve

import (
	"cmp"
	"context"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/sse"

	"evenkeel/serve/history"
)

const (
	watchEvery   = time.Second      // between two events at least
	watchAnyway  = 10 * time.Second // an event comes after so long though nothing happened
	watchLongest = 10 * time.Minute // then the client asks again: its token may no longer be good
	maxStreams   = 100
)

// watched is an event.
type watched struct {
	Epoch int64     `json:"epoch" doc:"Epoch of the ids of events; send it with the header Last-Event-ID, as ids of another epoch mean nothing"`
	Now   time.Time `json:"now" doc:"Time on the service's clock"`
	Job   JobState  `json:"job" doc:"The job, without its ranks"`
	history.View
}

// streams are the open streams of events.
type streams struct {
	open  atomic.Int32
	ended chan struct{} // closed when the service ends
	end   sync.Once
}

func (s *streams) close() { s.end.Do(func() { close(s.ended) }) }

// rankWhy is why a rank has its share.
type rankWhy struct {
	Name    string   `json:"name"`
	Device  string   `json:"device"`
	Changed float64  `json:"changed" doc:"When the rank's share last changed by more than 5%, in seconds since the job was created"`
	Why     string   `json:"why" doc:"Why the rank's share last changed, in words"`
	Details []string `json:"details" nullable:"false" doc:"What the newest decision about the rank rests on"`
}

func (s *Server) watchRoutes(api huma.API) {
	watch := s.operation("watch", http.MethodGet, "/v1/jobs/{job}/events", "Watch a job: server-sent events, one a second at most", 404, 503)
	watch.Description = "Each event has what is new since the one before. A client that lost its connection goes on where it was if it sends the id of its last event as Last-Event-ID."
	watch.Middlewares = huma.Middlewares{s.admit(api)}
	type input struct {
		Job   string `path:"job" minLength:"1" maxLength:"63" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" patternDescription:"letters, digits and, not first, . _ -" example:"job"`
		Last  int    `header:"Last-Event-ID" minimum:"0" doc:"Id of the last event received; 0 or absent: send everything that is kept"`
		Epoch int64  `query:"epoch" minimum:"0" doc:"Epoch of that event; 0 or absent: the job's"`
	}
	sse.Register(api, watch, map[string]any{"job": watched{}}, func(ctx context.Context, in *input, send sse.Sender) {
		s.watch(ctx, in.Job, in.Last, in.Epoch, send)
	})
	huma.Register(api, s.operation("get-history", http.MethodGet, "/v1/jobs/{job}/history", "The rounds of a job's whole life, several to a point", 404, 503),
		func(_ context.Context, in *jobPath) (*struct{ Body history.Rounds }, error) {
			j, err := s.fresh(in.Job)
			if err != nil {
				return nil, problem(err)
			}
			j.mu.Lock()
			defer j.mu.Unlock()
			return answered(j.record.history.Whole(), nil)
		})
	huma.Register(api, s.operation("explain", http.MethodGet, "/v1/jobs/{job}/ranks/{rank}", "Why a rank has its share", 404, 503), func(_ context.Context, in *struct {
		Job  string `path:"job" minLength:"1" maxLength:"63" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" patternDescription:"letters, digits and, not first, . _ -" example:"job"`
		Rank int    `path:"rank" minimum:"0" doc:"Number of the rank, from 0"`
	}) (*struct{ Body rankWhy }, error) {
		j, err := s.fresh(in.Job)
		if err != nil {
			return nil, problem(err)
		}
		why, ok := j.why(in.Rank)
		if !ok {
			return nil, huma.Error404NotFound("no such rank; GET /v1/jobs/{job} lists the ranks")
		}
		return answered(why, nil)
	})
}

// admit bounds the number of open streams, and refuses those of unknown jobs. A client that is refused does not keep its connection.
func (s *Server) admit(api huma.API) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		refuse := func(err huma.StatusError) {
			ctx.SetHeader("Connection", "close")
			_ = huma.WriteErr(api, ctx, err.GetStatus(), err.Error())
		}
		defer s.streams.open.Add(-1)
		if s.streams.open.Add(1) > maxStreams {
			ctx.SetHeader("Retry-After", "10")
			refuse(huma.Error503ServiceUnavailable("too many event streams are open; close one, or poll GET /v1/jobs/{job}"))
			return
		}
		if _, err := s.fresh(ctx.Param("job")); err != nil {
			refuse(problem(err).(huma.StatusError)) //nolint:errorlint // problem makes no other
			return
		}
		next(ctx)
	}
}

// watch sends events of a job until ctx is done, the service ends, the job is gone, or the client has to ask again.
func (s *Server) watch(ctx context.Context, name string, last int, epoch int64, send sse.Sender) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var before watched
	for begun, sent := time.Now(), (time.Time{}); time.Since(begun) < watchLongest; {
		j, err := s.fresh(name)
		if err != nil {
			return
		}
		w := j.watched(last, epoch)
		if quiet := time.Since(sent) < watchAnyway; !quiet || w.Seq != last || w.Complete || !reflect.DeepEqual(w.Job, before.Job) {
			if send(sse.Message{ID: w.Seq, Data: w}) != nil {
				return
			}
			sent = time.Now()
		}
		last, epoch, before = w.Seq, w.Epoch, w
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		case <-s.streams.ended:
			return
		}
	}
}

// watched is the event for a client that has all events up to a number of an epoch (0: this one).
func (j *job) watched(after int, epoch int64) watched {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.decideAll()
	own := j.born.UnixMicro()
	if cmp.Or(epoch, own) != own {
		after = 0
	}
	return watched{Epoch: own, Now: j.config.Clock(), Job: j.state(false), View: j.record.history.View(after)}
}

// why explains a rank's share; false if there is no such rank.
func (j *job) why(rank int) (rankWhy, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.decideAll()
	if !j.gen.runs() || rank >= len(j.gen.nodes()) {
		return rankWhy{}, false
	}
	n := &j.gen.nodes()[rank]
	w := rankWhy{Name: n.Name, Device: n.Device}
	w.Changed, w.Why = j.record.history.Node(rank)
	e := j.gen.agent.Explain(rank)
	j.gen.control.Explain(&e, rank)
	w.Details = history.Details(&e)
	return w, true
}
