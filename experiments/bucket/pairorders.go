package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/bucket"
	"github.com/evenkeel/evenkeel/bucket/paired"
)

// pairOrders compares orders of samples with two lengths on one rank: each is cut from its end into batches of one duration, the best of ten; ours
// by dynamic programming, too.
func pairOrders(b *strings.Builder, folder string) error {
	all, err := pairSettings(folder)
	if err != nil {
		return err
	}
	b.WriteString("| data | source, then target | target, then source | longer of both | duration | bands | batches | bands, cut by dynamic programming |\n|---|---|---|---|---|---|---|---|\n")
	for _, s := range all {
		l, err := paired.New(s.sources, s.targets)
		if err != nil {
			return err
		}
		none := 0.0
		p, err := paired.Make(l, s.cost, bucket.Config{Ranks: 1, Mixing: &none})
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "| %s |", s.name)
		source := func(i uint32) float64 { return float64(s.sources[i]) }
		target := func(i uint32) float64 { return float64(s.targets[i]) }
		longer := func(i uint32) float64 { return max(source(i), target(i)) }
		duration := func(i uint32) float64 { return s.cost.Seconds(int(s.sources[i]), int(s.targets[i]), 1) }
		for _, by := range [][2]func(uint32) float64{{source, target}, {target, source}, {longer, source}, {duration, source}} {
			order := make([]uint32, len(s.sources))
			for i := range order {
				order[i] = uint32(i)
			}
			slices.SortFunc(order, func(a, b uint32) int {
				return cmp.Or(cmp.Compare(by[0](a), by[0](b)), cmp.Compare(by[1](a), by[1](b)), cmp.Compare(a, b))
			})
			fmt.Fprintf(b, " %.4f |", s.cutAt(order)/p.LowerBoundSeconds)
		}
		x := p.Schedule(l.Kinds, 1, 0)
		slices.SortFunc(x.Batches, func(a, b bucket.Batch) int { return cmp.Compare(a.Start, b.Start) })
		var order []uint32
		for _, batch := range x.Batches {
			order = append(order, x.Samples(batch)...)
		}
		fmt.Fprintf(b, " %.4f | %d | %.4f |\n", p.EpochSeconds/p.LowerBoundSeconds, len(x.Batches), s.cutBest(order)/p.LowerBoundSeconds)
	}
	return nil
}

// cutAt is the least time of the order cut into batches of one duration.
func (s *pairSetting) cutAt(order []uint32) float64 {
	least := math.Inf(1)
	for k := range 10 {
		most, sum := 64*s.cost.a*math.Pow(.7, float64(k)), 0.0
		for pos := len(order); pos > 0; {
			source, target, n := 0, 0, 0
			for n < pos {
				i := order[pos-n-1]
				a, b := max(source, int(s.sources[i])), max(target, int(s.targets[i]))
				if n > 0 && (n+1 > s.cost.Cap(a, b) || s.cost.Seconds(a, b, n+1) > most) {
					break
				}
				source, target, n = a, b, n+1
			}
			sum += s.cost.Seconds(source, target, n)
			pos -= n
		}
		least = min(least, sum)
	}
	return least
}

// cutBest is the least time of the order cut into batches of any durations.
func (s *pairSetting) cutBest(order []uint32) float64 {
	best := make([]float64, len(order)+1)
	for pos := 1; pos <= len(order); pos++ {
		best[pos] = math.Inf(1)
		source, target := 0, 0
		for n := 1; n <= pos; n++ {
			i := order[pos-n]
			source, target = max(source, int(s.sources[i])), max(target, int(s.targets[i]))
			if n > s.cost.Cap(source, target) {
				break
			}
			best[pos] = min(best[pos], best[pos-n]+s.cost.Seconds(source, target, n))
		}
	}
	return best[len(order)]
}
