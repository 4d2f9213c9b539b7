package env

import (
	"math"
	"testing"

	"evenkeel/cluster"
	"evenkeel/env/internal/envtest"
)

// noisy is a belief with slowdown 1 and the given deviation of measurements.
func noisy(deviation float64) belief {
	b := newBelief(cluster.Performance{Overhead: 0.1, PerSample: 0.01}, true)
	b.deviance = deviation * normalAbs
	return b
}

func TestNewBelief(t *testing.T) {
	base := cluster.Performance{Overhead: 0.1, PerSample: 0.01}
	known, unknown := newBelief(base, true), newBelief(base, false)
	if known.unknown || !unknown.unknown || unknown.form != (shape{}) {
		t.Error("the form of a line is learnt exactly if there is no profile")
	}
	if known.base != base || known.slowdown != 1 || known.level != 1 || known.variance != 6 || !near(known.deviation(), 0.03) {
		t.Errorf("%+v", known)
	}
}

func TestNoiseOfABelief(t *testing.T) {
	for _, x := range []struct{ before, change, count, want float64 }{
		{0.04, 0.08, 2, 0.048},                     // a fifth of the way
		{0.04, 0, 2, 0.032},                        // and back
		{0.04, 1, 5, 0.04 + (0.24-0.04)/8},         // a jump counts as six times the noise
		{0.04, 0.08, 1000, 0.0404},                 // later a hundredth
		{0.04, 1, 1000, 0.04 + 0.01*(0.1206-0.04)}, // 3.015 times
	} {
		b := belief{deviance: x.before}
		b.learnNoise(x.change, x.count)
		if !near(b.deviance, x.want) {
			t.Errorf("%+v: %v", x, b.deviance)
		}
	}
	if got := (&belief{}).deviation(); got != 5e-4 {
		t.Errorf("the least deviation is %v", got)
	}
}

func TestSurprising(t *testing.T) {
	b := noisy(0.1)
	b.variance = 3 // doubt doubles what may be noise
	for residual, want := range map[float64]bool{0.79: false, 0.81: true, -0.79: false, -0.81: true} {
		if b.surprising(residual, 0) != want {
			t.Errorf("residual %v: %v", residual, !want)
		}
	}
	if certain := (belief{}); certain.surprising(0.999*jumpAt*5e-4, 0) || !certain.surprising(1.001*jumpAt*5e-4, 0) {
		t.Error("the threshold is four deviations")
	}
	// A line that may be off by 0.15 at this size: in all 0.25, as 0.2 and 0.15 are.
	for residual, want := range map[float64]bool{0.99: false, 1.01: true, -0.99: false, -1.01: true} {
		if b.surprising(residual, 0.15*0.15) != want {
			t.Errorf("residual %v at another size: %v", residual, !want)
		}
	}
}

func TestRemember(t *testing.T) {
	b := noisy(0.1)
	b.remember(1.5)
	if b.level != 1.5 || b.levels != 1 {
		t.Errorf("the first level %v of %v", b.level, b.levels)
	}
	b = noisy(0.1)
	b.levels = 1
	b.remember(1.2) // half of the way, then a third
	b.remember(1.4)
	if !near(b.level, 1.2) || b.levels != 3 || b.strange != 0 {
		t.Errorf("level %v of %v, %d strange", b.level, b.levels, b.strange)
	}
	b.level, b.levels, b.strange = 1, 99, 5
	b.remember(1.1)
	if !near(b.level, 1.002) || b.levels != 100 || b.strange != 0 {
		t.Errorf("after a hundred measurements level %v of %v, %d strange", b.level, b.levels, b.strange)
	}
	// A level of one measurement may be off by as much again.
	b.level, b.levels = 1, 1
	if b.remember(1 + 4*0.1*math.Sqrt2*0.999); b.strange != 0 {
		t.Error("a measurement that fits is strange")
	}
	b.level, b.levels = 1, 1
	if b.remember(1 + 4*0.1*math.Sqrt2*1.001); b.strange != 1 {
		t.Error("a measurement that does not fit is not strange")
	}
	// A level is replaced after four times as many measurements as it has, at most 60.
	for levels, rounds := range map[float64]int{1: 4, 2: 8, 15: 60, 100: 60} {
		b = noisy(0.01)
		b.levels, b.slowdown = levels, 2
		for k := range rounds {
			b.remember(2)
			if b.level != 1 || b.strange != k+1 || b.levels != levels {
				t.Fatalf("level %v of %v after %d rounds", b.level, b.levels, k+1)
			}
		}
		if b.remember(2); b.level != 2 || b.levels != 1 || b.strange != 0 {
			t.Errorf("level %v of %v, %d strange after %d rounds", b.level, b.levels, b.strange, rounds+1)
		}
	}
}

// Work under way is expected at the time that the belief predicts; if it is overdue, the action guesses.
func TestAwait(t *testing.T) {
	node := &envtest.Mixed(t, 1).Nodes[0]
	due := func(b *belief) float64 { return node.Finish(node.Slowed(b.base, b.slowdown), 20) }
	late := Action{Trust: Return, guess: 6}
	b := noisy(0.1)
	b.left, b.level = 9, 1.5
	if b.await(&late, &seen{}, node); b.left != 0 || b.slowdown != 1 {
		t.Errorf("nothing under way: %v left, slowdown %v", b.left, b.slowdown)
	}
	s := seen{busySize: 20, busy: 0.4 * due(&b), late: true, count: 5}
	if b.await(&late, &s, node); !near(b.left, 0.6*due(&b)) || b.slowdown != 1 {
		t.Errorf("in time: %v left, slowdown %v", b.left, b.slowdown)
	}
	s.busy, s.late = due(&b), false
	if b.await(&late, &s, node); !near(b.left, 0.04*s.busy) || b.slowdown != 1 {
		t.Errorf("measured meanwhile: %v left, slowdown %v", b.left, b.slowdown)
	}
	s.late = true
	if b.await(&late, &s, node); !near(b.left, 0.12*s.busy) || b.slowdown != 1.5 || b.variance != 6 {
		t.Errorf("a spell is over: %v left, slowdown %v, variance %v", b.left, b.slowdown, b.variance)
	}
	b = noisy(0.1)
	b.variance, b.level = 0.5, 1.5
	if b.await(&Action{Trust: Hold, guess: 1}, &s, node); !near(b.left, 0.12*s.busy) || b.slowdown != 1 || b.variance != 0.5 {
		t.Errorf("noise: %v left, slowdown %v, variance %v", b.left, b.slowdown, b.variance)
	}
	slower := node.Slowness(b.base, &cluster.NodeReport{Size: 20, Seconds: 1.4 * s.busy})
	if b.await(&Action{Trust: Filter, guess: 4}, &s, node); !near(b.left, 0.4*s.busy) || !near(b.slowdown, slower) || b.variance != 1 {
		t.Errorf("slower: %v left, slowdown %v (want %v), variance %v", b.left, b.slowdown, slower, b.variance)
	}
	b = noisy(0.1)
	s.count = 0 // nothing says that the node is faster
	if b.await(&Action{Trust: Hold, guess: 0}, &s, node); !(b.slowdown > 1) || b.variance != 6 {
		t.Errorf("never measured: slowdown %v, variance %v", b.slowdown, b.variance)
	}
}
