package costmodel

import (
	"math"
	"testing"
)

// A strategy that another of its tensor degree is as good as in everything goes; one that takes less of anything stays.
func TestDropDominated(t *testing.T) {
	cost := func(step, once, states, active, peak float64) (c layerCost) {
		c.step[0], c.perIteration[0], c.states[0], c.active[0], c.peak[0] = step, once, states, active, peak
		return c
	}
	costs := []layerCost{cost(3, 3, 3, 3, 3), cost(3, 3, 3, 3, 3), cost(4, 3, 3, 3, 3), cost(4, 2, 3, 3, 3), cost(4, 3, 2, 3, 3), cost(4, 3, 3, 2, 3), cost(4, 3, 3, 3, 2), cost(5, 5, 5, 5, 5)}
	f := &configuration{groups: []Group{{}}, strategies: make([]Strategy, len(costs))}
	f.strategies[7].Tensor = 2
	f.dropDominated(costs)
	for i, c := range costs {
		if gone := i == 1 || i == 2; math.IsInf(c.step[0], 1) != gone {
			t.Errorf("%d: %v", i, c.step[0])
		}
	}
}
