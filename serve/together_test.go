package serve

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/agent/export"
)

// own is a rank's report of its share.
func own(rank, round int, s export.Sizes, perSample float64) object {
	n := s.Nodes[rank]
	return object{"rank": rank, "round": round, "plan": s.Plan, "seconds": perSample * float64(n.Share), "samples": n.Share, "micro_steps": n.MicroSteps}
}

const together = "/v1/jobs/job/generations/1/reports"

// Reports of several ranks in a call do what they do one by one, wrong ones among them; and a journal of them is read back as it was.
func TestTogether(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 1))
		at := &clock{now: time.Unix(1e9, 0)}
		kept := openJournal(t, t.TempDir())
		apart, _ := newClient(t, Config{Clock: at.read})
		joint, s := newClient(t, Config{Clock: at.read, Journal: kept})
		const n = 12
		for _, c := range []*client{apart, joint} {
			c.do("PUT", "/v1/jobs/job", object{"quorum": "5", "grace": "20ms", "timeout": "1m"}, nil)
			c.start("job", "0123456789", 240, n)
		}
		rounds := [n]int{}
		var sizes export.Sizes
		apart.do("GET", "/v1/jobs/job/sizes", nil, &sizes)
		held := [n]export.Sizes{} // what each rank is at
		for i := range held {
			held[i] = sizes
		}
		for range 60 {
			at.now = at.now.Add(time.Duration(rng.IntN(30)) * time.Millisecond)
			var reports []object
			for _, i := range rng.Perm(n)[:1+rng.IntN(n)] {
				r := own(i, rounds[i], held[i], []float64{0.001, 0.002, 0.004}[i%3]*(0.9+0.2*rng.Float64()))
				switch rng.IntN(12) {
				case 0:
					r["samples"] = held[i].Nodes[i].Share + 1
				case 1:
					r["round"] = 1 << 40
				case 2:
					r["rank"] = n + rng.IntN(3)
				case 3:
					reports = append(reports, r) // and again
				case 4:
					r["samples"], r["micro_steps"], r["seconds"] = 0, 0, 0 // its work is lost
				}
				reports = append(reports, r)
			}
			var got answers
			if status := joint.do("POST", together, object{"reports": reports}, &got); status != http.StatusOK || len(got.Reports) != len(reports) {
				t.Fatalf("seed %d: %d, %d answers to %d reports", seed, status, len(got.Reports), len(reports))
			}
			for k, r := range reports {
				one := maps.Clone(r)
				delete(one, "rank")
				rank := r["rank"].(int)
				var a answer
				status := apart.do("POST", fmt.Sprintf("/v1/jobs/job/generations/1/ranks/%d/reports", rank), one, &a)
				want := a.Verdict
				if status == http.StatusUnprocessableEntity {
					want = "refused"
				}
				if g := got.Reports[k]; g.Rank != rank || g.Verdict != want || (g.Problem != "") != (want == "refused") {
					t.Fatalf("seed %d, %v: %+v, by itself %d %s", seed, r, g, status, want)
				}
				if want == "accepted" {
					rounds[rank]++
				}
			}
			var ofJoint export.Sizes
			sizes = export.Sizes{}
			apart.do("GET", "/v1/jobs/job/sizes", nil, &sizes)
			joint.do("GET", "/v1/jobs/job/sizes", nil, &ofJoint)
			if sizes.Plan != ofJoint.Plan || !slices.Equal(sizes.Nodes, ofJoint.Nodes) {
				t.Fatalf("seed %d: plan %d %v; one by one %d %v", seed, ofJoint.Plan, ofJoint.Nodes, sizes.Plan, sizes.Nodes)
			}
			for i := range held {
				if rng.IntN(4) > 0 {
					held[i] = sizes
				}
			}
		}
		a, b := apart.settle("job", 0), joint.settle("job", 0)
		if !maps.Equal(a.Reports, b.Reports) || a.Rounds != b.Rounds || a.Rounds < 10 || a.Reports["malformed"] == 0 || a.Reports["duplicate"] == 0 {
			t.Errorf("seed %d: %d rounds %v; one by one %d %v", seed, b.Rounds, b.Reports, a.Rounds, a.Reports)
		}
		s.Close()
		again, _ := newClient(t, Config{Clock: at.read, Journal: kept})
		if c := again.settle("job", 0); c.Plan != b.Plan || c.Rounds != b.Rounds || !slices.Equal(c.Ranks, b.Ranks) {
			t.Errorf("seed %d: read back %+v, was %+v", seed, c, b)
		}
	}
}

// The sizes in the answer are those of the call's ranks, each once, in rank order, after the newest decision that was due.
func TestTogetherSizes(t *testing.T) {
	c, _ := newClient(t, Config{})
	s := c.start("job", "0123456789", 400, 4).Sizes
	var a answers
	c.do("POST", together, object{"reports": []object{own(3, 0, s, 0.001), own(1, 0, s, 0.001), own(3, 0, s, 0.001), own(9, 0, export.Sizes{Plan: 1, Nodes: make([]export.Node, 10)}, 1)}}, &a)
	if len(a.Sizes.Nodes) != 2 || a.Sizes.Nodes[0] != s.Nodes[1] || a.Sizes.Nodes[1] != s.Nodes[3] || a.Sizes.GlobalBatch != 400 || a.Sizes.Plan != 1 {
		t.Errorf("%+v", a.Sizes)
	}
	for i, want := range []string{"accepted", "accepted", "duplicate", "refused"} {
		if a.Reports[i].Verdict != want {
			t.Errorf("report %d: %+v", i, a.Reports[i])
		}
	}
	if p := a.Reports[3].Problem; p != "rank is 9; this generation has ranks 0 to 3" {
		t.Error(p)
	}
	// A call of nothing but wrong reports has sizes, too.
	a = answers{}
	c.do("POST", together, object{"reports": []object{{"rank": 2, "round": 0, "plan": 1, "seconds": 1, "samples": 1 << 20, "micro_steps": 1}}}, &a)
	if len(a.Sizes.Nodes) != 1 || a.Sizes.Nodes[0] != s.Nodes[2] {
		t.Errorf("%+v", a)
	}
}

// A decision that one of the reports makes due comes before the next of them, so the sizes are those after it.
func TestTogetherDecides(t *testing.T) {
	c, _ := newClient(t, Config{})
	s := c.start("job", "0123456789", 400, 2).Sizes
	var a answers
	c.do("POST", together, object{"reports": []object{own(0, 0, s, 0.001), own(1, 0, s, 0.004), own(0, 1, s, 0.001)}}, &a)
	if a.Sizes.Plan != 2 || a.Sizes.Nodes[0].Share <= a.Sizes.Nodes[1].Share || a.Reports[2].Verdict != "early" {
		t.Errorf("%+v", a)
	}
}

// What cannot be is refused as a whole, or one by one; nothing of it changes the job.
func TestTogetherAttacks(t *testing.T) {
	c, _ := newClient(t, Config{Ranks: 64})
	first := c.start("job", "0123456789", 256, 4).Sizes
	sound := func() object { return own(0, 0, first, 0.001) }
	many := func(n int) []object { return slices.Repeat([]object{sound()}, n) }
	spoilt := func(key string, value any) []object {
		r := sound()
		r[key] = value
		return []object{r}
	}
	for name, x := range map[string]struct {
		path   string
		body   any
		status int
	}{
		"none":                {together, object{"reports": []object{}}, 422},
		"null":                {together, object{"reports": nil}, 422},
		"no list":             {together, object{"reports": sound()}, 422},
		"a null among them":   {together, object{"reports": []any{nil}}, 422},
		"no field":            {together, object{}, 422},
		"an unknown field":    {together, object{"reports": many(1), "clock": 1}, 422},
		"one of a report":     {together, object{"reports": spoilt("clock", 1)}, 422},
		"no rank":             {together, object{"reports": []object{{"round": 0, "plan": 1, "seconds": 1, "samples": 1, "micro_steps": 1}}}, 422},
		"a negative rank":     {together, object{"reports": spoilt("rank", -1)}, 422},
		"a rank of text":      {together, object{"reports": spoilt("rank", "0")}, 422},
		"half a round":        {together, object{"reports": spoilt("round", 0.5)}, 422},
		"a time of 10^9":      {together, object{"reports": spoilt("seconds", 1e9)}, 422},
		"a future plan":       {together, object{"reports": spoilt("plan", 2)}, 409},
		"generation 2":        {"/v1/jobs/job/generations/2/reports", object{"reports": many(1)}, 409},
		"generation 0":        {"/v1/jobs/job/generations/0/reports", object{"reports": many(1)}, 422},
		"no such job":         {"/v1/jobs/none/generations/1/reports", object{"reports": many(1)}, 409},
		"a name that is none": {"/v1/jobs/%20/generations/1/reports", object{"reports": many(1)}, 422},
		"more than 10,000":    {together, `{"reports":[` + strings.Repeat("1,", 10_000) + `1]}`, 422},
		"more than its ranks": {together, object{"reports": many(5000)}, 413},
		"10 MB":               {together, `{"reports":[` + strings.Repeat("null,", 2<<20) + `null]}`, 413},
		"deep":                {together, `{"reports":` + strings.Repeat("[", 50_000), 400},
		"cut off":             {together, `{"reports":[{"rank":0`, 400},
	} {
		before := c.settle("job", 0)
		if got := c.do("POST", x.path, x.body, nil); got != x.status {
			t.Errorf("%s: %d, want %d", name, got, x.status)
		}
		if after := c.settle("job", 0); after.Plan != before.Plan || after.Rounds != before.Rounds || !slices.Equal(after.Ranks, before.Ranks) {
			t.Errorf("%s changed the job: %+v", name, after)
		}
	}
	var a answers
	if got := c.do("POST", together, object{"reports": many(200)}, &a); got != http.StatusOK || a.Reports[0].Verdict != "accepted" || a.Reports[199].Verdict != "duplicate" || len(a.Sizes.Nodes) != 1 {
		t.Errorf("the same report 200 times: %d %+v", got, a.Sizes)
	}
	// A conflict of one is the call's; those before it are known when they come again.
	mixed := []object{own(1, 0, first, 0.001), spoilt("plan", 7)[0]}
	if got := c.do("POST", together, object{"reports": mixed}, nil); got != http.StatusConflict {
		t.Errorf("an unknown plan among sound reports: %d", got)
	}
	a = answers{}
	if c.do("POST", together, object{"reports": mixed[:1]}, &a); a.Reports[0].Verdict != "duplicate" {
		t.Errorf("%+v", a.Reports)
	}
	other := c.start("other", "0123456789", 256, 4).Sizes
	c.play("other", other, 0, 1, 1, 1, 1, 1)
	if got := c.do("POST", "/v1/jobs/other/generations/1/reports", object{"reports": many(1)}, nil); got != http.StatusConflict {
		t.Errorf("a job whose rank 0 reports for all: %d", got)
	}
}

// Many reports make several messages, none of which a NATS server would find too large.
func TestTogetherMessages(t *testing.T) {
	j := openJournal(t, t.TempDir())
	c, s := newClient(t, Config{Journal: j})
	const n = 2500
	sizes := c.start("job", "0123456789", 10*n, n).Sizes
	before, err := j.Last(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	var reports []object
	for i := range n {
		reports = append(reports, own(i, 0, sizes, 0.001*float64(1+i%3)))
	}
	if got := c.do("POST", together, object{"reports": reports}, nil); got != http.StatusOK {
		t.Fatal(got)
	}
	state := c.settle("job", 2)
	messages := 0
	if _, err := j.Read(t.Context(), "job", before, func(m []byte) error {
		if messages++; len(m) > 500_000 {
			t.Errorf("a message of %d bytes", len(m))
		}
		return nil
	}); err != nil || messages != 3 {
		t.Errorf("%d messages, %v", messages, err)
	}
	s.Close()
	again, _ := newClient(t, Config{Journal: j})
	if got := again.settle("job", 0); got.Plan != 2 || got.Rounds != 1 || !slices.Equal(got.Ranks, state.Ranks) {
		t.Errorf("read back: plan %d, %d rounds", got.Plan, got.Rounds)
	}
}

// A service that has just started takes a report that only a job of many ranks may send: the job is read before its size is judged.
func TestLargeReportAfterStart(t *testing.T) {
	j := openJournal(t, t.TempDir())
	c, s := newClient(t, Config{Journal: j})
	const n = 1500
	sizes := c.start("job", "0123456789", 10*n, n).Sizes
	s.Close()
	again, s := newClient(t, Config{Journal: j})
	pace := make([]float64, n)
	for i := range pace {
		pace[i] = 0.001 * float64(1+i%3)
	}
	var a answer
	if got := again.do("POST", "/v1/jobs/job/reports", report(sizes, 0, pace...), &a); got != http.StatusOK || a.Verdict != "accepted" {
		t.Errorf("%d %s", got, a.Verdict)
	}
	held := &load{done: make(chan struct{})}
	s.loads.open["slow"] = held
	if got := again.do("POST", "/v1/jobs/slow/reports", report(sizes, 0, pace...), nil); got != http.StatusServiceUnavailable {
		t.Errorf("of a job that is being read: %d", got)
	}
	delete(s.loads.open, "slow")
}
