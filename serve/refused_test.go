package serve

import (
	"net/http"
	"strings"
	"testing"
)

// A job says why its newest registration was refused, until one is taken or a round comes in. Who may not register says nothing.
func TestRefusedRegistration(t *testing.T) {
	c, s := newClient(t, Config{})
	if _, err := s.CreateJob("job", Settings{}); err != nil {
		t.Fatal(err)
	}
	register := func(body string) int { return c.do("POST", "/v1/jobs/job/generations", body, nil) }
	const began = "the registration of the process group was refused: "
	for _, x := range []struct {
		body   string
		status int
		want   string
	}{
		{`{"id":"12345678","global_batch":8,"deadline":"soon","ranks":[{"name":"a"}]}`, 422, began + `deadline is "soon"; write a duration`},
		{`{"id":"12345678","global_batch":8,"deadline":5,"ranks":[{"name":"a"}]}`, 422, began + `deadline expected string`}, // by the schema
		{`{"id":"12345678","global_batch":8,"ranks":[{"name":"a"},{"name":"a"}]}`, 422, began + `ranks[1].name "a" is also the name of rank 0`},
		{`{"id":"12345678","global_batch":8,"ranks":[{"name":"a"}],"` + "\u001b" + strings.Repeat("x", 1000) + `":1}`, 0, began},
		{`{"id":"12345678","global_batch":8,"ranks":[{"name":"a"}]}`, 201, ""},
	} {
		if status := register(x.body); x.status != 0 && status != x.status {
			t.Errorf("%s: status %d, want %d", x.body, status, x.status)
		}
		state, _ := s.Job("job")
		if !strings.HasPrefix(state.Problem, x.want) || x.want == "" && state.Problem != "" || len(state.Problem) > len(began)+said+50 || strings.Contains(state.Problem, "\x1b") {
			t.Errorf("%.80s: problem %q, want %q", x.body, state.Problem, x.want)
		}
	}
	if status := register(`{"id":"another one","global_batch":0,"ranks":[{"name":"a"}]}`); status != 422 {
		t.Fatal(status)
	}
	if state, _ := s.Job("job"); !strings.HasPrefix(state.Problem, began+"global_batch is 0") {
		t.Error(state.Problem)
	}
	report := `{"generation":1,"round":0,"plan":1,"wait_seconds":1,"ranks":[{"seconds":1,"samples":8,"micro_steps":1}]}`
	if status := c.do("POST", "/v1/jobs/job/reports", report, nil); status != http.StatusOK {
		t.Fatal(status)
	}
	if state, _ := s.Job("job"); state.Problem != "" {
		t.Errorf("a process group runs, and the problem is %q", state.Problem)
	}
	s.Job("no such job")
	if status := c.do("POST", "/v1/jobs/other/generations", `{}`, nil); status != 422 {
		t.Error(status)
	}
}
