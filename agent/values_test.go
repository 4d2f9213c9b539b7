package agent

import (
	"math"
	"math/rand/v2"
	"testing"

	"evenkeel/ddqn"
	"evenkeel/env"
)

// The best action by the objectives with a weight is the best by all objectives, whatever the earlier weights were.
func TestValues(t *testing.T) {
	trained, rng := untrained(t, 8), rand.New(rand.NewPCG(5, 5))
	rows := make([]float32, 3*env.Features)
	v := &values{network: trained.Network}
	per := len(env.Actions) * env.Objectives
	for _, weights := range [][env.Objectives]float64{{1}, {0.5, 0, 0.5}, {0, 0, 0, 1}, {0.1, 0.2, 0.3, 0.4}, {}, {1}} {
		for i := range rows {
			rows[i] = float32(rng.NormFloat64())
		}
		v.score(rows, weights)
		q := ddqn.NewActor(trained.Network).Q(nil, rows)
		for i := range 3 {
			from, to, model := rng.IntN(5), 6+rng.IntN(len(env.Actions)-5), 5
			best, most := 0, float32(math.Inf(-1))
			for k := from; k < to; k++ {
				if x := value(q[i*per:][:per], k, weights); x > most {
					best, most = k, x
				}
			}
			got, value1, models := v.best(i, from, to, model)
			if got != best || value1 != most || models != value(q[i*per:][:per], model, weights) {
				t.Errorf("weights %v: action %d of %v, the model's %v; want %d of %v", weights, got, value1, models, best, most)
			}
		}
	}
}
