package train

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// The updates by hand, from the papers' formulas in float64.
func TestOptimizers(t *testing.T) {
	for _, o := range []Optimizer{
		{Method: SGD, Rate: 0.1}, {Method: Momentum, Rate: 0.05}, {Method: AdamW, Rate: 0.01},
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
			switch o.Method {
			case SGD:
				want -= o.Rate * g
			case Momentum:
				m = 0.9*m + g
				want -= o.Rate * m
			case AdamW:
				const b1, b2 = 0.9, 0.999
				m, v = b1*m+(1-b1)*g, b2*v+(1-b2)*g*g
				want -= o.Rate * (m / (1 - math.Pow(b1, float64(step)))) / (math.Sqrt(v/(1-math.Pow(b2, float64(step)))) + 1e-8)
			}
			if math.Abs(float64(w[0])-want) > 1e-5 {
				t.Fatalf("%+v, step %d: %v, want %v", o, step, w[0], want)
			}
		}
	}
	err := Optimizer{Method: "adam", Rate: math.NaN()}.validate()
	for _, want := range []string{`"adam"`, "learning rate NaN"} {
		if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not tell %s", err, want)
		}
	}
}
