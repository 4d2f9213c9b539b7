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
		if filter == modelFilter {
			actions[i] = t.follow(n, d)
		}
		if n.late {
			actions[i] = modelLate
		}
		if n.surprised() {
			actions[i] = modelJump
			if n.strange == 0 && math.Abs(n.newest[0]/n.level-1) < jumpAt*d {
				actions[i] = modelReturn
			} else if n.rose == 1 && t.fleet.odds()*(1+n.residual)*nodes < 1 && !t.fleet.novel(n.residual) {
				actions[i] = modelHold
			}
		}
		actions[i] += margin
	}
}

// drifting is the variance of a drifting node's relative change in a round. Between a third and twice this value, progress
// is nearly the same.
const drifting = 3e-5

// follow chooses the model's filter for a node with the given deviation. The filter is slow where consecutive residuals are
// not correlated, and otherwise as quick as the node's noise allows: noise may hide a drift in one node and not in another.
// Where sudden slowdowns last, or the line's form is in doubt, residuals are correlated without a drift.
func (t *Tracker) follow(n *track, deviation float64) int {
	ratio := drifting / (deviation * deviation)
	switch {
	case n.product < quiet+quieter*deviation:
		return modelSlow
	case n.form.doubt > 0 || t.fleet.odds() >= 0.5:
		return modelFilter
	case ratio < 0.0017: // each bound is the geometric mean of two updates' drifts
		return modelSlow
	case ratio < 0.032:
		return modelFilter
	case ratio < 0.32:
		return modelQuick
	}
	return modelKeen
}

// surprised says whether the newest measurement, just taken, is too far off to be noise.
func (n *track) surprised() bool {
	return n.fresh && n.count > 1 && n.surprising(n.residual, n.doubtful)
}

// novel says whether a sudden slowdown is far larger than the mean of those that passed. The odds then say nothing about it.
func (f *fleet) novel(residual float64) bool { return residual*(f.risen-f.stayed) > farLarger*f.passed }

// farLarger is the factor over the mean. Of spikes with exponentially distributed sizes one in 150 is that large.
const farLarger = 5

// Where the model decides alone. A network is trained on losses of at most two rounds of a node, so it underrates a slowdown
// for which all nodes wait; and where noise is strong, nothing helps but averaging.
const (
	plainRise  = 0.5 // least residual of a slowdown that the model decides about
	plainLoss  = 3.0 // least expected loss of ignoring it, over that of following it
	noisyModel = 8.0 // a node's noise over the usual, beyond which the model decides about it
)

// Open returns the actions that a network may choose for node i if the model chooses model: the indices into Actions
// from from to below to.
func (t *Tracker) Open(i, model int) (from, to int) {
	if t.Noise(i) > noisyModel {
		return model, model + 1
	}
	n := &t.nodes[i]
	nodes := float64(len(t.nodes))
	if t.round.rule.Quorum < 1 || !n.surprised() || n.residual < plainRise || t.fleet.odds()*(1+n.residual)*nodes < plainLoss && !t.fleet.novel(n.residual) {
		return 0, len(Actions)
	}
	from = model - model%len(margins)
	return from, from + len(margins)
}
