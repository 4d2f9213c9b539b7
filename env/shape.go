package env

import (
	"math"

	"evenkeel/cluster"
)

// shape is what is believed of the form of a node's line where no profile tells: which share of its
// time grows with its size. How long it takes is the slowdown's matter, so a node that changes
// its pace keeps its shape, and its noise and its spells are those of any other node.
//
// At a size b the node takes 1 + slope (b - at) times as long as at the size at. Sizes that differ
// tell the slope: it moves by a Kalman filter's gain, and a measurement is expected to be off by as much as the
// slope is uncertain. A measurement at the size at says nothing of it.
type shape struct {
	at    float64 // size that the slowdown rests on
	slope float64 // of the time there, for a sample more; between almost 0 and 1/at, where there is no overhead
	doubt float64 // variance of the slope; 0: the form is known
}

const (
	slopePrior = 0.75 // of slope x at: an overhead of a quarter of the time
	slopeDoubt = 0.3  // its sd
	slopeLeast = 0.1  // of slope x at
	slopeSure  = 0.03 // least sd of slope x at: no line is straight
	slopeNoise = 0.12 // sd of a measurement beside its node's noise: a spike is rare, but would leave a wrong slope
)

// begin takes the first size. Where it was worked off in several equal micro-steps, the overhead that a share has but once is
// at most one micro-step's.
func (f *shape) begin(size, steps float64) {
	sd := max(slopeDoubt/steps, slopeSure)
	*f = shape{at: size, slope: (1 - (1-slopePrior)/steps) / size, doubt: sd * sd / (size * size)}
}

// lever is how much longer a share takes, relatively, for a change of the slope.
func (f *shape) lever(size float64) float64 {
	return (size - f.at) / (1 + f.slope*(size-f.at))
}

// off is the variance of the relative time at a size for which the form is to blame.
func (f *shape) off(size float64) float64 {
	if f.doubt == 0 {
		return 0
	}
	l := f.lever(size)
	return l * l * f.doubt
}

// learn moves the slope by a relative residual, where variance is what else may have caused it.
func (f *shape) learn(size, residual, variance float64) {
	l := f.lever(size)
	all := l*l*f.doubt + variance + slopeNoise*slopeNoise
	gain := f.doubt * l / all
	f.slope = min(max(f.slope+gain*clip(residual, 3*math.Sqrt(all)), slopeLeast/f.at), 1/f.at)
	f.doubt = max(f.doubt*(1-gain*l), slopeSure*slopeSure/(f.at*f.at))
}

// move has the slowdown rest on another size, by a share of the way there.
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

// line is that of a node that computes for so many seconds at the size at.
func (f *shape) line(node *cluster.Node, seconds float64) cluster.Performance {
	return cluster.Performance{Overhead: node.Network + seconds*(1-f.slope*f.at), PerSample: seconds * f.slope}
}
