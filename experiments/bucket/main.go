// Command bucket measures batching by length against other systems' rules, on settings
// with a known lower bound and on real lengths, and writes experiments/bucket/RESULTS.md.
//
//	go run ./experiments/bucket -lengths FOLDER
//
// The folder holds azure_llm_conv_tokens.csv, multi30k_en_de_words.csv, gsm8k_words.csv
// and speech_utterance_seconds.csv; without it that section is left as it is. Two more data sets are made of Go's standard library
// (-own FOLDER writes them as files).
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/bucket"
	"github.com/evenkeel/evenkeel/bucket/lengthfile"
	"github.com/evenkeel/evenkeel/bucket/peers"
	"github.com/evenkeel/evenkeel/bucket/plain"
	"github.com/evenkeel/evenkeel/bucket/stepcost"
	"github.com/evenkeel/evenkeel/experiments/internal/results"
	"github.com/evenkeel/evenkeel/internal/stats"
)

const ranks = 8

func main() {
	folder := flag.String("lengths", "", "folder of real lengths")
	out := flag.String("out", "experiments/bucket/RESULTS.md", "file whose sections are replaced")
	only := flag.String("only", "", "only this section")
	samples := flag.Int("samples", 0, "only time planning and scheduling so many samples")
	makes := flag.String("own", "", "only write the two data sets of Go's standard library into this folder")
	flag.Parse()
	if *makes != "" {
		if err := writeOwn(*makes); err != nil {
			fmt.Fprintln(os.Stderr, "bucket:", err)
			os.Exit(1)
		}
		return
	}
	if *samples > 0 {
		speed(*samples)
		return
	}
	if err := run(*folder, *out, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bucket:", err)
		os.Exit(1)
	}
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

func (formula) Breaks(int) []int { return nil }

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

// run replaces the sections of the results, or only one.
func run(folder, out, only string) error {
	for _, section := range []struct {
		name string
		make func(*strings.Builder) error
	}{
		{"settings", func(b *strings.Builder) error {
			for _, s := range settings() {
				if err := compare(b, s.name, s.lengths, s.cost); err != nil {
					return err
				}
			}
			return nil
		}},
		{"mixing", func(b *strings.Builder) error { return mixing(b, folder) }},
		{"packed", func(b *strings.Builder) error { return packedTable(b, folder) }},
		{"pairs", func(b *strings.Builder) error { return pairsTable(b, folder) }},
		{"pair-orders", func(b *strings.Builder) error { return pairOrders(b, folder) }},
		{"unequal", unequal},
		{"noise", noise},
		{"shapes", shapes},
		{"real", func(b *strings.Builder) error { return real(b, folder) }},
		{"speed", speeds},
	} {
		if only != "" && only != section.name || folder == "" && section.name == "real" {
			continue
		}
		var b strings.Builder
		if err := section.make(&b); err != nil {
			return err
		}
		if err := results.Replace(out, section.name, b.String()); err != nil {
			return err
		}
	}
	return nil
}

// speeds are the rows of the table of speed, each by a process of its own.
func speeds(b *strings.Builder) error {
	fmt.Fprintln(b, "| samples | plan s | schedule s | both s | first step alone s | peak memory MB |\n|---|---|---|---|---|---|")
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, n := range []string{"1000000", "10000000", "100000000"} {
		row, err := exec.Command(self, "-samples", n).Output()
		if err != nil {
			return fmt.Errorf("%s samples: %w", n, err)
		}
		b.Write(row)
	}
	return nil
}

const groupedRule = "fairseq, grouped"

const heading = "| system | epoch s | of the bound | imbalance | p99 | padding % | out of memory | lost | repeated |\n|---|---|---|---|---|---|---|---|---|\n"

func row(name string, s bucket.Score, bound float64) string {
	return fmt.Sprintf("| %s | %.1f | %.4f | %.4f | %.4f | %.3f | %d | %d | %d |\n",
		name, s.EpochSeconds, s.EpochSeconds/bound, s.Imbalance, s.ImbalanceP99, 100*s.Padding, s.OutOfMemory, s.Lost, s.Repeated)
}

// compare scores the peers, the default, and no mixing.
func compare(b *strings.Builder, name string, l bucket.Lengths, c bucket.Cost) error {
	speeds := slices.Repeat([]float64{1}, ranks)
	bound := plain.Bound(l, c, speeds)
	fmt.Fprintf(b, "**%s.** Lower bound %.1f s.\n\n%s", name, bound, heading)
	safe := peers.SafeTokens(l, c)
	total := 0
	for _, v := range l {
		total += int(v)
	}
	grouped := map[string]float64{} // seconds per token: it loses samples, the longest
	for _, p := range peers.All() {
		cut := p.Cut(l, c, ranks, safe, rand.New(rand.NewPCG(1, 0)))
		s, err := bucket.Judge(l, bucket.Listed(cut), c, speeds, 0, nil)
		if err != nil {
			return err
		}
		b.WriteString(row(p.Name, s, bound))
		if strings.HasPrefix(p.Name, groupedRule) {
			grouped[p.Name] = s.EpochSeconds / float64(tokens(l, cut))
		}
	}
	for _, m := range []struct {
		mixing float64
		name   string
	}{{0, "evenkeel, mixing 0"}, {bucket.DefaultMixing, "**evenkeel, default**"}} {
		s, p, err := ours(l, c, c, bucket.Config{Ranks: ranks, Mixing: &m.mixing})
		if err != nil {
			return err
		}
		b.WriteString(row(m.name, s, bound))
		if m.mixing > 0 {
			per := s.EpochSeconds / float64(total)
			fmt.Fprintf(b, "\nPer token computed, evenkeel's default takes %.4f of the time of fairseq's grouped rule (%.4f with the tokens of the longest). It cuts %d batches over %d distinct lengths.\n\n",
				per/grouped[groupedRule+", multiple 1"], per/grouped[groupedRule+", tokens of the longest"], len(p.Schedule(l, 1, 1).Batches), distinct(l))
		}
	}
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

func distinct(l bucket.Lengths) int {
	seen := map[uint32]bool{}
	for _, v := range l {
		seen[v] = true
	}
	return len(seen)
}

// ours plans by one cost and is judged by another.
func ours(l bucket.Lengths, believed, truth bucket.Cost, f bucket.Config) (bucket.Score, *plain.Plan, error) {
	p, err := plain.Make(l, believed, f)
	if err != nil {
		return bucket.Score{}, nil, err
	}
	s, err := bucket.Judge(l, p.Schedule(l, 1, 1).All(), truth, p.Speeds, 0, nil)
	return s, p, err
}

func unequal(b *strings.Builder) error {
	b.WriteString("| setting, speeds | steps | of the bound | imbalance | p99 | lost, repeated or out of memory |\n|---|---|---|---|---|---|\n")
	for _, s := range settings() {
		for _, v := range [][]float64{{1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, .97}, {1, 1, 1, 1, 1, 1, 1, .9}, {1, 1, 1, 1, 1, 1, 1, .5}, {1, 2, 4}, {1, 1, 1, 1, 2, 2, 4, 4}, {1, 1.7, 2.3}} {
			score, p, err := ours(s.lengths, s.cost, s.cost, bucket.Config{Speeds: v})
			if err != nil {
				return err
			}
			fmt.Fprintf(b, "| %s, %v | %d | %.4f | %.4f | %.4f | %d |\n", s.name[:1], v, score.Steps, score.EpochSeconds/p.LowerBoundSeconds, score.Imbalance,
				score.ImbalanceP99, score.Lost+score.Repeated+score.OutOfMemory)
		}
	}
	return nil
}

// noisy is a runner whose durations scatter.
type noisy struct {
	c formula
	r *rand.Rand
}

func (n noisy) Run(_ context.Context, length, batch int) (stepcost.Trial, error) {
	bl := float64(length) * float64(batch)
	t := stepcost.Trial{Seconds: n.c.Seconds(length, batch) * math.Exp(.05*n.r.NormFloat64()), PeakBytes: int64(bl * (1 + float64(length)/n.c.m))}
	t.OutOfMemory = batch > n.c.Cap(length)
	return t, nil
}

// noise profiles with 5% of noise by the economical search, plans, and is judged without.
func noise(b *strings.Builder) error {
	b.WriteString("| setting | trials | realised / planned without noise | predicted / realised | out of memory |\n|---|---|---|---|---|\n")
	for _, s := range settings() {
		clean, _, err := ours(s.lengths, s.cost, s.cost, bucket.Config{Ranks: ranks})
		if err != nil {
			return err
		}
		uppers, err := plain.Uppers(s.lengths, 32)
		if err != nil {
			return err
		}
		var realised, predicted []float64
		trials, oom := 0, 0
		for seed := range uint64(20) {
			t, err := stepcost.Profile(context.Background(), noisy{s.cost, rand.New(rand.NewPCG(seed, 1))}, stepcost.Profiling{Lengths: uppers, MaxBatch: 1 << 16})
			if err != nil {
				return err
			}
			c, err := stepcost.New(t, 65536)
			if err != nil {
				return err
			}
			score, p, err := ours(s.lengths, c, s.cost, bucket.Config{Ranks: ranks})
			if err != nil {
				return err
			}
			realised, predicted = append(realised, score.EpochSeconds/clean.EpochSeconds), append(predicted, p.EpochSeconds/score.EpochSeconds)
			trials, oom = max(trials, len(t)), oom+score.OutOfMemory
		}
		fmt.Fprintf(b, "| %s | %d | %s | %s | %d |\n", s.name[:1], trials, interval(realised), interval(predicted), oom)
	}
	return nil
}

// interval is the mean with its interval, and the worst.
func interval(v []float64) string {
	i := stats.Bootstrap([][]float64{v})
	worst := v[0]
	for _, x := range v {
		if math.Abs(x-1) > math.Abs(worst-1) {
			worst = x
		}
	}
	return fmt.Sprintf("%.4f (%.4f to %.4f), worst of %d seeds %.4f", i.Mean, i.Low, i.High, len(v), worst)
}

// real scores real lengths on times measured by Cephalo (ICS'25, MIT licence) of BERT
// base in float32 on an A10G: 12 layers of 0.678 ms + 1.970 ms per 512 tokens.
func real(b *strings.Builder, folder string) error {
	all, err := realSettings(folder)
	for _, s := range all {
		if err := compare(b, s.name, s.lengths, s.cost); err != nil {
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
		{"azure_llm_conv_tokens.csv", lengthfile.Options{}},
		{"multi30k_en_de_words.csv", lengthfile.Options{Column: "1,2", Pair: "max"}},
		{"gsm8k_words.csv", lengthfile.Options{Column: "1,2"}},
		{"speech_utterance_seconds.csv", lengthfile.Options{Scale: 100}},
	} {
		f, err := os.Open(filepath.Join(folder, d.file))
		if err != nil {
			return nil, err
		}
		l, err := lengthfile.Read(f, d.file, d.o)
		f.Close()
		if err != nil {
			return nil, err
		}
		out = append(out, setting{fmt.Sprintf("%s, %d lengths up to %d", d.file, len(l), slices.Max(l)), l, cost})
	}
	more, err := ownSettings(cost)
	return append(out, more...), err
}

// speed prints a row of the table of speed: the best of three.
func speed(n int) {
	debug.SetGCPercent(20) // as the command does
	l := lognormal(n, 400, .8, 4096)
	cost := formula{.08, 4e-5, 4e-9, 8192, 65536} // setting A's
	plan, schedule, first := math.Inf(1), math.Inf(1), math.Inf(1)
	for range 3 {
		runtime.GC()
		begun := time.Now()
		p, err := plain.Make(l, cost, bucket.Config{Ranks: ranks})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		planned := time.Since(begun).Seconds()
		begun = time.Now()
		s := p.Schedule(l, 1, 1)
		s.First(0)
		one := time.Since(begun).Seconds()
		begun = time.Now()
		s = p.Schedule(l, 1, 1)
		s.Fill()
		all := time.Since(begun).Seconds()
		if planned+all < plan+schedule {
			plan, schedule = planned, all
		}
		first = min(first, one)
	}
	fmt.Printf("| %d | %.3f | %.3f | %.3f | %.3f | %d |\n", n, plan, schedule, plan+schedule, first, peak())
}

// peak is the process's largest resident memory in MB.
func peak() int {
	data, _ := os.ReadFile("/proc/self/status")
	for _, line := range strings.Split(string(data), "\n") {
		var kb int
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kb); n == 1 {
			return kb * 1024 / 1000000
		}
	}
	return 0
}
