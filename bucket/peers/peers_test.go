package peers

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/bucket"
	"github.com/evenkeel/evenkeel/bucket/plain"
)

// formula is t = a + b BL + c BL^2 with memory BL(1+L/m) <= 65536.
type formula struct{ a, b, c, m float64 }

func (f formula) Seconds(l, n int) float64 {
	bl := float64(l) * float64(n)
	return f.a + f.b*bl + f.c*bl*float64(l)
}

func (formula) Breaks(int) []int { return nil }

func (f formula) Cap(l int) int { return int(65536 / (float64(l) * (1 + float64(l)/f.m))) }

var costA = formula{.08, 4e-5, 4e-9, 8192}

func lognormal(n int, median, sigma float64, limit int) bucket.Lengths {
	r := rand.New(rand.NewPCG(1, 2))
	l := make(bucket.Lengths, n)
	for i := range l {
		l[i] = uint32(min(float64(limit), max(1, math.Round(median*math.Exp(sigma*r.NormFloat64())))))
	}
	return l
}

// Peers lose only what their rules drop, and the bound lies below them.
func TestPeers(t *testing.T) {
	l := lognormal(20000, 400, .8, 4096)
	bound := plain.Bound(l, costA, slices.Repeat([]float64{1}, 8))
	for _, p := range All() {
		s, err := bucket.Judge(l, bucket.Listed(p.Cut(l, costA, 8, SafeTokens(l, costA), rand.New(rand.NewPCG(1, 1)))), costA, slices.Repeat([]float64{1}, 8), 0, nil)
		if err != nil {
			t.Fatal(p.Name, err)
		}
		if s.Repeated > 0 || s.Lost > 0 && !strings.Contains(p.Name, "grouped") || s.Lost == 0 && s.EpochSeconds < bound || strings.HasPrefix(p.Name, "fairseq") && s.OutOfMemory > 0 {
			t.Errorf("%s: %+v, bound %v", p.Name, s, bound)
		}
	}
}
