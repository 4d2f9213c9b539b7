package agent

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"evenkeel/agent/clusters"
	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/cluster/sim"
	"evenkeel/ddqn"
	"evenkeel/env"
	"evenkeel/internal/agenttest"
)

// Networks of random weights on the devices of the example, rounds 60 to 240: what they cost with the guard and without. With EVENKEEL_SLOW there are
// sixteen, and the table of docs/decisions/0047-two-controllers.md.
func TestGuardOnRandomNetworks(t *testing.T) {
	networks := uint64(16)
	if os.Getenv("EVENKEEL_SLOW") == "" {
		networks = 3
	}
	for _, free := range []bool{false, true} {
		for _, conditions := range []string{"steady", "drift", "interference", "bursts"} {
			var worst [2]float64
			var below [2]int
			for k := range worst {
				worst[k] = math.Inf(1)
			}
			for net := range networks {
				random := untrained(t, 8)
				var err error
				if random.Network, err = ddqn.NewNetwork(random.Network.Spec(), rand.New(rand.NewPCG(net, 3))); err != nil {
					t.Fatal(err)
				}
				model := exampleSpeed(t, free, conditions, func(c *cluster.Cluster) *Agent { return NewModel(c) })
				for k := range worst {
					speed := exampleSpeed(t, free, conditions, func(c *cluster.Cluster) *Agent {
						a := random.NewAgent(c, agenttest.Speed)
						if k == 1 {
							alone(a)
						}
						return a
					})
					worst[k] = min(worst[k], speed/model)
					if speed < 0.98*model {
						below[k]++
					}
				}
			}
			t.Logf("free rule %v, %s: without the guard %.3f at worst, %d below .98; with it %.3f, %d", free, conditions, worst[1], below[1], worst[0], below[0])
			if worst[0] < 0.95 || below[0] > 1 || networks == 16 && below[1] < 3 {
				t.Errorf("free rule %v, %s: with the guard %.3f at worst, %d networks below .98; without it %d", free, conditions, worst[0], below[0], below[1])
			}
		}
	}
}

// example is the cluster of that name, where everybody is waited for.
func example(t *testing.T) *cluster.Cluster {
	t.Helper()
	_, c, err := clusters.Load("example", profile.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	c.Collect, c.Choices = cluster.Collect{}, cluster.Choices{}
	return c
}

// exampleSpeed is counted samples a second of an agent on 16 nodes of the training split.
func exampleSpeed(t *testing.T, free bool, conditions string, create func(c *cluster.Cluster) *Agent) float64 {
	t.Helper()
	c := example(t)
	if free {
		c.Choices = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}
	}
	counted, seconds := timed(t, c, conditions, 1, create(c), 60, 240, nil)
	return counted / seconds
}

// The same networks where reports come four plans late, as in a job that draws its batches ahead. Both sides' newest shares are compared by the round that
// is reported: nobody knew it when they were made.
func TestGuardWhereReportsComeLate(t *testing.T) {
	for _, conditions := range []string{"drift", "interference"} {
		worst, without := math.Inf(1), math.Inf(1)
		model := lateSpeed(t, conditions, func(c *cluster.Cluster) *Agent { return NewModel(c) })
		for net := range uint64(4) {
			random := untrained(t, 8)
			var err error
			if random.Network, err = ddqn.NewNetwork(random.Network.Spec(), rand.New(rand.NewPCG(net, 3))); err != nil {
				t.Fatal(err)
			}
			worst = min(worst, lateSpeed(t, conditions, func(c *cluster.Cluster) *Agent { return random.NewAgent(c, agenttest.Speed) })/model)
			without = min(without, lateSpeed(t, conditions, func(c *cluster.Cluster) *Agent {
				a := random.NewAgent(c, agenttest.Speed)
				alone(a)
				return a
			})/model)
		}
		t.Logf("%s: %.3f of the model's speed at worst, without the guard %.3f", conditions, worst, without)
		if worst < 0.985 || without > 0.97 {
			t.Errorf("%s: %.3f of the model's speed at worst, without the guard %.3f", conditions, worst, without)
		}
	}
}

// lateSpeed is exampleSpeed where rounds run the plan of four rounds before, and say so.
func lateSpeed(t *testing.T, conditions string, create func(c *cluster.Cluster) *Agent) float64 {
	t.Helper()
	c := example(t)
	runner := sim.New(c, agenttest.Conditions(t, conditions), 1)
	ctl := Control{Cluster: c, Policy: create(c), Behind: 4}
	plans := make([]cluster.Plan, 0, 241)
	var report *cluster.Report
	counted, seconds := 0.0, 0.0
	for k := range 240 {
		plan, err := ctl.Next(report, runner.Present())
		if err != nil {
			t.Fatal(err)
		}
		plan.Sizes, plan.Perf, plan.Probe = slices.Clone(plan.Sizes), nil, nil
		plans = append(plans, plan)
		ran := plans[max(0, k-4)]
		if report, err = runner.Round(t.Context(), ran); err != nil {
			t.Fatal(err)
		}
		if report.Plan = ran.Number; k >= 60 {
			counted += report.Counted
			seconds += report.Wait.Seconds()
		}
	}
	return counted / seconds
}

// Each side is judged under its own rule, whoever decides.
func TestGuardJudgesEachUnderItsRule(t *testing.T) {
	for _, off := range []bool{false, true} {
		network, model := env.NewTracker(agenttest.Lines(t, 20, 0.1, 0.1)), env.NewTracker(agenttest.Lines(t, 20, 0.1, 0.1))
		g := guard{off: off, pending: true, tracker: model, decided: []int{10, 10}, instead: []int{10, 10}}
		r := &cluster.Report{Wait: 3 * time.Second, Accepted: 20, Counted: 20, Nodes: []cluster.NodeReport{
			{Status: cluster.In, Size: 10, Samples: 10, Seconds: 2, Idle: 1}, {Status: cluster.In, Size: 10, Samples: 10, Seconds: 3},
		}}
		network.SetRule(cluster.Collect{Quorum: cluster.Quorum{Count: 1}}, 2)
		model.Observe(r)
		g.judge(r, network)
		// The network's round ends after two seconds, when it lacks 10 samples, which come a round later, and a third of a node's work.
		want := 2.0/3 - (10+10*cluster.Credit(1)-10.0/3)/20
		if math.Abs(g.regret.Mean-want) > 1e-9 {
			t.Errorf("off %v: regret of %v, want %v", off, g.regret.Mean, want)
		}
	}
}
