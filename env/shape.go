package env

import (
	"math"

	"evenkeel/cluster"
)

// shape is the belief about the form of the line of a node without a profile: which share of its
// time grows with its size. The slowdown says how long the node takes, so a node that changes its
// pace keeps its shape.
//
// At a size b the node takes 1 + slope (b - at) times as long as at the size at. Measurements at other
// sizes correct the slope by the gain of a Kalman filter; one at the size at says nothing about it.
type shape struct {
	at    float64 // size that the slowdown rests on
	slope float64 // relative growth of the time per sample; above 0, at most 1/at, where there is no overhead
	doubt float64 // variance of the slope; 0: the form is known
}

const (
	slopePrior = 0.75 // of slope x at: an overhead of a quarter of the time
	slopeDoubt = 0.3  // standard deviation of slope x at
	slopeLeast = 0.1  // of slope x at
	slopeSure  = 0.03 // least deviation of slope x at: no real curve is a line
	slopeNoise = 0.12 // deviation of a measurement beside its node's noise: a rare spike would leave a wrong slope
)

// begin starts from the first size. If it took several equal micro-steps, the prior holds for one of them: a share has its
// overhead once.
func (f *shape) begin(size, steps float64) {
	sd := max(slopeDoubt/steps, slopeSure)
	*f = shape{at: size, slope: (1 - (1-slopePrior)/steps) / size, doubt: sd * sd / (size * size)}
}

// lever is the relative change of a share's time per change of the slope.
func (f *shape) lever(size float64) float64 {
	return (size - f.at) / (1 + f.slope*(size-f.at))
}

// off is the variance of the relative time at a size that comes from doubt of the slope.
func (f *shape) off(size float64) float64 {
	if f.doubt == 0 {
		return 0
	}
	l := f.lever(size)
	return l * l * f.doubt
}

// learn moves the slope by a relative residual; variance is that of the residual's other causes.
func (f *shape) learn(size, residual, variance float64) {
	l := f.lever(size)
	all := l*l*f.doubt + variance + slopeNoise*slopeNoise
	gain := f.doubt * l / all
	f.slope = min(max(f.slope+gain*clip(residual, 3*math.Sqrt(all)), slopeLeast/f.at), 1/f.at)
	f.doubt = max(f.doubt*(1-gain*l), slopeSure*slopeSure/(f.at*f.at))
}

// move shifts the size at by a share of the way to size.
func (f *shape) move(size, share float64) {
	if f.doubt == 0 {
		return
	}
	by := share * (size - f.at)
	longer := 1 + f.slope*by
	f.at += by
	f.slope /= longer
	f.doubt /= longer * longer * longer * longer
}

// line returns the parameters of a node that computes for so many seconds at the size at.
func (f *shape) line(node *cluster.Node, seconds float64) cluster.Performance {
	return cluster.Performance{Overhead: node.Network + seconds*(1-f.slope*f.at), PerSample: seconds * f.slope}
}
