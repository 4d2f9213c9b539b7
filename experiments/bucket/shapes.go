package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/evenkeel/evenkeel/bucket"
	"github.com/evenkeel/evenkeel/bucket/peers"
	"github.com/evenkeel/evenkeel/bucket/plain"
	"github.com/evenkeel/evenkeel/bucket/stepcost"
)

// shape is a device whose steps take the formula's time of other lengths and batches than were given.
type shape struct {
	name string
	formula
	length func(int) int
	batch  func(int) int
	tile   float64 // tokens are rounded up to tiles; 0: no
	floor  float64 // no step takes less than so many tokens do
	config bucket.Config
}

func (s shape) Seconds(l, n int) float64 {
	l, n = s.length(l), s.batch(n)
	tokens := float64(l) * float64(n)
	if s.tile > 0 {
		tokens = math.Ceil(tokens/s.tile) * s.tile
	}
	tokens = max(tokens, s.floor)
	return s.a + s.b*tokens + s.c*tokens*float64(l)
}

// Breaks are where the time steps up.
func (s shape) Breaks(l int) (out []int) {
	top := s.Cap(l)
	switch {
	case s.batch(1) > 1:
		for n := s.batch(1); n <= top; n += s.batch(1) {
			out = append(out, n)
		}
	case s.tile > 0:
		for tokens := s.tile; tokens <= float64(top*s.length(l)); tokens += s.tile {
			if n := int(tokens) / s.length(l); n > 0 {
				out = append(out, n)
			}
		}
	case s.floor > 0:
		out = append(out, max(1, int(s.floor)/s.length(l)))
	}
	return out
}

func (s shape) Cap(l int) int { return s.formula.Cap(s.length(l)) }

// Run is a trial.
func (s shape) Run(_ context.Context, length, batch int) (stepcost.Trial, error) {
	l := float64(s.length(length))
	return stepcost.Trial{Seconds: s.Seconds(length, batch), OutOfMemory: batch > s.Cap(length), PeakBytes: int64(l * float64(batch) * (1 + l/s.m))}, nil
}

func multiple(m int) func(int) int { return func(n int) int { return (n + m - 1) / m * m } }

// shapes profiles devices of six kinds at 24 lengths, plans by that, and is judged by the true times.
func shapes(b *strings.Builder) error {
	base := formula{.08, 4e-5, 4e-9, 8192, 65536}
	same := multiple(1)
	config := func(pad, batch int) bucket.Config {
		return bucket.Config{Ranks: ranks, PadTo: pad, BatchMultiple: batch}
	}
	b.WriteString("| the device | flags | predicted by | predicted / real | of the bound | mixing 0 | of fairseq's grouped rule at its best limit | mixing 0 | out of memory |\n|---|---|---|---|---|---|---|---|---|\n")
	l := lognormal(200000, 400, .8, 4096)
	speeds := make([]float64, ranks)
	for i := range speeds {
		speeds[i] = 1
	}
	for _, s := range []shape{
		{"the formula", base, same, same, 0, 0, config(0, 0)},
		{"lengths padded to 64", base, multiple(64), same, 0, 0, config(64, 0)},
		{"lengths padded to 64, not said", base, multiple(64), same, 0, 0, config(0, 0)},
		{"tiles of 1,024 tokens", base, same, same, 1024, 0, config(0, 0)},
		{"tiles of 4,096 tokens, lengths padded to 128", base, multiple(128), same, 4096, 0, config(128, 0)},
		{"no less than 6,000 tokens", base, same, same, 0, 6000, config(0, 0)},
		{"batches in eights", base, same, multiple(8), 0, 0, config(0, 8)},
	} {
		uppers, err := plain.Uppers(l, 24)
		if err != nil {
			return err
		}
		table, err := stepcost.Profile(context.Background(), s, stepcost.Profiling{Lengths: uppers, MaxBatch: 1 << 16, PadTo: s.config.PadTo, BatchMultiple: s.config.BatchMultiple})
		if err != nil {
			return err
		}
		model, err := stepcost.New(table, 65536)
		if err != nil {
			return err
		}
		var seconds, off [2]float64
		oom := 0
		for k, mixing := range []float64{bucket.DefaultMixing, 0} {
			s.config.Mixing = &mixing
			score, p, err := ours(l, model, s, s.config)
			if err != nil {
				return err
			}
			seconds[k], off[k] = score.EpochSeconds, p.EpochSeconds/score.EpochSeconds
			oom += score.OutOfMemory
		}
		padded := make(bucket.Lengths, len(l)) // the rule counts what is padded too
		for i, v := range l {
			padded[i] = uint32(s.length(int(v)))
		}
		grouped := math.Inf(1)
		for _, rule := range peers.All() {
			for part := 1.0; rule.Name == "fairseq, grouped, multiple 1" && part > .5; part -= .05 {
				cut := rule.Cut(padded, s, ranks, int(part*float64(peers.SafeTokens(padded, s))), rand.New(rand.NewPCG(1, 0)))
				x, err := bucket.Judge(l, bucket.Listed(cut), s, speeds, 0, nil)
				if err != nil {
					return err
				}
				grouped = min(grouped, x.EpochSeconds*float64(total(l))/float64(tokens(l, cut)))
			}
		}
		bound := plain.Bound(l, s, speeds)
		fmt.Fprintf(b, "| %s | %s | %s | %.4f | %.4f | %.4f | %.4f | %.4f | %d |\n", s.name, flags(s.config), model.Smoothed(), off[0],
			seconds[0]/bound, seconds[1]/bound, seconds[0]/grouped, seconds[1]/grouped, oom)
	}
	return nil
}

func total(l bucket.Lengths) (n int) {
	for _, v := range l {
		n += int(v)
	}
	return n
}

func flags(c bucket.Config) string {
	switch {
	case c.PadTo > 0:
		return fmt.Sprintf("`--pad-to %d`", c.PadTo)
	case c.BatchMultiple > 0:
		return fmt.Sprintf("`--batch-multiple %d`", c.BatchMultiple)
	}
	return ""
}
