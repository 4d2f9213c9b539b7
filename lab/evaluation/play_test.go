package evaluation

import (
	"math"
	"testing"

	"evenkeel/agent"
	"evenkeel/agent/baseline"
	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/internal/agenttest"
)

// Energy is joules over accepted samples of the nodes whose power is known, and changes
// nothing else; where no power is known it is 0.
func TestEnergyOfARun(t *testing.T) {
	c := *sites(t)[1].seen
	play := func(power func(i int) cluster.Power) (Score, float64) {
		c.Nodes = append([]cluster.Node(nil), c.Nodes...)
		for i := range c.Nodes {
			c.Nodes[i].Power = power(i)
		}
		s := sim.New(&c, agenttest.Conditions(t, "failures"), 3)
		joules, samples := 0.0, 0
		score, err := Play(t.Context(), &c, s, baseline.NewUniform(&c), 60, nil, func(r agent.Round) {
			for i, n := range r.Report.Nodes {
				if c.Nodes[i].Power != (cluster.Power{}) {
					joules += n.Joules
					samples += n.Samples
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return score, joules / max(float64(samples), 1)
	}
	none, _ := play(func(int) cluster.Power { return cluster.Power{} })
	if none.Energy != 0 {
		t.Errorf("%v J a sample, and no power is known", none.Energy)
	}
	all := func(int) cluster.Power { return cluster.Power{Idle: 30, Busy: 200} }
	some := func(i int) cluster.Power { return cluster.Power{Busy: 100 * float64(i%2)} }
	for name, power := range map[string]func(int) cluster.Power{"all": all, "some": some} {
		got, want := play(power)
		if !(want > 0) || math.Abs(got.Energy/want-1) > 1e-9 {
			t.Errorf("%s: %v J a sample, want %v", name, got.Energy, want)
		}
		if got.Energy = 0; got != none {
			t.Errorf("%s: knowing the power changes the run: %+v, %+v", name, got, none)
		}
	}
}
