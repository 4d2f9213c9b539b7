package agent

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/ddqn"
	"evenkeel/env"
	"evenkeel/internal/agenttest"
)

// choosing is an untrained policy, and a cluster that leaves it the rule.
func choosing(t testing.TB) (*Trained, *cluster.Cluster) {
	t.Helper()
	c := *agenttest.HeldOut16(t)
	c.Choices = cluster.Choices{Quorum: []float64{0.7, 0.9, 1}, Grace: cluster.Graces}
	return untrained(t, 8), &c
}

// An explanation agrees with what the agent did, and each begins where the last ended.
func TestExplain(t *testing.T) {
	trained, c := choosing(t)
	a := trained.NewAgent(c, [env.Objectives]float64{0.4, 0.4, 0.2}) // not judged by speed
	run := Control{Cluster: c, Runner: sim.New(c, agenttest.Conditions(t, "bursts"), 4), Policy: a}
	last := make([]Explanation, len(c.Nodes))
	overruled, late := 0, 0
	var before *cluster.Report
	for k := range 40 {
		r, err := run.Round(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.Nodes {
			e := a.Explain(i)
			if e.Round != k || e.Node != c.Nodes[i].Name || e.MicroBatch != r.Plan.Sizes[i] || e.After != a.believes().Belief(i) {
				t.Fatalf("round %d, node %d: %+v", k, i, e)
			}
			if k == 0 {
				if e.Measured != nil || e.Chosen != nil || e.Rule != nil {
					t.Fatalf("the first decision: %+v", e)
				}
				last[i] = e
				continue
			}
			if e.Before != last[i].After {
				t.Fatalf("round %d, node %d: from %+v, was left at %+v", k, i, e.Before, last[i].After)
			}
			checkExplanation(t, a, i, e, &before.Nodes[i], r.Plan.Collect)
			if e.Chosen.Action != e.Model.Action {
				overruled++
			}
			if before.Nodes[i].Status == cluster.Late {
				late++
			}
			last[i] = e
		}
		copied := *r.Report
		copied.Nodes = append([]cluster.NodeReport(nil), r.Report.Nodes...)
		before = &copied
	}
	if overruled == 0 || late == 0 {
		t.Errorf("%d choices against the model, %d late nodes", overruled, late)
	}
}

// checkExplanation compares node i's explanation with what the agent did after a report n on
// it, and passes it through JSON.
func checkExplanation(t *testing.T, a *Agent, i int, e Explanation, n *cluster.NodeReport, collect cluster.Collect) {
	t.Helper()
	if want := (Measured{n.Status.String(), n.Size, n.Seconds, n.Busy, n.BusySize}); *e.Measured != want {
		t.Fatalf("measured %+v, want %+v", e.Measured, want)
	}
	if e.Chosen.Action != a.actions[i] || e.Chosen.Action != e.Model.Action && e.Chosen.Action != e.Best.Action || e.Best.Value < e.Model.Value {
		t.Fatalf("chosen %+v, model %+v, best %+v", e.Chosen, e.Model, e.Best)
	}
	for _, c := range []*Choice{e.Chosen, e.Model, e.Best} {
		q := ddqn.NewActor(a.trained.Network).Q(nil, a.rows)
		if want := q[(i*len(env.Actions)+c.Action)*env.Objectives:][:env.Objectives]; !slices.Equal(c.Q[:], want) {
			t.Fatalf("values %v of action %d, want %v", *c.Q, c.Action, want)
		}
	}
	rule := e.Rule
	if collect.Quorum.Share != rule.Chosen.Quorum || collect.GraceShare != rule.Chosen.Grace || *rule.Next == rule.Chosen || rule.Next.Value > rule.Chosen.Value {
		t.Fatalf("%+v, collected by %+v", rule, collect)
	}
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	var again Explanation
	if err := json.Unmarshal(text, &again); err != nil || !cmp.Equal(e, again) {
		t.Fatalf("%v\n%s", err, cmp.Diff(e, again))
	}
}

// Where the network was not used the explanation says why; without one there is nothing
// to say.
func TestExplainFallback(t *testing.T) {
	trained, c := choosing(t)
	const odd = 9
	trained.Record.Low[odd], trained.Record.High[odd] = 50, 51
	for _, a := range []*Agent{trained.NewAgent(c, agenttest.Speed), NewModel(c)} {
		run := Control{Cluster: c, Runner: sim.New(c, agenttest.Conditions(t, "steady"), 4), Policy: a}
		for range 3 {
			if _, err := run.Round(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		e := a.Explain(2)
		if *e.Chosen != *e.Model || e.Best != nil || e.Chosen.Q != nil || e.Rule.Next.Value > e.Rule.Chosen.Value {
			t.Errorf("%+v", e)
		}
		if a.values == nil {
			if e.OutOfRange != nil {
				t.Errorf("no network: %+v", e)
			}
			continue
		}
		if len(e.OutOfRange) != 1 || e.OutOfRange[0].Feature != env.FeatureNames[odd] || *e.OutOfRange[0].Value != a.rows[2*env.Features+odd] || e.OutOfRange[0].Low != 50 {
			t.Errorf("%+v", e.OutOfRange)
		}
	}
	// JSON can express NaN too.
	out := outside([]float32{0, float32(math.NaN())}, []float32{-1, -1}, []float32{1, 1}, env.FeatureNames)
	text, err := json.Marshal(out)
	if err != nil || !strings.Contains(string(text), `"value":null`) {
		t.Errorf("%v: %s", err, text)
	}
}

// What is out of range is the node's own.
func TestExplainOutOfRange(t *testing.T) {
	trained, c := choosing(t)
	for i := range trained.Record.Low {
		trained.Record.Low[i], trained.Record.High[i] = 50, 51
	}
	a := trained.NewAgent(c, agenttest.Speed)
	run := Control{Cluster: c, Runner: sim.New(c, agenttest.Conditions(t, "bursts"), 4), Policy: a}
	for range 3 {
		if _, err := run.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	rows := map[string]bool{}
	for node := range c.Nodes {
		var got []float32
		for _, o := range a.Explain(node).OutOfRange {
			got = append(got, float32(*o.Value))
		}
		if want := a.rows[node*env.Features:][:env.Features]; !slices.Equal(got, want) {
			t.Fatalf("node %d: %v, want %v", node, got, want)
		}
		rows[fmt.Sprint(got)] = true
	}
	if len(rows) < len(c.Nodes)/2 {
		t.Errorf("only %d different nodes", len(rows))
	}
}

// Preferences hold from the decision after they change.
func TestSetWeights(t *testing.T) {
	trained, c := choosing(t)
	waiting := [env.Objectives]float64{0, 1, 0}
	changed := trained.NewAgent(c, agenttest.Speed)
	changed.SetWeights(waiting)
	if n := compareRuns(t, c, changed, trained.NewAgent(c, waiting), 30); n != 0 {
		t.Errorf("%d rounds differ from those of an agent with the same weights", n)
	}
	if n := compareRuns(t, c, trained.NewAgent(c, agenttest.Speed), trained.NewAgent(c, waiting), 30); n == 0 {
		t.Error("the weights make no difference")
	}
}
