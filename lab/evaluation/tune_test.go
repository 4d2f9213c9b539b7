package evaluation

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"evenkeel/agent"
	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/env"
	"evenkeel/internal/agenttest"
	"evenkeel/internal/badinput"
)

func TestPointsOfAGrid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p Spec
		for a := range rapid.IntRange(0, 4).Draw(t, "params") {
			p.Hyperparameters = append(p.Hyperparameters, numbers(fmt.Sprint("parameter", a), 0, []float64{0, 0.5, 1, 2, 4}[:rapid.IntRange(1, 5).Draw(t, "values")]...))
		}
		point := rapid.IntRange(0, p.Points()-1).Draw(t, "point")
		at := split(p.Hyperparameters, point)
		if join(p.Hyperparameters, at) != point {
			t.Fatalf("point %d: %v, and back %d", point, at, join(p.Hyperparameters, at))
		}
		first := rapid.IntRange(0, len(p.Hyperparameters)).Draw(t, "first")
		end := rapid.IntRange(first, len(p.Hyperparameters)).Draw(t, "end")
		// The dumb way: all points that agree with it elsewhere.
		var want []int
		for k := range p.Points() {
			other := split(p.Hyperparameters, k)
			if slices.Equal(other[:first], at[:first]) && slices.Equal(other[end:], at[end:]) {
				want = append(want, k)
			}
		}
		if got := block(p.Hyperparameters, point, first, end); !slices.Equal(got, want) {
			t.Fatalf("params %d to %d through %d: %v, want %v", first, end, point, got, want)
		}
	})
}

func TestTextOfAPoint(t *testing.T) {
	p := tunedKofN()
	var start []int
	for _, a := range p.Hyperparameters {
		start = append(start, a.Start)
	}
	if got, want := p.Text(join(p.Hyperparameters, start)), "quorum 0.8, grace 0.05, gain 0.35, margin 0.5, threshold 0"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	q := tunedProportional()
	if got, want := q.Text(5), "every 10 rounds, dead band 0.2"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// dealt deals the batch by fixed weights.
type dealt struct {
	cluster *cluster.Cluster
	weights []float64
	alloc   cluster.Allocator
}

func (p *dealt) Decide(_ *cluster.Report, present []bool, plan *cluster.Plan) error {
	return p.alloc.Proportional(p.cluster, present, p.weights, plan.Sizes)
}

// skewed is a spec with a hyperparameter for each of four equal nodes, which gives it more or
// less than it should get. tried collects the points that were played.
func skewed(tried map[int]bool) Spec {
	weights := []float64{0.4, 0.7, 1, 1.6}
	var mu sync.Mutex
	var params []Hyperparameter
	for i := range 4 {
		params = append(params, numbers(fmt.Sprint("node ", i), 0.4, weights...))
	}
	return tuned("skewed", "a test's", params, func(c *cluster.Cluster, at []int) agent.Policy {
		mu.Lock()
		defer mu.Unlock()
		tried[join(params, at)] = true
		p := dealt{cluster: c}
		for _, v := range at {
			p.weights = append(p.weights, weights[v])
		}
		return &p
	})
}

// Coordinate descent finds equal shares among 256 points by trying few of them: the best
// point, as trying all shows.
func TestCoordinateDescent(t *testing.T) {
	c := agenttest.Lines(t, 400, 0.1, 0.1, 0.1, 0.1)
	tried := map[int]bool{}
	p := skewed(tried)
	if p.whole() {
		t.Fatal("the grid is searched as a whole")
	}
	runs := 0
	config := Config{TuneSeeds: 2, Rounds: 5, Progressed: func(done, total int) {
		if runs = done; done > total {
			t.Errorf("%d runs of %d", done, total)
		}
	}}
	cs, sc := Case{"four", c, agenttest.Speed}, Scenario{Name: "ideal"}
	point, err := Tune(context.Background(), config, cs, sc, &p)
	if err != nil {
		t.Fatal(err)
	}
	if len(tried) > p.mostTried() || runs != 2*len(tried) {
		t.Errorf("%d points tried in %d runs, at most %d points", len(tried), runs, p.mostTried())
	}
	at := split(p.Hyperparameters, point)
	if slices.Min(at) != slices.Max(at) {
		t.Errorf("tuned to %q, not to equal shares", p.Text(point))
	}
	all := skewed(map[int]bool{})
	all.Hyperparameters = []Hyperparameter{{Values: make([]string, p.Points())}} // one hyperparameter: every point
	all.create = p.create
	best, err := Tune(context.Background(), config, cs, sc, &all)
	if err != nil {
		t.Fatal(err)
	}
	if at := split(p.Hyperparameters, best); slices.Min(at) != slices.Max(at) {
		t.Errorf("the best of all is %q", p.Text(best))
	}
}

// Hyperparameters chosen in hindsight are the best on each seed; the others are tuned once,
// with the spec that it is Like.
func TestHindsight(t *testing.T) {
	config := twoCases(t, "kofn", "kofn-hindsight")
	config.Scenarios = []Scenario{scenario(t, "bursts")}
	config.Cases = config.Cases[1:]
	last := [2]int{}
	config.Progressed = func(done, total int) { last = [2]int{done, total} }
	lines, err := Compare(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	if last[0] != last[1] {
		t.Errorf("%d runs of %d", last[0], last[1])
	}
	kofn, hindsight := &config.Policies[0], lines[1]
	point, err := Tune(context.Background(), config, config.Cases[0], config.Scenarios[0], kofn)
	if err != nil {
		t.Fatal(err)
	}
	fill := Spec{Hyperparameters: kofn.Hyperparameters[2:]}
	if lines[0].Knobs != kofn.Text(point) || hindsight.Knobs != fill.Text(point%fill.Points()) {
		t.Errorf("knobs %q and %q, tuned to %q", lines[0].Knobs, hindsight.Knobs, kofn.Text(point))
	}
	// The dumb way: every rule as a spec of its own.
	config.Progressed, config.Policies = nil, nil
	for _, rule := range block(kofn.Hyperparameters, point, 0, 2) {
		config.Policies = append(config.Policies, Spec{Name: kofn.Text(rule), create: func(c *cluster.Cluster, s *sim.Simulator, tr *agent.Trained, w [env.Objectives]float64, _ int) agent.Policy {
			return kofn.New(c, s, tr, w, rule)
		}})
	}
	if lines, err = Compare(context.Background(), config); err != nil {
		t.Fatal(err)
	}
	best := make([]float64, config.Seeds)
	for _, r := range lines {
		for i, v := range r.ratios {
			best[i] = max(best[i], v)
		}
	}
	if diff := cmp.Diff(best, hindsight.ratios); len(lines) < 42 || diff != "" {
		t.Errorf("%d rules: %s", len(lines), diff)
	}
}

func TestSuited(t *testing.T) {
	fixed, free := agenttest.Lines(t, 8, 0.1, 0.1), agenttest.Lines(t, 8, 0.1, 0.1)
	free.Choices = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}
	names := func(clusters ...*cluster.Cluster) []string {
		var cases []Case
		for _, c := range clusters {
			cases = append(cases, Case{Cluster: c})
		}
		var found []string
		for _, p := range Suited(cases) {
			if p.Rule || p.Batch {
				found = append(found, p.Name)
			}
		}
		return found
	}
	rules := []string{"kofn", "dbw", "dropcompute", "kofn-hindsight"}
	if got := names(free); !slices.Equal(got, rules) {
		t.Errorf("rules are free: %v", got)
	}
	if got := names(free, fixed); got != nil {
		t.Errorf("one is fixed: %v", got)
	}
	free.Choices.LeastBatch, free.Choices.MostBatch = 2, 32
	if got := names(free); !slices.Equal(got, []string{"goodput", "kofn", "goodput-kofn", "dbw", "dropcompute", "kofn-hindsight"}) {
		t.Errorf("all is free: %v", got)
	}
}

// A policy is suited to clusters that leave its decisions open and whose trainer can carry them
// out; ends says when its rounds end.
func TestSuitedUnderDeadlines(t *testing.T) {
	all, timed, on, whole, fixed := agenttest.Lines(t, 8, 0.1, 0.1), agenttest.Lines(t, 8, 0.1, 0.1), agenttest.Lines(t, 8, 0.1, 0.1), agenttest.Lines(t, 8, 0.1, 0.1), agenttest.Lines(t, 8, 0.1, 0.1)
	timed.Collect.AutoDeadline = true
	on.Collect = cluster.Collect{AutoDeadline: true, Overtime: 0.1}
	whole.Collect = cluster.Collect{AutoDeadline: true, Whole: true}
	fixed.Collect = cluster.Collect{DeadlineShare: 1}
	for name, x := range map[string]struct {
		cluster *cluster.Cluster
		ends    map[string]string // "": not suited
	}{
		"waits":    {all, map[string]string{"ddqn": "all in", "model": "all in", "waterfill": "all in", "hindsight": "all in", "auto": "", "anytime-cut": ""}},
		"deadline": {timed, map[string]string{"ddqn": "deadline", "model": "deadline", "waterfill": "all in", "auto": "deadline", "auto-cut": "deadline", "auto-on": "", "hindsight": "all in"}},
		"overtime": {on, map[string]string{"ddqn": "deadline", "auto-on": "deadline", "waterfill-deadline-on": "deadline"}},
		"whole":    {whole, map[string]string{"ddqn": "deadline", "auto": "deadline", "auto-cut": "", "expected-time-cut": ""}},
		"fixed":    {fixed, map[string]string{"ddqn": "deadline", "waterfill": "deadline", "uniform": "deadline", "auto": ""}},
	} {
		got := map[string]string{}
		for _, p := range Suited([]Case{{Cluster: x.cluster}}) {
			got[p.Name] = p.ends(x.cluster)
		}
		for policy, want := range x.ends {
			if got[policy] != want {
				t.Errorf("%s: %s ends %q, want %q", name, policy, got[policy], want)
			}
		}
	}
	kofn, err := Find([]string{"kofn", "uniform", "ddqn"})
	if err != nil {
		t.Fatal(err)
	}
	free := agenttest.Lines(t, 8, 0.1, 0.1)
	free.Choices = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}
	if a, b, c := kofn[0].ends(all), kofn[1].ends(free), kofn[2].ends(free); a != "quorum" || b != "all in" || c != "quorum" {
		t.Errorf("%q, %q, %q", a, b, c)
	}
	for quorum, want := range map[cluster.Quorum]string{{Count: 1}: "quorum", {Count: 2}: "all in", {Share: 0.5}: "quorum", {Share: 1}: "all in"} {
		if all.Collect.Quorum = quorum; kofn[1].ends(all) != want {
			t.Errorf("%+v: %q", quorum, kofn[1].ends(all))
		}
	}
}

// Over clusters on which a policy's rounds end differently they end neither way.
func TestEndsOfComparison(t *testing.T) {
	waits, timed := agenttest.Lines(t, 64, 0.1, 0.1), agenttest.Lines(t, 64, 0.1, 0.1)
	for i := range timed.Nodes {
		timed.Nodes[i].Limit = 4
	}
	timed.Collect = cluster.Collect{AutoDeadline: true, Reserve: cluster.DefaultReserve, Overtime: 0.2}
	policies, err := Find([]string{"ddqn", "uniform", "auto-on", "auto-cut", "auto"})
	if err != nil {
		t.Fatal(err)
	}
	lines, err := Compare(t.Context(), Config{
		Cases: []Case{{"waits", waits, agenttest.Speed}, {"timed", timed, agenttest.Speed}}, Scenarios: []Scenario{scenario(t, "steady")},
		Policies: policies[:2], Trained: embedded(t), Seeds: 1, TuneSeeds: 1, Rounds: 3,
	})
	if err != nil {
		t.Fatal(err)
	}
	var ends []string
	for _, l := range lines {
		ends = append(ends, l.Cluster+" "+l.Policy+": "+l.Ends)
	}
	if want := []string{"waits ddqn: all in", "waits uniform: all in", "timed ddqn: deadline", "timed uniform: all in", "all ddqn: mixed", "all uniform: all in"}; !slices.Equal(ends, want) {
		t.Errorf("%q", ends)
	}
	for k, want := range []struct {
		whole    bool
		overtime float64
	}{{false, 0.2}, {false, 0.2}, {false, 0.2}, {false, 0}, {true, 0}} {
		plan := cluster.Plan{Sizes: make([]int, 2), Collect: timed.Collect}
		if err := policies[k].New(timed, sim.New(timed, cluster.Conditions{}, 1), embedded(t), agenttest.Speed, 0).Decide(nil, nil, &plan); err != nil {
			t.Fatal(err)
		}
		if plan.Collect.Whole != want.whole || plan.Collect.Overtime != want.overtime {
			t.Errorf("%s: %+v", policies[k].Name, plan.Collect)
		}
	}
}

func TestTunedFile(t *testing.T) {
	text, err := Tuned([]Result{{Policy: "uniform", Cluster: "c", Scenario: "s"}, {Policy: "lbbsp", Cluster: "c", Scenario: "s", Knobs: "gain 0.2"}})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Version int
		Tuned   []map[string]string
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if want := []map[string]string{{"policy": "lbbsp", "cluster": "c", "scenario": "s", "knobs": "gain 0.2"}}; got.Version != 1 || cmp.Diff(want, got.Tuned) != "" {
		t.Errorf("%s", text)
	}
}

// Cells in the file are not tuned again; others are.
func TestKnownHyperparametersAreNotTuned(t *testing.T) {
	known, err := ReadTuned([]byte(`{"version": 1, "tuned": [{"policy": "lbbsp", "cluster": "lines", "scenario": "steady", "knobs": "gain 0.05"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	policies, err := Find([]string{"lbbsp", "proportional"})
	if err != nil {
		t.Fatal(err)
	}
	config := Config{
		Policies: policies, Seeds: 1, TuneSeeds: 1, Rounds: 20, Known: known, Scenarios: []Scenario{scenario(t, "steady"), scenario(t, "drift")},
		Cases: []Case{{"lines", agenttest.Lines(t, 60, 0.1, 0.2, 0.3), agenttest.Speed}},
	}
	lines, err := Compare(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	config.Known = nil
	tuned, err := Compare(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	if lines[0].Knobs != "gain 0.05" || tuned[0].Knobs == "gain 0.05" || lines[0].Progress == tuned[0].Progress {
		t.Errorf("%s is judged, %s is the best", lines[0].Knobs, tuned[0].Knobs)
	}
	for k := 1; k < len(lines); k++ {
		if lines[k].Knobs != tuned[k].Knobs || lines[k].Progress != tuned[k].Progress {
			t.Errorf("%s, %s: %s is judged, %s is the best", lines[k].Policy, lines[k].Scenario, lines[k].Knobs, tuned[k].Knobs)
		}
	}
	for _, p := range Specs() {
		fixed := Spec{Hyperparameters: p.Hyperparameters[p.Hindsight:]}
		if last := fixed.Points() - 1; last > 0 && p.point(fixed.Text(last)) != last {
			t.Errorf("%s: point %d is read as %d", p.Name, last, p.point(fixed.Text(last)))
		}
		if p.point("gain 7") != -1 || p.point("") != -1 {
			t.Errorf("%s: a point that is none", p.Name)
		}
	}
	for _, bad := range []string{"", "{", `{"version": 2}`} {
		if _, err := ReadTuned([]byte(bad)); !badinput.Is(err) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
