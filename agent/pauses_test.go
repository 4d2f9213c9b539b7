package agent_test

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"evenkeel/agent"
	"evenkeel/agent/baseline"
	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/internal/agenttest"
)

// said changes what a simulator's nodes announce.
type said struct {
	*sim.Simulator
	say func(node int, pause float64) float64
}

func (s said) Round(ctx context.Context, plan cluster.Plan) (*cluster.Report, error) {
	r, err := s.Simulator.Round(ctx, plan)
	for i := range r.Nodes {
		r.Nodes[i].Pause = s.say(i, r.Nodes[i].Pause)
	}
	return r, err
}

// Truth is what an oracle knows.
func (s said) Truth() cluster.Truth {
	t := s.Simulator.Truth()
	pauses := t.Pause
	t.Pause = make([]float64, len(pauses))
	for i, p := range pauses {
		t.Pause[i] = s.say(i, p)
	}
	return t
}

// What nodes announce keeps the loss away that an oracle can avoid, and costs little where it does not come true.
func TestAnnouncedPauses(t *testing.T) {
	policy, err := agent.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	truly := func(_ int, pause float64) float64 { return pause }
	never := func(int, float64) float64 { return 0 }
	seconds := func(conditions string, oracle bool, seed uint64, say func(int, float64) float64) (sum float64) {
		c := agenttest.HeldOut16(t).Own()
		runner := said{sim.New(c, agenttest.Conditions(t, conditions), seed), say}
		ctl := agent.Control{Cluster: c, Runner: runner, Policy: policy.NewAgent(c, agenttest.Speed)}
		if oracle {
			ctl.Policy = baseline.NewOracle(c, runner, baseline.Oracle{Margin: 1.3})
		}
		for range 400 {
			r, err := ctl.Round(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			sum += r.Report.Wait.Seconds()
		}
		return sum
	}
	const seeds = 6
	told, untold, without, toldOracle, oracle := 0.0, 0.0, 0.0, 0.0, 0.0
	for seed := range uint64(seeds) {
		told += seconds("announced-saves", false, seed, truly)
		untold += seconds("announced-saves", false, seed, never)
		without += seconds("steady", false, seed, never)
		toldOracle += seconds("announced-saves", true, seed, truly)
		oracle += seconds("steady", true, seed, never)
	}
	avoidable := untold - without - (toldOracle - oracle)
	t.Logf("untold %.1f%% longer than without saves, told %.1f%%, an oracle %.1f%%: %.1f%% of what can be avoided",
		100*(untold/without-1), 100*(told/without-1), 100*(toldOracle/oracle-1), 100*(untold-told)/avoidable)
	if untold-told < 0.9*avoidable || avoidable < 0.03*without {
		t.Errorf("%.0f s with announcements, %.0f without them, of which %.0f can be avoided", told, untold, avoidable)
	}
	round := without / seeds / 400
	for name, x := range map[string]struct {
		conditions string
		say        func(random *rand.Rand, node int, pause float64) float64
	}{
		"nothing comes":       {"steady", func(*rand.Rand, int, float64) float64 { return round / 2 }},
		"now and then":        {"steady", func(r *rand.Rand, _ int, _ float64) float64 { return round * 1.5 * math.Floor(r.Float64()+0.05) }},
		"another length":      {"announced-saves", func(r *rand.Rand, _ int, pause float64) float64 { return pause * math.Exp(r.NormFloat64()) }},
		"one node, for a day": {"steady", func(_ *rand.Rand, node int, _ float64) float64 { return 86400 * math.Floor(float64(node)/15) }},
	} {
		got, want := 0.0, without
		if x.conditions == "announced-saves" {
			want = untold
		}
		for seed := range uint64(seeds) {
			random := rand.New(rand.NewPCG(seed, 1))
			got += seconds(x.conditions, false, seed, func(node int, pause float64) float64 { return x.say(random, node, pause) })
		}
		if t.Logf("%s: %.4f of the time without announcements", name, got/want); got > 1.003*want {
			t.Errorf("%s: %.4f times as long as without announcements", name, got/want)
		}
	}
}
