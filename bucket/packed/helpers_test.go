package packed

import (
	"math"
	"math/rand/v2"

	"evenkeel/bucket"
)

// formula is a Cost with t = a + b BL + c BL^2 and memory BL(1+L/m) <= 65536.
type formula struct{ a, b, c, m float64 }

func (f formula) Seconds(l, n int) float64 {
	bl := float64(l) * float64(n)
	return f.a + f.b*bl + f.c*bl*float64(l)
}
func (f formula) Breaks(int) []int { return nil }
func (f formula) Cap(l int) int    { return int(65536 / (float64(l) * (1 + float64(l)/f.m))) }

var costA = formula{.08, 4e-5, 4e-9, 8192}

func lognormal(n int, median, sigma float64, limit int) bucket.Lengths {
	r := rand.New(rand.NewPCG(1, 2))
	l := make(bucket.Lengths, n)
	for i := range l {
		l[i] = uint32(min(float64(limit), max(1, math.Round(median*math.Exp(sigma*r.NormFloat64())))))
	}
	return l
}
