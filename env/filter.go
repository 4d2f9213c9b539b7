package env

import "math"

// filter moves a node's belief toward its measurements, and follows how they differ from
// it. The differences are the innovations of a Kalman filter.
type filter struct {
	gain     float64 // of the last update; 0: no measurement moved the belief
	margin   float64 // safety margin for noise in force, in deviations
	residual float64 // of the newest measurement against the belief before it, relative
	average  float64 // moving average of the residuals, in deviations
	product  float64 // moving average of residual times the one before, in variances
	streak   int     // residuals in a row of one sign, signed
	calm     int     // rounds since the last jump
	rose     int     // measurements in a row that were suddenly slower
}

const (
	averageRate = 0.1
	productRate = 0.05
	trendFrom   = 0.3  // average of the residuals, in deviations, beyond which the belief lags behind
	riseKeep    = 0.99 // forgetting factor of the counts of sudden slowdowns, per slowdown
	quiet       = 0.25 // product of consecutive residuals, in variances, below which a node does not drift
	quieter     = 0.5  // added to quiet per unit of deviation: strong noise hides a drift
)

// innovate processes the residual of a measurement, given the node's deviation; jump says
// whether the residual is too large to be noise.
func (f *filter) innovate(residual, deviation float64, jump bool) {
	before := f.residual
	f.residual = residual
	f.calm++
	if jump {
		f.calm = 0
	}
	z := clip(residual/deviation, 4)
	f.average += averageRate * (z - f.average)
	f.product += productRate * (z*clip(before/deviation, 4) - f.product)
	switch {
	case residual > 0:
		f.streak = max(f.streak, 0) + 1
	case residual < 0:
		f.streak = min(f.streak, 0) - 1
	}
}

// update moves the belief by an action. The variance is that of a Kalman filter which made
// the same move.
func (f *filter) update(a *Action, b *belief, s *seen) {
	switch a.Trust {
	case Filter:
		before := b.variance + a.Drift
		f.gain = before / (before + 1)
		b.variance = f.gain
	case Jump:
		f.gain, b.variance = 1, 1
	case Return:
		b.slowdown, b.variance = b.level, max(0.01, 1/max(b.levels, 1))
	}
	b.form.move(s.work, f.gain)
	b.slowdown += f.gain * (s.believable(f.gain, b.level) - b.slowdown)
}

// lag is how far the belief is behind a node that changes gradually, relative: the mean of the last residuals, as far as
// noise does not explain it. A filter that follows a slope is behind by the residual that it meets in every round.
func (f *filter) lag(deviation float64) float64 {
	if f.gain == 1 { // nothing but the newest measurement is believed
		return 0
	}
	return math.Copysign(max(math.Abs(f.average)-trendFrom, 0), f.average) * deviation
}
