package train

import (
	"cmp"
	"errors"
	"math"
	"strings"
	"testing"
)

// The updates by hand, from the papers' formulas in float64.
func TestOptimizers(t *testing.T) {
	for _, o := range []Optimizer{
		{Method: SGD, Rate: 0.1}, {Method: SGD, Rate: 0.1, WeightDecay: 0.2}, {Method: Momentum, Rate: 0.05, Momentum: 0.8},
		{Method: Momentum, Rate: 0.05}, {Method: AdamW, Rate: 0.01}, {Method: AdamW, Rate: 0.01, Beta1: 0.5, Beta2: 0.9, WeightDecay: 0.1},
	} {
		if err := o.validate(); err != nil {
			t.Fatal(err)
		}
		w := []float32{0.7}
		moments := [][]float32{{0}, {0}}[:o.Moments()]
		want, m, v := 0.7, 0.0, 0.0
		for step := uint64(1); step <= 20; step++ {
			g := math.Sin(float64(step))
			o.Update(step, w, []float32{float32(g)}, moments...)
			want -= o.Rate * o.WeightDecay * want
			switch o.Method {
			case SGD:
				want -= o.Rate * g
			case Momentum:
				m = cmp.Or(o.Momentum, 0.9)*m + g
				want -= o.Rate * m
			case AdamW:
				b1, b2 := cmp.Or(o.Beta1, 0.9), cmp.Or(o.Beta2, 0.999)
				m, v = b1*m+(1-b1)*g, b2*v+(1-b2)*g*g
				want -= o.Rate * (m / (1 - math.Pow(b1, float64(step)))) / (math.Sqrt(v/(1-math.Pow(b2, float64(step)))) + 1e-8)
			}
			if math.Abs(float64(w[0])-want) > 1e-5 {
				t.Fatalf("%+v, step %d: %v, want %v", o, step, w[0], want)
			}
		}
	}
	err := Optimizer{Method: "adam", Rate: math.NaN(), Beta1: 1, WeightDecay: -1}.validate()
	for _, want := range []string{`"adam"`, "learning rate NaN", "beta1 1", "weight decay -1"} {
		if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not tell %s", err, want)
		}
	}
}
