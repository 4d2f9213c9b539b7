package evaluation

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/agent/baseline"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/ddqn"
	"github.com/evenkeel/evenkeel/internal/agenttest"
)

func modelFreeNet(t testing.TB) *ddqn.Network {
	t.Helper()
	net, err := ddqn.NewNetwork(baseline.ModelFreeSpec([]int{16}), rand.New(rand.NewPCG(5, 5)))
	if err != nil {
		t.Fatal(err)
	}
	return net
}

// Whatever its network says, sizes are valid in every scenario, and the same twice.
func TestModelFreeEverywhere(t *testing.T) {
	p, err := ModelFree(modelFreeNet(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sites(t) {
		for _, name := range cluster.Presets() {
			first := s.rounds(t, &p, nil, 0, agenttest.Conditions(t, name), 40)
			if !slices.EqualFunc(first, s.rounds(t, &p, nil, 0, agenttest.Conditions(t, name), 40), slices.Equal) {
				t.Errorf("%s, %s: two runs differ", s.name, name)
			}
		}
	}
	stormy := agenttest.Conditions(t, "steady")
	stormy.Failures = cluster.Failures{Rate: 0.04, Rounds: 6, Silent: 0.3}
	tight := sites(t)[2]
	tight.rounds(t, &p, nil, 0, stormy, 80)
	if _, err := ModelFree(embedded(t).Network); !errors.Is(err, agent.ErrPolicy) {
		t.Errorf("another agent's network: %v", err)
	}
}
