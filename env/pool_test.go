package env

import (
	"math"
	"math/rand/v2"
	"testing"
)

// If all nodes are equally noisy, their margins become equal; otherwise each keeps its own.
func TestPoolSharesWhatNodesHaveInCommon(t *testing.T) {
	for _, x := range []struct {
		name        string
		noise       func(node int) float64
		least, most float64 // spread of the pooled deviations over that of the nodes' own
	}{
		{"equal", func(int) float64 { return 0.3 }, 0, 0.5},
		{"unequal", func(i int) float64 { return 0.02 * math.Pow(10, float64(i%2)) }, 0.97, 1},
	} {
		r, rng := newRig(t, 16), rand.New(rand.NewPCG(6, 7))
		factors := make([]float64, 16)
		for range 150 {
			for i := range factors {
				factors[i] = math.Exp(x.noise(i) * rng.NormFloat64())
			}
			r.round(-1, factors...)
		}
		var own, pooled []float64
		for i := range r.tracker.nodes {
			own = append(own, math.Log(r.tracker.nodes[i].deviation()))
			pooled = append(pooled, math.Log(r.tracker.nodes[i].pooled))
		}
		if got := spreadOf(pooled) / spreadOf(own); got < x.least || got > x.most {
			t.Errorf("%s noise: the pooled deviations spread %.3f of the nodes' own, want %v to %v", x.name, got, x.least, x.most)
		}
	}
}

func spreadOf(values []float64) float64 {
	mean, square := 0.0, 0.0
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		square += (v - mean) * (v - mean)
	}
	return math.Sqrt(square)
}

// Five nodes of which one was never measured, by hand.
func TestPoolByHand(t *testing.T) {
	r := newRig(t, 5)
	for i := range r.tracker.nodes {
		r.tracker.nodes[i].deviance = 0.1 * math.Exp(0.1*float64(i)) * normalAbs
		r.tracker.nodes[i].count = []float64{7, 7, 500, 500, 1}[i]
	}
	r.tracker.pool()
	// Logarithms 0, .1, .2 and .3 above that of .1: mean .15, variance .05/3; by chance (.6/10 + .6/10 + .6/200 + .6/200)/4.
	keep := 1 - 1.0/3*0.0315/(0.05/3)
	for i, want := range []float64{0.15 - 0.15*keep, 0.15 - 0.05*keep, 0.15 + 0.05*keep, 0.15 + 0.15*keep, 0.4} {
		if got := math.Log(r.tracker.nodes[i].pooled / 0.1); math.Abs(got-want) > 1e-6 {
			t.Errorf("node %d: %.6f, want %.6f", i, got, want)
		}
	}
	// All of the difference may be chance, and three nodes say nothing.
	for i := range r.tracker.nodes {
		r.tracker.nodes[i].count = 2
	}
	if r.tracker.pool(); r.tracker.nodes[0].pooled != r.tracker.nodes[4].pooled || math.Abs(math.Log(r.tracker.nodes[0].pooled/0.1)-0.2) > 1e-6 {
		t.Errorf("pooled %v and %v", r.tracker.nodes[0].pooled, r.tracker.nodes[4].pooled)
	}
	r.tracker.nodes[3].count, r.tracker.nodes[4].count = 1, 1
	if r.tracker.pool(); math.Abs(r.tracker.nodes[0].pooled-0.1) > 1e-9 {
		t.Errorf("pooled %v of three nodes", r.tracker.nodes[0].pooled)
	}
}

// Margins are relative to the pooled noise.
func TestMarginsAreForThePooledNoise(t *testing.T) {
	r := newRig(t, 4)
	n := &r.tracker.nodes[2]
	n.pooled, n.margin, n.variance = 0.2, 0.5, 3
	if got, want := n.performance(&r.cluster.Nodes[2]).PerSample, 1.2*n.base.PerSample; math.Abs(got-want) > 1e-12 {
		t.Errorf("%v seconds a sample, want %v", got, want)
	}
}
