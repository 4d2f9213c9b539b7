package serve

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"evenkeel/agent/export"
	"evenkeel/cluster"
)

// shares are those of the newest sizes.
func (s JobState) shares() []int {
	var out []int
	for _, r := range s.Ranks {
		out = append(out, r.Share)
	}
	return out
}

// Weights, limits and a pause take effect at once; what is wrong changes nothing.
func TestChange(t *testing.T) {
	var events []Event
	c, _ := newClient(t, Config{Each: func(e Event) { events = append(events, e) }})
	s := c.start("job", "0123456789", 240, 2).Sizes
	s = c.play("job", s, 0, 10, 0.001, 0.002)
	for name, x := range map[string]struct {
		body object
		want int
	}{
		"no rank":         {object{"limits": object{"b": 8}, "paused": true}, 422},
		"limit 0":         {object{"limits": object{"a/0": 0}, "paused": true}, 422},
		"energy":          {object{"objectives": object{"energy": 1}, "paused": true}, 422},
		"negative weight": {object{"objectives": object{"speed": -1}, "paused": true}, 422},
		"another field":   {object{"pause": true}, 422},
	} {
		if got := c.do("PATCH", "/v1/jobs/job", x.body, nil); got != x.want {
			t.Errorf("%s: %d, want %d", name, got, x.want)
		}
	}
	if state := c.settle("job", 0); state.Paused || state.Objectives != (Weights{}) {
		t.Errorf("%+v", state)
	}
	c.do("PATCH", "/v1/jobs/job", object{"limits": object{"a/0": 8}, "objectives": object{"speed": 1, "waiting": 2}}, nil)
	s = c.play("job", s, 10, 2, 0.001, 0.002)
	if n := s.Nodes[0]; n.MicroBatch != 8 || n.MicroSteps < 15 {
		t.Errorf("a limit of 8: %+v", n)
	}
	if e := events[len(events)-2]; e.Limits[0] != 8 || e.Weights != (cluster.Objectives{Speed: 1, Waiting: 2}) || e.Ran.Number != e.Report.Plan {
		t.Errorf("told as %+v", e)
	}
	if e := events[len(events)-1]; e.Limits != nil {
		t.Errorf("told again: %+v", e.Limits)
	}
	c.do("PATCH", "/v1/jobs/job", object{"paused": true}, nil)
	before := c.settle("job", 0)
	for k := range 5 {
		if got := c.do("POST", "/v1/jobs/job/reports", report(s, 12+k, 0.004, 0.001), nil); got != http.StatusOK {
			t.Fatal(got)
		}
	}
	if after := c.settle("job", 0); after.Plan != before.Plan || after.Rounds != 17 || !slices.Equal(after.shares(), before.shares()) {
		t.Errorf("paused: %+v, before %+v", after, before)
	}
	c.do("PATCH", "/v1/jobs/job", object{"paused": false}, nil)
	c.play("job", s, 20, 10, 0.004, 0.001)
	if got := c.settle("job", 0).shares(); got[0] > 70 {
		t.Errorf("afterwards: %v", got)
	}
}

// A registration's settings are its own: the next start has the job's again.
func TestSettingsOfAStart(t *testing.T) {
	c, _ := newClient(t, Config{})
	c.do("PUT", "/v1/jobs/job", object{"global_batch": 30, "objectives": object{"waiting": 1}}, nil)
	begin := func(id string, more object) (JobState, int) {
		body := object{"id": id, "ranks": []object{{"name": "a"}, {"name": "b"}}}
		for k, v := range more {
			body[k] = v
		}
		status := c.do("POST", "/v1/jobs/job/generations", body, nil)
		return c.settle("job", 0), status
	}
	if s, _ := begin("first----", object{"global_batch": 60, "deadline": "auto"}); s.GlobalBatch != 60 || s.Deadline != "auto" || s.Objectives.Waiting != 1 {
		t.Errorf("%+v", s)
	}
	if s, _ := begin("second---", nil); s.GlobalBatch != 30 || s.Deadline != "" || s.Generation != 2 {
		t.Errorf("%+v", s)
	}
	for name, bad := range map[string]object{
		"no such deadline": {"deadline": "soon"}, "no batch": {"global_batch": -1}, "ranks of one name": {"ranks": []object{{"name": "a"}, {"name": "a"}}},
		"no ranks": {"ranks": []object{}}, "a batch below the least": {"ranks": []object{{"name": "a", "micro_batch": object{"least": 64}}}},
	} {
		if s, status := begin("third----", bad); status != 422 || s.Generation != 2 {
			t.Errorf("%s: %d, %+v", name, status, s)
		}
	}
	if s := c.settle("job", 0); s.Reports["malformed"] < 2 {
		t.Errorf("%v", s.Reports)
	}
}

// Ranks that report one by one are tuned as well: a round is over with the quorum and the grace, and the slow rank, whose
// gradient comes in a later round, gets less.
func TestOwnReports(t *testing.T) {
	var mu sync.Mutex
	now := time.Unix(1e9, 0)
	wait := func(d time.Duration) {
		mu.Lock()
		now = now.Add(d)
		mu.Unlock()
	}
	c, _ := newClient(t, Config{Clock: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}})
	c.do("PUT", "/v1/jobs/job", object{"quorum": "2", "grace": "1ms"}, nil)
	s := c.start("job", "0123456789", 120, 3).Sizes
	next, paused, pause := [3]int{}, 0.0, 0.0
	send := func(rank int, s export.Sizes, want string) {
		t.Helper()
		var a answer
		n := s.Nodes[rank]
		path := fmt.Sprintf("/v1/jobs/job/generations/1/ranks/%d/reports", rank)
		body := object{"round": next[rank], "plan": s.Plan, "seconds": []float64{0.001, 0.001, 0.004}[rank] * float64(n.Share), "samples": n.Share, "micro_steps": n.MicroSteps}
		if rank == 0 {
			body["seconds"], body["pause_seconds"] = 0.001*float64(n.Share)+paused, pause
		}
		if got := c.do("POST", path, body, &a); got != http.StatusOK || a.Verdict != want {
			t.Fatalf("rank %d of plan %d: %d, %s; want %s", rank, s.Plan, got, a.Verdict, want)
		}
		if a.Verdict == "accepted" {
			next[rank]++
		}
	}
	slow := s // what rank 2 is at
	aged := 0
	before := 0
	for round := range 12 {
		paused, pause = pause, 0
		if round == 10 {
			pause, before = 0.025, s.Nodes[0].Share
		}
		wait(time.Duration(s.Nodes[0].Share)*time.Millisecond + time.Duration(paused*1e9))
		send(0, s, "accepted")
		if round%3 == 2 && slow.Nodes[2].Share > 0 {
			send(2, slow, "accepted")
			aged++
		}
		send(1, s, "accepted")
		send(0, s, "early")
		wait(2 * time.Millisecond)
		plan := s.Plan
		for range 2000 { // looking, too, ends a round whose time is over
			var newest export.Sizes
			c.do("GET", "/v1/jobs/job/sizes", nil, &newest)
			if s = newest; s.Plan > plan {
				break
			}
			time.Sleep(100 * time.Microsecond)
		}
		if s.Plan != plan+1 {
			t.Fatalf("round %d: plan %d after %d", round, s.Plan, plan)
		}
		if round%3 == 2 {
			slow = s
		}
		if share := s.Nodes[0].Share; round == 10 && share > before-8 || round == 11 && share < before-8 {
			t.Errorf("after round %d rank 0 has a share of %d instead of %d", round, share, before)
		}
	}
	state := c.settle("job", 0)
	if state.Ranks[2].Share >= state.Ranks[0].Share/2 || state.Reports["early"] != 12 || state.Rounds != 12 || aged < 2 {
		t.Errorf("aged %d: %+v", aged, state)
	}
	if got := c.do("POST", "/v1/jobs/job/reports", report(s, 0, 1, 1, 1), nil); got != http.StatusConflict {
		t.Errorf("a report of all ranks: %d", got)
	}
	for path, want := range map[string]int{"/v1/jobs/job/generations/2/ranks/0/reports": 409, "/v1/jobs/job/generations/1/ranks/3/reports": 422} {
		if got := c.do("POST", path, object{"round": 99, "plan": s.Plan, "seconds": 1, "samples": 1, "micro_steps": 1}, nil); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
}
