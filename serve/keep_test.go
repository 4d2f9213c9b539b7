package serve

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/agent/export"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/serve/journal"
)

func openJournal(t testing.TB, dir string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(t.Context(), journal.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	return j
}

// clock is a test's time.
type clock struct{ now time.Time }

func (c *clock) read() time.Time { return c.now }

// memory is what of a job must be the same after it was read from its journal.
func (j *job) memory() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.decideAll()
	s := j.state()
	s.Reports = nil
	text, err := json.Marshal(struct {
		State  JobState
		Sizes  export.Sizes
		Plan   cluster.Plan
		At     time.Duration
		ID     string
		Ended  int
		Token  hash
		Limits map[int]int
	}{s, j.sizes, j.plan, j.at, j.id, len(j.ended), j.token, j.limits})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// pair is a service that is stopped now and then, and one that is not, which get the same requests at the same times.
type pair struct {
	t       *testing.T
	rng     *rand.Rand
	clock   clock
	config  Config
	dir     string
	journal *journal.Journal
	lives   *client // is never stopped, and keeps nothing
	dies    *client
	server  [2]*Server
}

func newPair(t *testing.T, seed uint64) *pair {
	t.Helper()
	p := &pair{t: t, rng: rand.New(rand.NewPCG(seed, 1)), dir: t.TempDir(), clock: clock{time.Unix(1_800_000_000, 0)}}
	p.config = Config{Clock: p.clock.read}
	p.lives, p.server[0] = newClient(t, p.config)
	p.start()
	return p
}

func (p *pair) start() {
	p.journal = openJournal(p.t, p.dir)
	c := p.config
	c.Journal = p.journal
	p.dies, p.server[1] = newClient(p.t, c)
}

func (p *pair) stop() {
	p.server[1].Close()
	p.journal.Close()
}

// refused is what of an answer need not be the same: of refused reports nothing is kept.
var refused = regexp.MustCompile(`"reports":\{[^}]*\},`)

// do sends a request to both; their answers must be the same.
func (p *pair) do(method, path string, body any) (int, answer) {
	p.t.Helper()
	var a, b json.RawMessage
	one, two := p.lives.do(method, path, body, &a), p.dies.do(method, path, body, &b)
	if one != two || refused.ReplaceAllString(string(a), "") != refused.ReplaceAllString(string(b), "") {
		p.t.Fatalf("%s %s %v:\n%d %s\nafter stops\n%d %s", method, path, body, one, a, two, b)
	}
	var out answer
	_ = json.Unmarshal(a, &out) // of other requests it is something else
	return one, out
}

func (p *pair) compare() {
	p.t.Helper()
	a, b := p.server[0].known("job"), p.server[1].known("job")
	if (a == nil) != (b == nil) {
		p.t.Fatal("one has the job")
	}
	if a == nil {
		return
	}
	if one, two := a.memory(), b.memory(); one != two {
		p.t.Fatalf("the job is\n%s\nafter stops\n%s", one, two)
	}
}

// A service that is stopped anywhere, and started anew on its journal, answers and decides to the bit as one that was not, whatever was
// reported: rounds of all ranks or of single ones, in order or not, memory that runs out, other settings, new process groups.
func TestStoppedAnywhere(t *testing.T) {
	stops := 0
	for seed := range uint64(6) {
		p := newPair(t, seed)
		rng := p.rng
		settings := object{"global_batch": 64}
		if seed%3 == 1 {
			settings["deadline"] = "auto"
		}
		own := seed%3 == 2
		if own {
			settings["timeout"], settings["quorum"] = "5s", "60%"
		}
		p.do("PUT", "/v1/jobs/job", settings)
		generation, round, nodes, plan := 0, 0, 0, export.Sizes{}
		rounds := make([]int, 8)
		for range 100 {
			p.clock.now = p.clock.now.Add(time.Duration(rng.IntN(3000)) * time.Millisecond)
			switch k := rng.IntN(20); {
			case generation == 0 || k == 0:
				nodes = 2 + rng.IntN(3)
				list := []object{}
				for i := range nodes {
					list = append(list, object{"name": fmt.Sprint("n", i)})
				}
				generation, round = generation+1, 0
				clear(rounds)
				id := fmt.Sprintf("start-%04d", generation)
				if status, _ := p.do("POST", "/v1/jobs/job/generations", object{"id": id, "ranks": list}); status != http.StatusCreated {
					t.Fatal(status)
				}
				p.do("POST", "/v1/jobs/job/generations", object{"id": id, "ranks": list}) // again
			case k == 1:
				p.do("PATCH", "/v1/jobs/job", object{"limits": object{"n0": 1 + rng.IntN(64), "n1": 1 + rng.IntN(64)}})
			case k == 2:
				p.do("PATCH", "/v1/jobs/job", object{"paused": rng.IntN(2) == 0, "objectives": object{"speed": 1, "waiting": rng.IntN(3)}})
			case k == 3:
				settings["global_batch"] = 32 + rng.IntN(64)
				p.do("PUT", "/v1/jobs/job", settings)
			case k == 4:
				p.do("POST", "/v1/jobs/job/generations", object{"id": "start-0001", "ranks": []object{{"name": "old"}}})
			case own && len(plan.Nodes) > 0:
				i := rng.IntN(nodes)
				body := object{"round": rounds[i], "plan": plan.Plan, "seconds": 0.1 + rng.Float64(), "samples": plan.Nodes[i].Share, "micro_steps": plan.Nodes[i].MicroSteps}
				if rng.IntN(12) == 0 {
					body["samples"], body["micro_steps"], body["out_of_memory"] = 0, 0, max(plan.Nodes[i].Share, 1)
				}
				if status, a := p.do("POST", fmt.Sprintf("/v1/jobs/job/generations/%d/ranks/%d/reports", generation, i), body); status == http.StatusOK && a.Verdict == "accepted" {
					rounds[i]++
				}
			case len(plan.Nodes) > 0:
				perSample := []float64{}
				for range plan.Nodes {
					perSample = append(perSample, 0.001+0.01*rng.Float64())
				}
				body := report(plan, round-rng.IntN(2)*rng.IntN(3), perSample...)
				body["plan"] = max(1, plan.Plan-rng.IntN(2)*rng.IntN(4))
				if i := rng.IntN(3 * nodes); i < nodes {
					body["ranks"].([]any)[i] = nil
				} else if i < nodes+2 {
					body["ranks"].([]any)[0] = object{"seconds": 0, "samples": 0, "micro_steps": 0, "out_of_memory": max(1, plan.Nodes[0].Share)}
				}
				if status, a := p.do("POST", "/v1/jobs/job/reports", body); status == http.StatusOK && a.Verdict == "accepted" {
					round++
				}
			}
			var newest export.Sizes
			if status := p.lives.do("GET", "/v1/jobs/job/sizes", nil, &newest); status == http.StatusOK {
				p.dies.do("GET", "/v1/jobs/job/sizes", nil, &plan)
			}
			p.compare()
			if rng.IntN(4) == 0 {
				stops++
				p.stop()
				p.start()
				p.compare()
			}
		}
		if p.server[0].known("job").rounds < 15 {
			t.Errorf("seed %d: %d rounds: the test does not show what it should", seed, p.server[0].known("job").rounds)
		}
		p.stop()
	}
	if stops < 100 {
		t.Errorf("%d stops", stops)
	}
}

// Two services of one journal: each takes any request, and none writes behind the other's back. Where one forgets, both do.
func TestTwoServices(t *testing.T) {
	j := openJournal(t, t.TempDir())
	a, one := newClient(t, Config{Journal: j})
	b, two := newClient(t, Config{Journal: j})
	s := a.start("job", "0123456789", 64, 2).Sizes
	for k := range 30 {
		c := []*client{a, b}[k/3%2]
		var got answer
		if status := c.do("POST", "/v1/jobs/job/reports", report(s, k, 0.001, 0.003), &got); status != http.StatusOK || got.Verdict != "accepted" {
			t.Fatalf("round %d: %d %+v", k, status, got)
		}
		if got.Sizes.Plan != k+1 { // that of the reports before, whoever took them
			t.Fatalf("round %d: plan %d", k, got.Sizes.Plan)
		}
		s = got.Sizes
	}
	if status := b.do("POST", "/v1/jobs/job/reports", report(s, 29, 0.001, 0.003), nil); status != http.StatusOK {
		t.Error(status)
	}
	if rounds := two.known("job").rounds; rounds != 30 {
		t.Errorf("%d rounds", rounds)
	}
	if s.Nodes[0].Share < 44 {
		t.Errorf("nothing was learnt: %+v", s.Nodes)
	}
	if status := a.do("DELETE", "/v1/jobs/job", nil, nil); status != http.StatusNoContent {
		t.Error(status)
	}
	if status := b.do("POST", "/v1/jobs/job/reports", report(s, 30, 0.001, 0.003), nil); status != http.StatusConflict {
		t.Errorf("a report of a job that another service removed: %d", status)
	}
	if one.known("job") != nil || two.known("job") != nil {
		t.Error("it is still there")
	}
}

// A journal that ends takes reports no more: none is called accepted. When it is back the job goes on where it was.
func TestJournalGone(t *testing.T) {
	dir := t.TempDir()
	j := openJournal(t, dir)
	c, s := newClient(t, Config{Journal: j})
	sizes := c.start("job", "0123456789", 64, 2).Sizes
	sizes = c.play("job", sizes, 0, 5, 0.001, 0.002)
	j.Close()
	for range 2 {
		if status := c.do("POST", "/v1/jobs/job/reports", report(sizes, 5, 0.001, 0.002), nil); status != http.StatusServiceUnavailable {
			t.Fatal(status)
		}
	}
	for path, want := range map[string]int{"/readyz": 503, "/livez": 200, "/healthz": 200, "/v1/jobs/job": 503} {
		if status := c.do("GET", path, nil, nil); status != want {
			t.Errorf("%s: %d", path, status)
		}
	}
	if status := c.do("PUT", "/v1/jobs/other", object{}, nil); status != http.StatusServiceUnavailable {
		t.Errorf("a new job: %d", status)
	}
	s.Close()
	c, _ = newClient(t, Config{Journal: openJournal(t, dir)})
	if status := c.do("GET", "/readyz", nil, nil); status != http.StatusOK {
		t.Error(status)
	}
	c.play("job", sizes, 5, 1, 0.001, 0.002) // was not accepted before
	if state := c.settle("job", 7); state.Rounds != 6 {
		t.Errorf("%+v", state)
	}
}

// What another version decided is not taken for what this one would: the generation ends, and its ranks register anew under the same id. A journal that
// cannot be read is an error of its job alone, which can still be deleted.
func TestOtherJournals(t *testing.T) {
	j := openJournal(t, t.TempDir())
	first := `{"version":1,"entries":[{"at":0,"create":{"created":"2026-01-01T00:00:00Z","settings":{"global_batch":64}}}]}`
	start := `{"version":1,"entries":[{"at":1,"start":{"id":"0123456789","ranks":[{"name":"a/0"},{"name":"a/1"}]}}]}`
	round := func(at int, plan int, sum uint64) string {
		return fmt.Sprintf(`{"version":1,"entries":[{"at":%d,"plan":%d,"sum":%d,"round":{"generation":1,"round":%d,"plan":1,"wait_seconds":1,"ranks":[{"seconds":1,"samples":32,"micro_steps":1},{"seconds":0.5,"samples":32,"micro_steps":1}]}}]}`, at, plan, sum, at)
	}
	even := sum(&cluster.Plan{Sizes: []int{32, 32}})
	for name, x := range map[string]struct {
		messages []string
		status   int // of the job
		rounds   int
		fresh    bool // the same id starts another generation
	}{
		"good":             {[]string{first, start, round(2, 1, even)}, 200, 1, false},
		"another-sum":      {[]string{first, start, round(2, 1, even+1), round(3, 2, 7)}, 200, 0, true},
		"another-plan":     {[]string{first, start, round(2, 2, even)}, 200, 0, true},
		"refused":          {[]string{first, start, strings.Replace(round(2, 1, even), `"samples":32`, `"samples":64`, 1)}, 200, 0, true},
		"newer":            {[]string{first, `{"version":2,"entries":[]}`}, 500, 0, false},
		"another-field":    {[]string{first, `{"version":1,"entries":[{"at":1,"stop":true}]}`}, 500, 0, false},
		"cut":              {[]string{first, start[:40]}, 500, 0, false},
		"headless":         {[]string{start}, 500, 0, false},
		"created-twice":    {[]string{first, first}, 500, 0, false},
		"no-job-but-empty": {[]string{`{"version":1,"entries":[]}`}, 404, 0, false},
	} {
		last := uint64(0)
		for _, m := range x.messages {
			var err error
			if last, err = j.Append(t.Context(), name, last, []byte(m)); err != nil {
				t.Fatal(err)
			}
		}
		s, err := New(t.Context(), Config{Journal: j})
		if err != nil {
			t.Fatal(err)
		}
		c := &client{t: quiet{t}, to: s.handler}
		var state JobState
		if status := c.do("GET", "/v1/jobs/"+name, nil, &state); status != x.status || state.Rounds != x.rounds {
			t.Errorf("%s: %d, %d rounds", name, status, state.Rounds)
		}
		if x.status == 200 {
			var got started
			want := map[bool]int{false: 1, true: 2}[x.fresh]
			if c.do("POST", "/v1/jobs/"+name+"/generations", object{"id": "0123456789", "ranks": []object{{"name": "a/0"}, {"name": "a/1"}}}, &got); got.Generation != want {
				t.Errorf("%s: generation %d, want %d", name, got.Generation, want)
			}
			c.play(name, got.Sizes, 5, 3, 0.001, 0.002)
			again, err := s.load(name)
			if err != nil || again.rounds != x.rounds+3 {
				t.Errorf("%s: read anew %v, %v", name, again, err)
			}
			again.close()
		}
		if x.status != 404 {
			if status := c.do("DELETE", "/v1/jobs/"+name, nil, nil); status != http.StatusNoContent {
				t.Errorf("%s: deleted with %d", name, status)
			}
		} else if err := j.Remove(t.Context(), name); err != nil {
			t.Error(err)
		}
		s.Close()
	}
}

// quiet is a test for which an answer of 500 is none of its errors.
type quiet struct{ *testing.T }

func (quiet) Errorf(string, ...any) {}
