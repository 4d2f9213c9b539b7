package bucket

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// formula is a Cost with t = a + b BL + c BL^2 and memory BL(1+L/m) <= 65536.
type formula struct{ a, b, c, m float64 }

func (f formula) Seconds(l, n int) float64 {
	bl := float64(l) * float64(n)
	return f.a + f.b*bl + f.c*bl*float64(l)
}
func (f formula) Cap(l int) int { return int(65536 / (float64(l) * (1 + float64(l)/f.m))) }

var (
	costA = formula{.08, 4e-5, 4e-9, 8192}
	costB = formula{.3, 4e-5, 8e-9, 16384}
)

func lognormal(n int, median, sigma float64, limit int) Lengths {
	r := rand.New(rand.NewPCG(1, 2))
	l := make(Lengths, n)
	for i := range l {
		l[i] = uint32(min(float64(limit), max(1, math.Round(median*math.Exp(sigma*r.NormFloat64())))))
	}
	return l
}

func TestSettings(t *testing.T) {
	for _, c := range []struct {
		name   string
		l      Lengths
		cost   Cost
		speeds []float64
	}{
		{"A", lognormal(1000000, 400, .8, 4096), costA, nil},
		{"B", lognormal(300000, 800, 1.2, 16384), costB, nil},
		{"A124", lognormal(1000000, 400, .8, 4096), costA, []float64{1, 2, 4}},
		{"B124", lognormal(300000, 800, 1.2, 16384), costB, []float64{1, 2, 4}},
		{"A1 1.7 2.3", lognormal(1000000, 400, .8, 4096), costA, []float64{1, 1.7, 2.3}},
	} {
		begun := time.Now()
		f := Config{Speeds: c.speeds}
		if c.speeds == nil {
			f.Ranks = 8
		}
		p, err := Make(c.l, c.cost, f)
		if err != nil {
			t.Fatal(err)
		}
		planned := time.Since(begun)
		s := p.Schedule(c.l, 1, 1)
		s.Fill()
		all := time.Since(begun)
		score, err := Judge(c.l, s.All(), c.cost, p.Speeds, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s bound %.1f ratio %.5f modes %v T %.3f byT %.0f planned %v all %v\n pred %+v\n real %+v", c.name, p.LowerBoundSeconds, score.EpochSeconds/p.LowerBoundSeconds, p.Modes, p.AnchorSeconds, p.AnchorEpochT, planned, all, p.Score, score)
		if score.OutOfMemory+score.Lost+score.Repeated > 0 {
			t.Error("lost, repeated or out of memory")
		}
	}
}
