package env

import (
	"math"
	"testing"

	"evenkeel/env/internal/envtest"
)

// Which filter the model follows a node by: of residuals that go together, the quicker the less noisy the node is.
func TestModelFollowsAsNoiseAllows(t *testing.T) {
	of := func(ratio float64) float64 { return math.Sqrt(3e-5 / ratio) } // the deviation at which a drift has that ratio to noise
	for name, x := range map[string]struct {
		ratio, product, odds, doubt float64
		want                        int
	}{
		"strong noise":   {0.0016, 1, 0, 0, modelSlow},
		"some noise":     {0.0018, 1, 0, 0, modelFilter},
		"usual noise":    {0.031, 1, 0, 0, modelFilter},
		"little noise":   {0.033, 1, 0, 0, modelQuick},
		"less noise":     {0.31, 1, 0, 0, modelQuick},
		"hardly any":     {0.33, 1, 0, 0, modelKeen},
		"nothing drifts": {0.33, 0.2, 0, 0, modelSlow},
		"jumps last":     {0.33, 1, 1, 0, modelFilter},
		"form in doubt":  {0.33, 1, 0, 0.1, modelFilter},
	} {
		tracker := NewTracker(envtest.Mixed(t, 4))
		n := &tracker.nodes[1]
		n.deviance, n.product, n.form.doubt = of(x.ratio)*normalAbs, x.product, x.doubt
		tracker.fleet.risen, tracker.fleet.stayed = 100, 100*x.odds/(1+x.odds)
		actions := make([]int, 4)
		if tracker.Model(actions); actions[1] != x.want+modelRoom {
			t.Errorf("%s: action %d, want %d", name, actions[1], x.want+modelRoom)
		}
	}
}
