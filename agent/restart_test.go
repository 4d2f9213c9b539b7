package agent_test

import (
	"testing"

	"evenkeel/agent"
	"evenkeel/agent/baseline"
	"evenkeel/cluster/sim"
	"evenkeel/internal/agenttest"
)

// What a job learnt before its restart takes most of the time away that learning it anew costs, on the same simulated nodes, and adds little where the nodes are
// others. Times are compared with those of an oracle that knows every node's speed, but not the noise.
func TestRestartedJob(t *testing.T) {
	trained, err := agent.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	for conditions, most := range map[string]struct{ few, many, wrong float64 }{"steady": {0.3, 0.3, 1.009}, "drift": {0.55, 0.75, 1.009}, "interference": {0.4, 0.65, 1.01}} {
		// run returns the seconds of 15 and of 100 rounds of a policy, after 100 others of the same nodes, and what it learnt.
		run := func(seed uint64, b *agent.Beliefs, oracle bool) (few, many float64, learnt *agent.Beliefs) {
			c := agenttest.HeldOut16(t)
			s := sim.New(c, agenttest.Conditions(t, conditions), seed)
			ctl := &agent.Control{Cluster: c, Runner: s, Policy: trained.NewAgent(c, agenttest.Speed)}
			for k := range 200 {
				if k == 100 {
					learnt = ctl.Beliefs()
					ctl = &agent.Control{Cluster: c, Runner: s, Policy: trained.NewAgent(c, agenttest.Speed)}
					if oracle {
						ctl.Policy = baseline.NewOracle(c, s, baseline.Oracle{Margin: 1})
					}
					ctl.Adopt(b)
				}
				r, err := ctl.Round(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if seconds := r.Report.Wait.Seconds(); k >= 100 {
					if many += seconds; k < 115 {
						few += seconds
					}
				}
			}
			return few, many, learnt
		}
		var few, many [3]float64 // points behind the oracle: anew, with its own beliefs, with those of other nodes
		const seeds = 8
		for seed := range uint64(seeds) {
			x, y, own := run(seed, nil, true)
			_, _, others := run(seed+seeds, nil, false)
			for i, b := range []*agent.Beliefs{nil, own, others} {
				f, m, _ := run(seed, b, false)
				few[i] += 100 * (f/x - 1) / seeds
				many[i] += 100 * (m/y - 1) / seeds
			}
		}
		t.Logf("%s: points behind the oracle in 15 rounds: anew %.2f, with beliefs %.2f, with those of other nodes %.2f; in 100 rounds %.2f, %.2f, %.2f", conditions, few[0], few[1], few[2], many[0], many[1], many[2])
		if few[1] > most.few*few[0] || many[1] > most.many*many[0] || 100+many[2] > most.wrong*(100+many[0]) {
			t.Error(conditions)
		}
	}
}
