package serve

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"evenkeel/agent/export"
	"evenkeel/cluster"
	"evenkeel/internal/badinput"
)

// atOnce is how many calls of a job are under way at most where its ranks report for themselves.
const atOnce = 64

// owns are the ranks of a job that report for themselves.
type owns struct {
	*ranks
	reported []int // by rank: reports that were answered

	mu     sync.Mutex
	failed error // of the first call that was given up
}

// report hands in what each rank with a share did, and returns the sizes that follow.
func (o *owns) report(ctx context.Context, s *export.Sizes, report *cluster.Report, patience time.Duration) (export.Sizes, error) {
	o.failed = nil
	var all sync.WaitGroup
	room := make(chan struct{}, atOnce)
	for i := range s.Nodes {
		if s.Nodes[i].Share == 0 {
			continue
		}
		x := map[string]any{"round": o.reported[i], "plan": s.Plan, "seconds": 0, "samples": 0, "micro_steps": 0}
		if n := &report.Nodes[i]; n.OOM {
			x["out_of_memory"] = max(s.Nodes[i].MicroBatch, 1)
		} else if n.Status == cluster.In {
			x["seconds"], x["samples"], x["micro_steps"] = n.Seconds, n.Samples, max(n.Steps, 1)
			x["pause_seconds"] = n.Pause
		}
		o.reported[i]++
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			if err := o.send(ctx, fmt.Sprintf("/generations/%d/ranks/%d/reports", s.Generation, i), x, patience); err != nil {
				o.mu.Lock()
				defer o.mu.Unlock()
				if o.failed == nil {
					o.failed = err
				}
			}
		})
	}
	all.Wait()
	if o.failed != nil {
		return *s, o.failed
	}
	var newest export.Sizes
	err := o.again(ctx, patience, func() error {
		newest = export.Sizes{}
		return o.to.do(ctx, http.MethodGet, o.Job, "/sizes", nil, &newest)
	})
	return newest, err
}

// send sends a rank's report until there is an answer: the round waits for it.
func (o *owns) send(ctx context.Context, path string, body map[string]any, patience time.Duration) error {
	return o.again(ctx, patience, func() error {
		var a struct{ Verdict string }
		begun := time.Now()
		if err := o.to.do(ctx, http.MethodPost, o.Job, path, body, &a); err != nil {
			return err
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.answers = append(o.answers, time.Since(begun).Seconds())
		o.Verdicts[a.Verdict]++
		return nil
	})
}

// again calls until there is an answer, at longer and longer intervals, or patience is over.
func (r *ranks) again(ctx context.Context, patience time.Duration, call func() error) error {
	begun := time.Now()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := call()
		if ctx.Err() != nil || badinput.Is(err) || err != nil && time.Since(begun)+pause > patience {
			return err
		}
		if r.to.heard(err); err == nil {
			return nil
		}
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}
