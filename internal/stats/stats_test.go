package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A bootstrap interval holds the truth about as often as it says.
func TestCoverage(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	held := 0
	const trials = 200
	for range trials {
		strata := make([][]float64, 3)
		for k := range strata {
			for range 20 {
				strata[k] = append(strata[k], 5+rng.NormFloat64())
			}
		}
		i := Bootstrap(strata)
		if i.Low > i.Mean || i.Mean > i.High {
			t.Fatalf("%+v", i)
		}
		if i.Low <= 5 && 5 <= i.High {
			held++
		}
	}
	// 95% of 200 is 190, with a standard deviation of 3.1.
	if held < 176 {
		t.Errorf("%d of %d intervals hold the truth", held, trials)
	}
}

func TestSeeds(t *testing.T) {
	values := []float64{1, 2, 3, 4, 5}
	i := Seeds(len(values), func(pick []int) float64 {
		sum := 0.0
		for _, k := range pick {
			sum += values[k]
		}
		return sum / float64(len(pick))
	})
	if i.Mean != 3 || !(i.Low < 2.5 && i.Low > 1 && i.High > 3.5 && i.High < 5) {
		t.Errorf("%+v", i)
	}
}

// With the rate 1/n all values count alike: by hand, 1, 2, 6 have the mean 3 and the variance 14/3.
func TestMoving(t *testing.T) {
	var m Moving
	for i, v := range []float64{1, 2, 6} {
		m.Add(v, 1/float64(i+1))
	}
	if math.Abs(m.Mean-3) > 1e-12 || math.Abs(m.Spread-14.0/3) > 1e-12 {
		t.Errorf("%+v", m)
	}
	// A tenth of what is new: the mean moves by .4, the variance to .9 (14/3 + .1 x 16).
	if m.Add(7, 0.1); math.Abs(m.Mean-3.4) > 1e-12 || math.Abs(m.Spread-0.9*(14.0/3+1.6)) > 1e-12 {
		t.Errorf("%+v", m)
	}
}
