// Command bucket compares dispatch rules on the same lengths and costs, times planning,
// and writes experiments/bucket/RESULTS.md.
//
//	go run ./experiments/bucket            # a minute; 2 GB of memory
//	go run ./experiments/bucket -samples 0 # without the 100M run
package main

import (
	"bytes"
	"embed"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"github.com/evenkeel/evenkeel/bucket"
)

// formula is seconds a + b BL + c BL^2 and memory BL(1+L/m) <= cells.
type formula struct{ a, b, c, m, cells float64 }

func (f formula) Seconds(l, n int) float64 {
	bl := float64(l) * float64(n)
	return f.a + f.b*bl + f.c*bl*float64(l)
}
func (f formula) Cap(l int) int { return int(f.cells / (float64(l) * (1 + float64(l)/f.m))) }

//go:embed *.csv
var files embed.FS

func lognormal(n int, median, sigma, limit float64) bucket.Lengths {
	r := rand.New(rand.NewPCG(1, 2))
	l := make(bucket.Lengths, n)
	for i := range l {
		l[i] = uint32(min(limit, max(1, math.Round(median*math.Exp(sigma*r.NormFloat64())))))
	}
	return l
}

// given makes steps for the scorer.
func given(s [][][]uint32) bucket.Steps {
	i := 0
	return func() (out []bucket.RankBatch, _ error) {
		if i < len(s) {
			for r, b := range s[i] {
				out = append(out, bucket.RankBatch{Rank: r, Samples: b})
			}
			i++
		}
		return out, nil
	}
}

func main() {
	samples := flag.Int("samples", 100_000_000, "of the large run; 0 leaves it out")
	flag.Parse()
	if err := run(*samples); err != nil {
		fmt.Fprintln(os.Stderr, "bucket:", err)
		os.Exit(1)
	}
}

func run(samples int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Length buckets: results\n\nMade by\n\n    go run ./experiments/bucket -samples %d\n\n(%s, %d processors used of %d.) Epoch: sum over steps of the slowest rank's time, padded to the longest of the batch. Bound: sum over samples of the least seconds per sample at their length, over the sum of speeds. Lengths of A and B are drawn here, so the figures differ in the third digit from those of other draws. The rules are reimplemented from their published descriptions.\n", samples, runtime.Version(), 2, runtime.NumCPU())
	runtime.GOMAXPROCS(2)
	a, costA := lognormal(1_000_000, 400, .8, 4096), formula{.08, 4e-5, 4e-9, 8192, 65536}
	costB := formula{.3, 4e-5, 8e-9, 16384, 65536}
	// One layer of Cephalo's GPT 1.3b on an A6000, 24 of them, linear in tokens: SOURCES.md.
	real := formula{.00124294 * 24, .0148343 * 24 / 512, 0, math.Inf(1), 16384}
	for _, c := range []struct {
		name   string
		l      bucket.Lengths
		cost   bucket.Cost
		speeds []float64
	}{
		{"A, 8 ranks", a, costA, nil}, {"B, 8 ranks", lognormal(300_000, 800, 1.2, 16384), costB, nil}, {"A, speeds 1:2:4", a, costA, []float64{1, 2, 4}},
	} {
		if err := compare(&b, c.name, c.l, c.cost, c.speeds); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		file, column string
		scale        float64
	}{{"gsm8k_words.csv", "question_words,answer_words", 0}, {"multi30k_en_de_words.csv", "en_tokens,de_tokens", 0}, {"azure_llm_conv_tokens.csv", "context_tokens,generated_tokens", 0}, {"speech_utterance_seconds.csv", "seconds", 100}} {
		text, err := files.ReadFile(f.file)
		if err != nil {
			return err
		}
		l, err := bucket.ReadLengths(bytes.NewReader(text), f.file, bucket.LengthsOptions{Column: f.column, Scale: f.scale})
		if err != nil {
			return err
		}
		if err := compare(&b, f.file+" on Cephalo's GPT 1.3b, A6000, 8 ranks", l, real, nil); err != nil {
			return err
		}
	}
	for _, n := range []int{1_000_000, samples} { // the large one last: memory is the process's peak
		if n == 0 {
			continue
		}
		if err := speed(&b, n, costA); err != nil {
			return err
		}
	}
	fmt.Print(b.String())
	return renameio.WriteFile("experiments/bucket/RESULTS.md", []byte(b.String()), 0o644)
}

func compare(b *strings.Builder, name string, l bucket.Lengths, c bucket.Cost, speeds []float64) error {
	fmt.Fprintf(b, "\n## %s\n\n| rule | epoch s | / bound | imbalance | p99 | padding %% | out of memory | lost | repeated |\n|---|---|---|---|---|---|---|---|---|\n", name)
	ranks := 8
	if speeds == nil {
		for range ranks {
			speeds = append(speeds, 1)
		}
	}
	bound := bucket.Bound(l, c, speeds)
	row := func(name string, steps bucket.Steps) error {
		s, err := bucket.Judge(l, steps, c, speeds, 0, nil)
		fmt.Fprintf(b, "| %s | %.1f | %.4f | %.4f | %.4f | %.3f | %d | %d | %d |\n", name, s.EpochSeconds, s.EpochSeconds/bound, s.Imbalance, s.ImbalanceP99, 100*s.Padding, s.OutOfMemory, s.Lost, s.Repeated)
		return err
	}
	for _, r := range rules {
		if err := row(r.name, given(r.make(l, c, len(speeds), rand.New(rand.NewPCG(3, 4))))); err != nil {
			return err
		}
	}
	for _, mode := range []string{bucket.Same, bucket.Mixed, bucket.Sorted} {
		p, err := bucket.Make(l, c, bucket.Config{Speeds: speeds, Mode: mode})
		if err != nil {
			return err
		}
		if err := row("Evenkeel, "+mode, p.Schedule(l, 1, 0).All()); err != nil {
			return err
		}
	}
	fmt.Fprintf(b, "| lower bound | %.1f | 1 | | | | | | |\n", bound)
	return nil
}

func speed(b *strings.Builder, n int, c bucket.Cost) error {
	l := lognormal(n, 400, .8, 4096)
	runtime.GC()
	before := cpu()
	begun := time.Now()
	p, err := bucket.Make(l, c, bucket.Config{Ranks: 8})
	if err != nil {
		return err
	}
	s := p.Schedule(l, 1, 1)
	s.First(0)
	first, firstCPU := time.Since(begun), cpu()-before
	s.Fill()
	all, allCPU := time.Since(begun), cpu()-before
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		return err
	}
	fmt.Fprintf(b, "\n%d lengths in memory: planned and first step known after %.3f s (processor time %.3f s), all scheduled after %.3f s (%.3f s); the process's peak so far %.0f MB. The machine was shared with other work, which is in the first of each pair.\n", n, first.Seconds(), firstCPU, all.Seconds(), allCPU, float64(use.Maxrss)*1024/1e6)
	return nil
}

// cpu is the processor time used so far, in seconds.
func cpu() float64 {
	var use syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &use) != nil {
		return math.NaN()
	}
	return float64(use.Utime.Nano()+use.Stime.Nano()) / 1e9
}
