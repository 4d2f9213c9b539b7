// Command bucket measures batching by length against other systems' rules, on settings
// with a known lower bound and on real lengths, and prints a table of docs/results/bucket.md.
//
//	go run ./experiments/bucket [-lengths FOLDER] real | mixing | unequal
//
// The folder holds azure_llm_conv_tokens.csv, multi30k_en_de_words.csv, gsm8k_words.csv
// and speech_utterance_seconds.csv; without it, mixing leaves out its rows of real lengths.
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"evenkeel/bucket"
	"evenkeel/bucket/lengthfile"
	"evenkeel/experiments/internal/program"
)

const ranks = 8

func main() {
	folder := flag.String("lengths", "", "folder of real lengths")
	flag.Parse()
	tables := map[string]func() error{
		"real":    func() error { return real(*folder) },
		"mixing":  func() error { return mixing(*folder) },
		"unequal": unequal,
	}
	table := tables[flag.Arg(0)]
	if table == nil {
		fmt.Fprintln(os.Stderr, "bucket: name a table: real, mixing or unequal")
		os.Exit(2)
	}
	program.Main(func(context.Context) error { return table() })
}

// formula is t = a + bBL + cBL^2 with memory BL(1 + L/m) <= limit.
type formula struct{ a, b, c, m, limit float64 }

func (f formula) Seconds(l, n int) float64 {
	bl := float64(l) * float64(n)
	return f.a + f.b*bl + f.c*bl*float64(l)
}

func (f formula) Cap(l int) int {
	return int(f.limit / (float64(l) * (1 + float64(l)/f.m)))
}

// setting is one of the two with a known bound.
type setting struct {
	name    string
	lengths bucket.Lengths
	cost    formula
}

func lognormal(n int, median, sigma float64, limit int) bucket.Lengths {
	r := rand.New(rand.NewPCG(1, 2))
	l := make(bucket.Lengths, n)
	for i := range l {
		l[i] = uint32(min(float64(limit), max(1, math.Round(median*math.Exp(sigma*r.NormFloat64())))))
	}
	return l
}

func settings() []setting {
	return []setting{
		{"A: 1M lengths, lognormal, median 400, sigma 0.8, at most 4096", lognormal(1000000, 400, .8, 4096), formula{.08, 4e-5, 4e-9, 8192, 65536}},
		{"B: 300k lengths, lognormal, median 800, sigma 1.2, at most 16384", lognormal(300000, 800, 1.2, 16384), formula{.3, 4e-5, 8e-9, 16384, 65536}},
	}
}

const groupedRule = "fairseq, grouped"

const heading = "| system | epoch s | of the bound | imbalance | p99 | padding % | out of memory | lost | repeated |\n|---|---|---|---|---|---|---|---|---|\n"

func row(name string, s bucket.Score, bound float64) string {
	return fmt.Sprintf("| %s | %.1f | %.4f | %.4f | %.4f | %.3f | %d | %d | %d |\n",
		name, s.EpochSeconds, s.EpochSeconds/bound, s.Imbalance, s.ImbalanceP99, 100*s.Padding, s.OutOfMemory, s.Lost, s.Repeated)
}

// compare scores the peers, the default, and no mixing.
func compare(name string, l bucket.Lengths, c bucket.Cost) error {
	sorted := 0.0
	first, plan, err := ours(l, c, bucket.Config{Ranks: ranks, Mixing: &sorted})
	if err != nil {
		return err
	}
	bound := plan.LowerBoundSeconds
	fmt.Printf("**%s.** Lower bound %.1f s.\n\n%s", name, bound, heading)
	safe := safeTokens(l, c)
	grouped := 0.0 // seconds per token: it loses samples, the longest
	for _, p := range peers() {
		cut := p.cut(l, safe, rand.New(rand.NewPCG(1, 0)))
		s, err := bucket.Judge(l, cut, c, plan.Speeds, 0)
		if err != nil {
			return err
		}
		fmt.Print(row(p.name, s, bound))
		if p.name == groupedRule {
			grouped = s.EpochSeconds / float64(tokens(l, cut))
		}
	}
	second, _, err := ours(l, c, bucket.Config{Ranks: ranks})
	if err != nil {
		return err
	}
	fmt.Print(row("evenkeel, mixing 0", first, bound), row("**evenkeel, default**", second, bound))
	fmt.Printf("\nPer token computed, evenkeel's default takes %.4f of the time of fairseq's grouped rule.\n\n", second.EpochSeconds/float64(total(l))/grouped)
	return nil
}

// tokens is how many a schedule computes, padding left out.
func tokens(l bucket.Lengths, steps [][]bucket.RankBatch) (n int) {
	for _, s := range steps {
		for _, b := range s {
			for _, i := range b.Samples {
				n += int(l[i])
			}
		}
	}
	return n
}

func ours(l bucket.Lengths, c bucket.Cost, f bucket.Config) (bucket.Score, *bucket.Plan, error) {
	p, err := bucket.Make(l, c, f)
	if err != nil {
		return bucket.Score{}, nil, err
	}
	s, err := bucket.Judge(l, p.Schedule(l, 1, 1).All(), c, p.Speeds, 0)
	return s, p, err
}

func unequal() error {
	equal, third := []float64{1, 1, 1, 1, 1, 1, 1}, []float64{1, 1.7, 2.3}
	fmt.Print("| setting, speeds | micro-batches | steps | of the bound | imbalance | p99 | lost, repeated or out of memory |\n|---|---|---|---|---|---|---|\n")
	for _, s := range settings() {
		for _, f := range []bucket.Config{
			{Speeds: append(equal, 1)}, {Speeds: append(equal, .9)}, {Speeds: append(equal, .5)}, {Speeds: []float64{1, 2, 4}}, {Speeds: third},
			{Speeds: third, MicroBatches: 1}, {Speeds: []float64{1, 1, .9}}, {Speeds: []float64{1, 1, .9}, MicroBatches: 7},
		} {
			score, p, err := ours(s.lengths, s.cost, f)
			if err != nil {
				return err
			}
			fmt.Printf("| %s, %v | %v | %d | %.4f | %.4f | %.4f | %d |\n", s.name[:1], f.Speeds, p.StepBatches(), score.Steps, score.EpochSeconds/p.LowerBoundSeconds, score.Imbalance,
				score.ImbalanceP99, score.Lost+score.Repeated+score.OutOfMemory)
		}
	}
	return nil
}

// real scores real lengths on times measured by Cephalo (ICS'25, MIT licence) of BERT
// base in float32 on an A10G: 12 layers of 0.678 ms + 1.970 ms per 512 tokens.
func real(folder string) error {
	all, err := realSettings(folder)
	for _, s := range all {
		if err := compare(s.name, s.lengths, s.cost); err != nil {
			return err
		}
	}
	return err
}

func realSettings(folder string) (out []setting, err error) {
	cost := formula{12 * .000677711, 12 * .00196968 / 512, 0, math.Inf(1), 16384}
	for _, d := range []struct {
		file string
		o    lengthfile.Options
	}{
		{"azure_llm_conv_tokens.csv", lengthfile.Options{Column: "1"}},
		{"multi30k_en_de_words.csv", lengthfile.Options{Column: "1,2", Pair: "max"}},
		{"gsm8k_words.csv", lengthfile.Options{Column: "1,2"}},
		{"speech_utterance_seconds.csv", lengthfile.Options{Scale: 100}},
	} {
		l, err := readLengths(folder, d.file, d.o)
		if err != nil {
			return nil, err
		}
		out = append(out, setting{fmt.Sprintf("%s, %d lengths up to %d", d.file, len(l), slices.Max(l)), l, cost})
	}
	return out, nil
}

func readLengths(folder, file string, o lengthfile.Options) (bucket.Lengths, error) {
	f, err := os.Open(filepath.Join(folder, file))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return lengthfile.Read(f, file, o)
}

func total(l bucket.Lengths) (n int) {
	for _, v := range l {
		n += int(v)
	}
	return n
}
