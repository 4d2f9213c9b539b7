package evaluation

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"evenkeel/agent"
	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/internal/agenttest"
	"evenkeel/internal/race"
)

// embedded is the policy that comes with the program.
func embedded(t testing.TB) *agent.Trained {
	t.Helper()
	trained, err := agent.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	return trained
}

// site is a cluster as the controller sees it and as it is.
type site struct {
	name        string
	seen, truth *cluster.Cluster
}

// sites are the clusters that every policy must cope with.
func sites(t testing.TB) []site {
	t.Helper()
	two := agenttest.FromYAML(t, "workload: llama-3b-512-fp16\nglobal_batch: 16\nnodes: [{device: a10g}, {device: t4}]")
	mixed := func() *cluster.Cluster {
		return agenttest.FromYAML(t, "workload: bert-base-512-fp32\nglobal_batch: 120\nnodes: [{device: a10g, count: 2}, {device: v100-16g, count: 2}, {device: t4, count: 2}]")
	}
	tight := mixed()
	for i := range tight.Nodes {
		tight.Nodes[i].Limit = 5 // several micro-steps
	}
	tight.GlobalBatch = 121 // odd: without the first, the nodes do not make it up
	for i := range tight.Nodes[1:] {
		tight.Nodes[1+i].Shapes = []int{2, 4}
	}
	quorum := mixed()
	quorum.Collect = cluster.Collect{Quorum: cluster.Quorum{Share: 0.75}, GraceShare: 0.1}
	timed := mixed()
	timed.Collect.AutoDeadline = true
	for i := range timed.Nodes {
		timed.Nodes[i].Limit = 3
	}
	unknown := mixed()
	for _, i := range []int{0, 3} {
		n := &unknown.Nodes[i]
		n.Profile, n.Hidden.Profile = nil, n.Profile
	}
	hurried := *unknown
	hurried.Collect = cluster.Collect{Quorum: cluster.Quorum{Share: 0.6}}
	// The last node runs out of memory whenever it gets more than one sample.
	failing := mixed()
	truth := *failing
	truth.Nodes = slices.Clone(failing.Nodes)
	truth.Nodes[5].Hidden.Limit = 1
	return []site{
		{"two", two, two}, {"mixed", mixed(), mixed()}, {"caps", tight, tight}, {"quorum", quorum, quorum}, {"deadline", timed, timed},
		{"unknown profiles", unknown, unknown}, {"unknown profiles, quorum", &hurried, &hurried}, {"always failing", failing, &truth},
	}
}

// rounds runs a policy and returns all sizes, checked.
func (s *site) rounds(t *testing.T, p *Spec, trained *agent.Trained, point int, conditions cluster.Conditions, n int) [][]int {
	t.Helper()
	seen, truth := s.seen.Own(), s.truth
	if truth == s.seen {
		truth = seen
	}
	simulator := sim.New(truth, conditions, 17)
	ctl := agent.Control{Cluster: seen, Runner: simulator, Policy: p.New(seen, simulator, trained, agenttest.Speed, point)}
	var all [][]int
	for range n {
		present := slices.Clone(simulator.Present())
		r, err := ctl.Round(context.Background())
		if err != nil {
			t.Fatalf("round %d: %v", len(all), err)
		}
		q := r.Plan.Collect
		if s.seen.Collect.AutoDeadline && !p.Deadline {
			if q.Deadline <= 0 {
				t.Fatalf("round %d: no deadline", len(all))
			}
			q.Deadline = 0
		}
		if q.Quorum.Share < 0 || q.Quorum.Share > 1 || q.GraceShare < 0 || q.Grace < 0 || !p.Rule && !p.Deadline && q != s.seen.Collect {
			t.Fatalf("round %d: rule %+v", len(all), q)
		}
		chosen := *s.seen // with the batch that was chosen
		if p.Batch {
			chosen.GlobalBatch = 0
			for _, b := range r.Plan.Sizes {
				chosen.GlobalBatch += b
			}
			if b := chosen.GlobalBatch; b < s.seen.GlobalBatch/4 || b > 4*s.seen.GlobalBatch {
				t.Fatalf("round %d: a batch of %d", len(all), b)
			}
		}
		left, tried := 0, 0 // tried: samples of silent nodes on trial, which the others give
		planned := slices.Clone(present)
		for i := range present {
			present[i] = present[i] && ctl.LeftOut(i) != agent.Silent
			var e agent.Explanation
			ctl.Explain(&e, i)
			planned[i] = present[i]
			if e.Part != nil && e.Part.Trial && e.Part.Why == agent.Silent.String() {
				planned[i], tried = false, tried+r.Plan.Sizes[i]
			}
			if planned[i] {
				left++
			}
		}
		if chosen.CheckCapacity(planned) == nil {
			agenttest.CheckSizes(t, &chosen, present, r.Plan.Sizes)
		} else {
			for i, b := range r.Plan.Sizes {
				want := 0
				if planned[i] {
					want = s.seen.Nodes[i].MostShare(max(s.seen.GlobalBatch/left, s.seen.Nodes[i].LeastShare()))
				}
				if present[i] == planned[i] && (b > want || b < want-tried) {
					t.Fatalf("round %d, no such sum: node %d got %d samples, not %d", len(all), i, b, want)
				}
			}
		}
		all = append(all, slices.Clone(r.Plan.Sizes))
	}
	return all
}

func TestEveryPolicyEverywhere(t *testing.T) {
	trained := embedded(t)
	for _, p := range Specs() {
		t.Run(p.Name, func(t *testing.T) {
			for k, s := range sites(t) {
				for j, name := range cluster.Presets() {
					conditions := agenttest.Conditions(t, name)
					if race.Enabled && j%4 != 0 || len(conditions.Patterns) == 1 { // mixture has them all
						continue
					}
					point := 37 * (7*j + 3*k) % p.Points()
					first := s.rounds(t, &p, trained, point, conditions, 40)
					if j == k%3 && !slices.EqualFunc(first, s.rounds(t, &p, trained, point, conditions, 40), slices.Equal) {
						t.Errorf("%s, %s: two runs differ", s.name, name)
					}
				}
			}
		})
	}
}

// Every policy works while the remaining nodes cannot hold the batch, and returns to a full
// batch afterwards.
func TestEveryPolicyOutlivesAShortage(t *testing.T) {
	trained := embedded(t)
	tight := sites(t)[2]
	stormy := agenttest.Conditions(t, "steady")
	stormy.Failures = cluster.Failures{Rate: 0.04, Rounds: 6, Silent: 0.3}
	for _, p := range Specs() {
		t.Run(p.Name, func(t *testing.T) {
			short, full := false, false
			for _, sizes := range tight.rounds(t, &p, trained, 0, stormy, 80) {
				sum := 0
				for _, b := range sizes {
					sum += b
				}
				short = short || sum < tight.seen.GlobalBatch
				full = full || short && sum == tight.seen.GlobalBatch
			}
			if !short || !full && !p.Batch {
				t.Fatalf("short of memory %v, full again %v: the trace does not show what it should", short, full)
			}
		})
	}
}

// broken is a policy that fails.
type broken struct{}

var errBroken = errors.New("broken")

func (broken) Decide(*cluster.Report, []bool, *cluster.Plan) error { return errBroken }

func TestSpecsTable(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Specs() {
		if seen[c.Name] || c.Name == "" || c.About == "" {
			t.Errorf("%q: name taken, or nothing said about it", c.Name)
		}
		seen[c.Name] = true
		texts := map[string]bool{}
		for k := range c.Points() {
			text := c.Text(k)
			if texts[text] {
				t.Errorf("%s: hyperparameters %q twice", c.Name, text)
			}
			texts[text] = true
		}
	}
	for _, name := range []string{"ddqn", "uniform", "proportional", "lbbsp", "waterfill", "waterfill-margin", "cusum", "lag1", "oracle", "oracle-margin"} {
		if !seen[name] {
			t.Errorf("%s is missing", name)
		}
	}
	if _, err := Find([]string{"uniform", "unifrom"}); err == nil {
		t.Error("an unknown name was found")
	}
}

// The guide has a line on every policy.
func TestGuideNamesEveryPolicy(t *testing.T) {
	text, err := os.ReadFile("../../docs/guides/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range Specs() {
		if !strings.Contains(string(text), "`"+c.Name+"`") {
			t.Errorf("docs/guides/policies.md does not name %s", c.Name)
		}
	}
}
