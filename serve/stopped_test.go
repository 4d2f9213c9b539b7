package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"testing"
	"time"

	"evenkeel/agent/export"
	"evenkeel/cluster"
	"evenkeel/internal/state"
	"evenkeel/serve/journal"
	"os"
)

// clock is a test's time.
type clock struct{ now time.Time }

func (c *clock) read() time.Time { return c.now }

// memory is what of a job must be the same after it was read from its journal.
func (j *job) memory() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.decideAll()
	s := j.state(true)
	s.Reports = nil
	var all [5][]byte
	if j.gen.runs() {
		for i, keep := range []func() ([]byte, error){
			j.gen.rounds.Keep, func() ([]byte, error) { return state.Encode(j.gen.agent) }, func() ([]byte, error) { return state.Encode(j.gen.control) }, func() ([]byte, error) { return state.Encode(&j.record.paces) },
			j.record.history.Keep,
		} {
			var err error
			if all[i], err = keep(); err != nil {
				panic(err)
			}
		}
	}
	text, err := json.Marshal(struct {
		State  JobState
		Sizes  export.Sizes
		Plan   cluster.Plan
		At     time.Duration
		ID     string
		Ended  int
		Tokens []token
		Limits map[int]int
		All    [5][]byte
	}{s, j.gen.sizes, j.gen.plan, j.at, j.gen.id, len(j.ended), j.tokens.all(), j.gen.limits, all})
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
	every   int // messages between snapshots
}

func newPair(t *testing.T, seed uint64) *pair {
	t.Helper()
	p := &pair{t: t, rng: rand.New(rand.NewPCG(seed, 1)), dir: t.TempDir(), clock: clock{time.Unix(1_800_000_000, 0)}, every: []int{1 << 30, 1, 2, 3, 7, 20}[seed%6]}
	p.config = Config{Clock: p.clock.read}
	p.lives, p.server[0] = newClient(t, p.config)
	p.start()
	return p
}

func (p *pair) start() {
	p.journal = openJournal(p.t, p.dir)
	c := p.config
	c.Journal, c.every = p.journal, p.every
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
	a := p.server[0].known("job")
	b, err := p.server[1].find("job")
	if err != nil && !errors.Is(err, errNoJob) {
		p.t.Fatal(err)
	}
	if (a == nil) != (b == nil) {
		p.t.Fatal("one has the job")
	}
	if a == nil {
		return
	}
	if one, two := a.memory(), b.memory(); one != two {
		at := 0
		for at < min(len(one), len(two)) && one[at] == two[at] {
			at++
		}
		p.t.Logf("from byte %d of %d and %d on: %.200s; %.200s", at, len(one), len(two), one[at:], two[at:])
		p.t.Fatalf("the job is\n%s\nafter stops\n%s", one, two)
	}
}

// A service that is stopped anywhere, and started anew on its journal, answers and decides to the bit as one that was not, whatever was
// reported: rounds of all ranks or of single ones, in order or not, memory that runs out, other settings, new process groups.
func TestStoppedAnywhere(t *testing.T) {
	stops, seeds := 0, uint64(3) // waiting for all, a deadline, ranks that report for themselves
	if os.Getenv("EVENKEEL_SLOW") != "" {
		seeds = 6
	}
	for seed := range seeds {
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
		for range 16 * seeds {
			p.clock.now = p.clock.now.Add(time.Duration(rng.IntN(3000)) * time.Millisecond)
			if rng.IntN(10) == 0 { // somebody sets it back
				p.clock.now = p.clock.now.Add(-time.Duration(rng.IntN(20)) * time.Second)
			}
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
		if p.server[0].known("job").record.rounds < 10 {
			t.Errorf("seed %d: %d rounds: the test does not show what it should", seed, p.server[0].known("job").record.rounds)
		}
		p.stop()
	}
	if stops < 10*int(seeds) {
		t.Errorf("%d stops", stops)
	}
}
