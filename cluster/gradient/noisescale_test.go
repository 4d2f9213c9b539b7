package gradient

import (
	"math"
	"math/rand/v2"
	"testing"

	"evenkeel/cluster"
)

// gradients is a report of nodes that handed in so many samples, with the norms that a noise scale
// in samples gives them in the mean, each off by a factor.
func gradients(scale float64, sizes []int, off func() float64) *cluster.Report {
	r := &cluster.Report{}
	for _, b := range sizes {
		r.Accepted += b
	}
	for _, b := range sizes {
		norm := math.Sqrt((1 + scale/float64(b)) / (1 + scale/float64(r.Accepted)))
		r.Nodes = append(r.Nodes, cluster.NodeReport{Status: cluster.In, Size: b, Samples: b, Norm: norm * off()})
	}
	return r
}

func exact() float64 { return 1 }

// Gradients of 10 and 30 samples with squares of 2 and 10/9 of their aggregate's: their mean by
// samples is 4/3. It is |G|^2 + V/20, and that of the aggregate 1 = |G|^2 + V/40: V is 40/3 and |G|^2 2/3.
func TestNoiseScaleOfARound(t *testing.T) {
	var s NoiseScale
	if _, known := s.Samples(); known || s.Sure() {
		t.Error("something is known of nothing")
	}
	r := &cluster.Report{Accepted: 40, Nodes: []cluster.NodeReport{
		{Status: cluster.In, Size: 10, Norm: math.Sqrt2}, {Status: cluster.In, Size: 30, Norm: math.Sqrt(10.0 / 9)},
		{Status: cluster.Late, Size: 10, Norm: 9}, {Status: cluster.In, Size: 0, Norm: 9}, {Status: cluster.In, Size: 10},
		{Status: cluster.In, Size: 10, Norm: math.NaN()}, {Status: cluster.In, Size: 10, Norm: math.Inf(1)},
	}}
	s.Add(r)
	if got, known := s.Samples(); !known || !near(got, 20) || !near(s.square.Mean, 2.0/3) || !near(s.variance.Mean, 40.0/3) {
		t.Errorf("scale %v (%v): square %v, variance %v; want 20 of 2/3 and 40/3", got, known, s.square.Mean, s.variance.Mean)
	}
	// The averages are divided, not the quotients averaged: the second round has S = 60, V of 24 and |G|^2 of 0.4.
	s.Add(gradients(60, []int{10, 30}, exact))
	if got, _ := s.Samples(); !near(got, (40.0/3+24)/(2.0/3+0.4)) {
		t.Errorf("scale %v of two rounds", got)
	}
	if want := math.Pow((24-40.0/3)/2, 2); !near(s.variance.Spread, want) { // each is half of the difference off their mean
		t.Errorf("spread %v, want %v", s.variance.Spread, want)
	}
	before := s
	for _, none := range []*cluster.Report{{}, gradients(20, []int{40}, exact), {Accepted: 40, Nodes: r.Nodes[2:]}} {
		if s.Add(none); s != before {
			t.Errorf("a round that says nothing moves the scale: %+v", s)
		}
	}
	s.rounds = 10_000 // from then on a round has a weight of 1/1000
	s.Add(gradients(60, []int{10, 30}, exact))
	if want := before.variance.Mean + (24-before.variance.Mean)/1000; !near(s.variance.Mean, want) {
		t.Errorf("variance %v, want %v", s.variance.Mean, want)
	}
}

// Three stages of training, norms off by 10%, equal and unequal batches: right within 20%; early and in the middle of
// training sure of it, too.
func TestNoiseScaleOfNoisyNorms(t *testing.T) {
	equal, unequal := make([]int, 16), make([]int, 16)
	for i := range equal {
		equal[i], unequal[i] = 32, 8+6*(i%9)
	}
	for _, sizes := range [][]int{equal, unequal, {40, 10, 100, 50}} {
		batch := 0
		for _, b := range sizes {
			batch += b
		}
		for _, stage := range []float64{0.6, 6, 72} {
			for seed := range uint64(5) {
				rng := rand.New(rand.NewPCG(seed, 1))
				noisy := func() float64 { return math.Sqrt(max(1+0.2*rng.NormFloat64(), 0.01)) } // the square is right in the mean
				var s NoiseScale
				scale, sure := stage*float64(batch), 0
				for range 2000 {
					s.Add(gradients(scale, sizes, noisy))
					if s.Sure() {
						sure++
					}
				}
				got, _ := s.Samples()
				if math.Abs(got/scale-1) > 0.2 {
					t.Errorf("%d nodes, stage %v, seed %d: %.3f of the truth", len(sizes), stage, seed, got/scale)
				}
				if stage < 70 && sure < 1200 {
					t.Errorf("%d nodes, stage %v, seed %d: sure in %d rounds", len(sizes), stage, seed, sure)
				}
			}
		}
	}
}

// Gradients of 400 numbers, drawn one by one, whose nodes' mean is the aggregate.
func TestNoiseScaleOfDrawnGradients(t *testing.T) {
	const numbers, batch = 400, 120
	sizes := []int{10, 20, 30, 60}
	for _, scale := range []float64{0.5 * batch, 5 * batch} {
		rng := rand.New(rand.NewPCG(3, 4))
		var s NoiseScale
		for range 600 {
			sum, squares := make([]float64, numbers), make([]float64, len(sizes))
			for i, b := range sizes {
				for d := range numbers { // the true gradient has the norm 1
					g := (1 + math.Sqrt(scale/float64(b))*rng.NormFloat64()) / math.Sqrt(numbers)
					squares[i] += g * g
					sum[d] += g * float64(b) / batch
				}
			}
			all := 0.0
			for _, g := range sum {
				all += g * g
			}
			r := gradients(0, sizes, exact)
			for i := range r.Nodes {
				r.Nodes[i].Norm = math.Sqrt(squares[i] / all)
			}
			s.Add(r)
		}
		if got, _ := s.Samples(); math.Abs(got/scale-1) > 0.2 {
			t.Errorf("scale %v, want %v", got, scale)
		}
	}
}

// Where gradients are nothing but noise the scale ends at a bound, and nobody is sure of it.
func TestNoiseScaleIsBounded(t *testing.T) {
	var s NoiseScale
	for range 50 {
		s.Add(gradients(1e12, []int{10, 30}, exact))
	}
	if got, known := s.Samples(); !known || got != 1e4*40 || s.Sure() {
		t.Errorf("scale %v (%v), sure %v", got, known, s.Sure())
	}
	s = NoiseScale{}
	for range 9 {
		s.Add(gradients(20, []int{10, 30}, exact))
	}
	if s.Sure() {
		t.Error("sure after nine rounds")
	}
	if s.Add(gradients(20, []int{10, 30}, exact)); !s.Sure() {
		t.Error("not sure of ten rounds that agree")
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(1, math.Abs(b)) }
