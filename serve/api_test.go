package serve

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"evenkeel/agent/export"
)

type object = map[string]any

// start registers ranks a/0, a/1, ... and returns the answer.
func (c *client) start(job, id string, batch, ranks int) started {
	c.t.Helper()
	list := []object{}
	for i := range ranks {
		list = append(list, object{"name": fmt.Sprintf("a/%d", i)})
	}
	var out started
	if got := c.do("POST", "/v1/jobs/"+job+"/generations", object{"id": id, "global_batch": batch, "ranks": list}, &out); got != http.StatusCreated {
		c.t.Fatalf("registration: %d", got)
	}
	return out
}

// report is a body for a round of these sizes, in which rank i takes so many seconds per sample.
func report(s export.Sizes, round int, perSample ...float64) object {
	ranks, wait := []any{}, 0.0
	for i, n := range s.Nodes {
		seconds := float64(n.Share) * perSample[i]
		ranks = append(ranks, object{"seconds": seconds, "samples": n.Share, "micro_steps": n.MicroSteps})
		wait = max(wait, seconds)
	}
	return object{"generation": s.Generation, "round": round, "plan": s.Plan, "wait_seconds": wait, "ranks": ranks}
}

// settle waits until a plan is there.
func (c *client) settle(job string, plan int) JobState {
	c.t.Helper()
	for range 2000 {
		var s JobState
		if c.do("GET", "/v1/jobs/"+job, nil, &s); s.Plan >= plan {
			return s
		}
		time.Sleep(time.Millisecond)
	}
	c.t.Fatalf("no plan %d", plan)
	return JobState{}
}

// play reports rounds, each by the newest sizes.
func (c *client) play(job string, s export.Sizes, first, rounds int, perSample ...float64) export.Sizes {
	c.t.Helper()
	for k := range rounds {
		var a answer
		if got := c.do("POST", "/v1/jobs/"+job+"/reports", report(s, first+k, perSample...), &a); got != http.StatusOK || a.Verdict != "accepted" {
			c.t.Fatalf("round %d: %d, %s", first+k, got, a.Verdict)
		}
		c.settle(job, s.Plan+1)
		var newest export.Sizes
		c.do("GET", "/v1/jobs/"+job+"/sizes", nil, &newest)
		s = newest
	}
	return s
}

// A job of four ranks is at the best sizes within a few rounds, and what was gained is measured.
func TestJobIsTuned(t *testing.T) {
	c, _ := newClient(t, Config{})
	s := c.start("job", "0123456789", 256, 4).Sizes
	c.play("job", s, 0, 30, 0.001, 0.0015, 0.002, 0.004)
	state := c.settle("job", 0)
	best := 256 / (1000 + 1000/1.5 + 500 + 250)
	if wait := 256 / state.Recent.SamplesPerSecond; wait > 1.03*best || state.Rounds != 30 || state.Samples != 30*256 {
		t.Errorf("a round takes %.4f s, at best %.4f; %+v", wait, best, state)
	}
	if gain := state.Recent.SamplesPerSecond / state.First.SamplesPerSecond; gain < 2.3 || state.Recent.Idle > 0.05 || state.First.Idle < 0.4 {
		t.Errorf("gained %.2f: %+v, %+v", gain, state.First, state.Recent)
	}
}
