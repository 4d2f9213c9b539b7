package env

import "math"

// Model writes the model's own update of every node, an action index: a slow filter
// that jumps when a measurement is too far off to be noise, and returns to the known
// level when the measurement fits it. It is what a controller falls back to.
func (t *Tracker) Model(actions []int) {
	filter, margin := modelFilter, modelRoom
	if t.round.rule.Quorum < 1 {
		filter, margin = modelQuick, 0 // a node that is a little late holds nobody up
	}
	nodes := float64(len(t.nodes))
	for i := range t.nodes {
		n := &t.nodes[i]
		d := n.deviation()
		actions[i] = filter
		if filter == modelFilter && n.product < quiet {
			actions[i] = modelSlow
		}
		if n.late {
			actions[i] = modelLate
		}
		if n.fresh && n.count > 1 && n.surprising(n.residual, n.doubtful) {
			actions[i] = modelJump
			if n.strange == 0 && math.Abs(n.newest[0]/n.level-1) < jumpAt*d {
				actions[i] = modelReturn
			} else if n.rose == 1 && t.fleet.odds()*(1+n.residual)*nodes < 1 {
				actions[i] = modelHold
			}
		}
		actions[i] += margin
	}
}
