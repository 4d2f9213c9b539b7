package serve

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"evenkeel/agent/export"
)

// A job of equal micro-steps gets shares of so many, from first to last and after a restart; its memory is that of a micro-step.
func TestEqualSteps(t *testing.T) {
	config := Config{Journal: openJournal(t, t.TempDir()), every: 1 << 30}
	c, s := newClient(t, config)
	ranks := []object{{"name": "a", "micro_batch": object{"most": 9}}, {"name": "b", "micro_batch": object{"least": 2}}, {"name": "c", "micro_batch": object{"least": 2, "most": 20}}}
	body := object{"id": "0123456789", "global_batch": 90, "equal_steps": 4, "ranks": ranks}
	var began started
	if status := c.do("POST", "/v1/jobs/job/generations", body, &began); status != http.StatusCreated {
		t.Fatal(status)
	}
	check := func(sizes export.Sizes) {
		t.Helper()
		if err := sizes.Validate(); err != nil || sizes.EqualSteps != 4 {
			t.Fatalf("%v: %+v", err, sizes)
		}
		for i, n := range sizes.Nodes {
			least := []int{4, 8, 8}[i]
			if n.Share > 0 && (n.MicroSteps != 4 || n.MicroBatch != (n.Share+3)/4 || n.Share < least) || i == 0 && n.Share > 36 || i == 2 && n.Share > 80 {
				t.Fatalf("%+v", n)
			}
		}
	}
	check(began.Sizes)
	paces := []float64{0.001, 0.009, 0.003}
	sizes := c.play("job", began.Sizes, 0, 8, paces...)
	check(sizes)
	if sizes.Nodes[0].Share != 36 || sizes.Nodes[2].Share < 30 {
		t.Errorf("nothing was learnt: %+v", sizes.Nodes)
	}
	for range 2 { // without a snapshot, and with one
		s.Close()
		c, s = newClient(t, config)
		var again started
		if status := c.do("POST", "/v1/jobs/job/generations", body, &again); status != http.StatusCreated || again.Sizes.Plan < sizes.Plan {
			t.Fatal(status, again.Sizes.Plan)
		}
		check(again.Sizes)
		sizes = c.play("job", again.Sizes, 8+again.Sizes.Plan, 3, paces...)
		check(sizes)
		j := s.known("job")
		j.mu.Lock()
		j.journal.snap(j.snapshot())
		j.mu.Unlock()
	}
	c.do("PATCH", "/v1/jobs/job", object{"limits": object{"a": 2}}, nil)
	if sizes = c.play("job", sizes, 100, 2, paces...); sizes.Nodes[0].Share != 8 {
		t.Errorf("a limit of 2: %+v", sizes.Nodes)
	}
	check(sizes)
}

// The setting holds for starts that say nothing; what cannot be names its field.
func TestEqualStepsOfAStart(t *testing.T) {
	c, s := newClient(t, Config{})
	c.do("PUT", "/v1/jobs/job", object{"global_batch": 30, "equal_steps": 3}, nil)
	for k, x := range []struct {
		more object
		want string // "": taken
		n    int
	}{
		{object{}, "", 3}, {object{"equal_steps": 5}, "", 5}, {object{}, "", 3},
		{object{"equal_steps": -1}, "equal_steps", 0}, {object{"equal_steps": 16385}, "equal_steps", 0}, {object{"equal_steps": 31}, "lower equal_steps", 0},
		{object{"deadline": "auto"}, "equal_steps is 3, but ranks that end at a deadline", 0},
		{object{"ranks": []object{{"name": "a", "micro_batch": object{"sizes": []int{4}}}}}, "multiples of 12", 0},
		{object{"ranks": []object{{"name": "a", "micro_batch": object{"sizes": []int{4, 9}}}, {"name": "b", "micro_batch": object{"sizes": []int{4, 9}}}}}, "do not sum to 30", 0},
	} {
		body := object{"id": fmt.Sprint("start no. ", k), "ranks": []object{{"name": "a"}, {"name": "b"}}}
		for k, v := range x.more {
			body[k] = v
		}
		var out started
		status := c.do("POST", "/v1/jobs/job/generations", body, &out)
		if state, _ := s.Job("job"); (status == http.StatusCreated) != (x.want == "") || !strings.Contains(state.Problem, x.want) || out.Sizes.EqualSteps != x.n {
			t.Errorf("%v: %d, %q, %+v", x.more, status, state.Problem, out.Sizes)
		}
	}
}
