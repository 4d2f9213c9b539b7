package env

import (
	"math"

	"evenkeel/cluster"
)

// belief is a node's performance parameters and how certain they are.
type belief struct {
	base     cluster.Performance // at slowdown 1
	unknown  bool                // no profile is known: the line's form is to be learnt
	form     shape               // of that line
	slowdown float64
	variance float64 // of the slowdown, in units of one measurement's; the Kalman filter's P/R without drift
	deviance float64 // mean absolute change between measurements, relative
	level    float64 // long-run slowdown outside spells of slowness
	levels   float64 // measurements in level
	strange  int     // measurements in a row that do not fit level
	doubtful float64 // variance of the newest residual that comes from doubt of the line's form
	left     float64 // expected seconds until the node's older work is done
}

const (
	priorDeviation = 0.03                // median step noise of variability/cnn_step_ms.csv
	priorWeight    = 3                   // measurements that the prior counts as
	priorVariance  = 6                   // of the profile's slowdown
	devianceRate   = 0.01                // a node's noise changes slowly
	jumpAt         = 4.0                 // deviations
	patience       = 60                  // most measurements in a row off the level before it is replaced
	normalAbs      = 0.7979 * math.Sqrt2 // mean absolute difference of two standard normal numbers
)

// newBelief starts from the profile, or from the nameplate if there is none.
func newBelief(base cluster.Performance, profiled bool) belief {
	return belief{base: base, unknown: !profiled, slowdown: 1, level: 1, variance: priorVariance, deviance: priorDeviation * normalAbs}
}

// deviation is the estimated relative sd of one measurement. Differences of
// neighbours cancel drift, and absolute values dampen spikes.
func (b *belief) deviation() float64 { return max(b.deviance/normalAbs, 5e-4) }

// learnNoise updates the deviance with the relative change from one measurement to the next,
// given the count of earlier measurements.
func (b *belief) learnNoise(change, count float64) {
	change = min(change, 3*b.deviance*(1+5/count))
	b.deviance += max(devianceRate, 1/(count+priorWeight)) * (change - b.deviance)
}

// surprising says whether a residual is too large for the node's noise, the uncertainty of the slowdown, and off, the
// variance that comes from doubt of the line's form.
func (b *belief) surprising(residual, off float64) bool {
	d := b.deviation()
	return residual*residual > jumpAt*jumpAt*(d*d*(1+b.variance)+off)
}

// begin replaces the nameplate of a node without a profile by its first measurement.
func (b *belief) begin(node *cluster.Node, size, seconds, steps float64) {
	b.form.begin(size, steps)
	b.base = b.form.line(node, max(seconds-node.Network, 0.01*seconds))
	b.slowdown = 1
}

// learn corrects the line's form by the residual of a measurement.
func (b *belief) learn(node *cluster.Node, size, residual float64) {
	seconds, d := b.base.Overhead-node.Network+b.base.PerSample*b.form.at, b.deviation()
	b.form.learn(size, residual, d*d*(1+b.variance))
	b.base = b.form.line(node, seconds)
}

// remember updates the long-run level with the newest measurement. Spells of another slowdown leave the level alone,
// unless they last so long that they become the level.
func (b *belief) remember(m float64) {
	if b.levels == 0 {
		b.level, b.levels = m, 1
		return
	}
	if math.Abs(m/b.level-1) > jumpAt*b.deviation()*math.Sqrt(1+1/b.levels) {
		if b.strange++; b.strange > min(patience, 4*int(b.levels)) {
			b.level, b.levels, b.strange = b.slowdown, 1, 0
		}
		return
	}
	b.strange = 0
	b.levels++
	b.level += max(0.02, 1/b.levels) * (m - b.level)
}

// guesses are the beliefs about overdue work, by update: how much longer it takes, and whether the node has become
// slower (otherwise the delay is noise or a spike).
var guesses = [...]struct {
	left   float64 // over the time so far
	slower bool
}{{0.04, false}, {0.12, false}, {0.25, false}, {0.1, true}, {0.4, true}, {1.2, true}, {0.12, false}}

// await predicts when the work under way will be done. If it is overdue, the action also decides what that says of the
// node's slowdown.
func (b *belief) await(a *Action, s *seen, node *cluster.Node) {
	b.left = 0
	if s.busySize == 0 {
		return
	}
	due := node.Finish(node.Slowed(b.base, b.slowdown), s.busySize)
	switch {
	case s.busy < due:
		b.left = due - s.busy
	case !s.late: // the action was about a measurement
		b.left = guesses[0].left * s.busy
	default:
		g := guesses[a.guess]
		b.left = g.left * s.busy
		if g.slower || s.count == 0 { // without a measurement, nothing says that the node is faster
			b.slowdown = node.SlownessOf(b.base, node.Cost(s.busySize), s.busy+b.left)
			b.variance = max(b.variance, 1)
		} else if a.Trust == Return {
			b.slowdown = b.level
		}
	}
}
