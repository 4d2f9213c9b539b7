package adam_test

import (
	"math"
	"testing"

	"evenkeel/internal/adam"
)

// The update by the papers' formulas in float64.
func TestUpdate(t *testing.T) {
	for _, s := range []adam.Step{{Rate: 0.01, Scale: 1, Keep: 1}, {Rate: 0.1, Scale: 0.25, Keep: 1}, {Rate: 0.02, Scale: 1, Keep: 0.9}} {
		c := adam.Config{Beta1: 0.75, Beta2: 0.875, Epsilon: 1e-3} // exact in float32
		w, m, v := []float32{0.7, -2}, []float32{0, 0}, []float32{0, 0}
		want, first, second := []float64{0.7, -2}, []float64{0, 0}, []float64{0, 0}
		s.Power1, s.Power2 = 1, 1
		for step := 1; step <= 30; step++ {
			s.Power1 *= 0.75
			s.Power2 *= 0.875
			g := []float32{float32(math.Sin(float64(step))), 3}
			c.Update(w, g, m, v, s)
			for i := range want {
				g := float64(g[i]) * float64(s.Scale)
				first[i] = 0.75*first[i] + 0.25*g
				second[i] = 0.875*second[i] + 0.125*g*g
				unbiased := first[i] / (1 - s.Power1)
				want[i] = want[i]*float64(s.Keep) - s.Rate*unbiased/(math.Sqrt(second[i]/(1-s.Power2))+1e-3)
				if math.Abs(float64(w[i])-want[i]) > 2e-6*(1+math.Abs(want[i])) {
					t.Fatalf("%+v, step %d: weight %d is %v, want %v", s, step, i, w[i], want[i])
				}
			}
		}
	}
}
