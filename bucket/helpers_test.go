package bucket

import (
	"math"
	"math/rand/v2"
)

func with(mixing float64) *float64 { return &mixing }

// Formula is a Cost with t = a + b BL + c BL^2 and memory BL(1+L/m) <= 65536.
type Formula struct{ Fixed, Token, Square, Room float64 }

func (f Formula) Seconds(length, n int) float64 {
	bl := float64(length) * float64(n)
	return f.Fixed + f.Token*bl + f.Square*bl*float64(length)
}

func (f Formula) Cap(length int) int {
	return int(65536 / (float64(length) * (1 + float64(length)/f.Room)))
}

// Two costs: the second has a larger fixed time and long samples that cost more.
var (
	A = Formula{.08, 4e-5, 4e-9, 8192}
	B = Formula{.3, 4e-5, 8e-9, 16384}
)

// Lognormal draws lengths, the same for the same arguments.
func Lognormal(n int, median, sigma float64, limit int) Lengths {
	r := rand.New(rand.NewPCG(1, 2))
	l := make(Lengths, n)
	for i := range l {
		l[i] = uint32(min(float64(limit), max(1, math.Round(median*math.Exp(sigma*r.NormFloat64())))))
	}
	return l
}

// capped holds a number of padded tokens.
type capped struct {
	Formula
	limit int
}

func (c capped) Cap(l int) int { return c.limit / l }
