// Command secure measures what encryption costs on the links between stages, plain TCP against mutual TLS 1.3 between
// two processes, and compares it with a model that was calibrated on messages of other sizes. It writes its section of
// experiments/planner/RESULTS.md.
//
//	go run ./experiments/planner/secure
package main

import (
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/experiments/internal/results"
	"github.com/evenkeel/evenkeel/planner/execute"
	"github.com/evenkeel/evenkeel/planner/pipeline"
)

func main() {
	out := flag.String("out", "experiments/planner/RESULTS.md", "file whose section is replaced")
	worker := flag.String("worker", "", "used by the experiment itself: address to connect to")
	keys := flag.String("keys", "", "used by the experiment itself: folder of certificates")
	flag.Parse()
	var err error
	if *worker != "" {
		err = work(*worker, *keys)
	} else {
		err = run(*out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "secure:", err)
		os.Exit(1)
	}
}

// Sizes of messages in bytes: the model is calibrated on some and scored on the others.
var (
	calibrated = []int{64 << 10, 512 << 10, 3 << 20, 8 << 20}
	scored     = []int{128 << 10, 256 << 10, 1 << 20, 2 << 20, 4 << 20}
)

// pipelines are the two stages that are run: the payload of a micro-batch and what a stage computes for it. Computing is
// waiting, as for an accelerator, so that the processor's cores are there for the link.
var pipelines = []twoStages{
	{bytes: 256 << 10, microBatches: 8, forward: 2 * time.Millisecond, backward: 4 * time.Millisecond, iterations: 12},
	{bytes: 1 << 20, microBatches: 8, forward: 3 * time.Millisecond, backward: 6 * time.Millisecond, iterations: 12},
	{bytes: 2 << 20, microBatches: 4, forward: 4 * time.Millisecond, backward: 8 * time.Millisecond, iterations: 12},
	{bytes: 4 << 20, microBatches: 8, forward: 8 * time.Millisecond, backward: 16 * time.Millisecond, iterations: 12},
}

func run(out string) error {
	dir, err := os.MkdirTemp("", "evenkeel-secure-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // keys that nobody uses any more
	if err := execute.MakeKeys(dir, 2, time.Now(), time.Hour); err != nil {
		return err
	}
	l, err := open(dir)
	if err != nil {
		return err
	}
	defer l.close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	other := exec.Command(self, "-worker", l.address(), "-keys", dir)
	other.Stderr = os.Stderr
	if err := other.Start(); err != nil {
		return err
	}
	defer func() {
		l.close() // the other one ends with it
		_ = other.Wait()
	}()

	var b strings.Builder
	fmt.Fprintf(&b, "Made by\n\n    go run ./experiments/planner/secure\n\non %d cores (%s/%s), two processes over loopback; plain TCP against TLS 1.3 with certificates on both sides, as evenkeel plan run uses it. Medians of %d rounds in which all rows of both tables take turns; times vary with what else the machine does.\n", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, rounds)
	var runs []twoStages
	for _, n := range slices.Sorted(slices.Values(append(slices.Clone(calibrated), scored...))) {
		runs = append(runs, transfer(n))
	}
	all, err := l.compare(append(runs, pipelines...)...)
	if err != nil {
		return err
	}
	var times []timed
	for i, p := range runs {
		times = append(times, timed{p.bytes, all[i][0].others, all[i][1].others})
	}
	m := fit(times)
	handshake, err := l.handshakes()
	if err != nil {
		return err
	}
	fmt.Fprintf(&b, `
### A transfer

Two stages wait as long as a stage may compute, then hand each other a message at the same time, as 1F1B does in its steady state: both ends encrypt and decrypt. The model: plain %s, TLS %s, so encryption adds %s, and a handshake of %.2f ms once. In the planner's terms an end encrypts or decrypts %.1f GB a second. Calibrated on %s; scored on the others, marked *.

`, m.plain, m.tls, m.added(), 1e3*handshake, 2e-9/m.added().byte, sizesOf(calibrated))
	b.WriteString("| message | plain | TLS | overhead | predicted | error |\n|---|---|---|---|---|---|\n")
	worst, sum := 0.0, 0.0
	for _, t := range times {
		measured, predicted := t.tls-t.plain, m.added().of(t.bytes)
		e := predicted/measured - 1
		mark := ""
		if slices.Contains(scored, t.bytes) {
			mark = " *"
			worst, sum = max(worst, math.Abs(e)), sum+math.Abs(e)
		}
		fmt.Fprintf(&b, "| %s%s | %s | %s | %s | %s | %+.1f%% |\n", size(t.bytes), mark, micro(t.plain), micro(t.tls), micro(measured), micro(predicted), 100*e)
	}
	fmt.Fprintf(&b, "\nOn the marked sizes the prediction of the overhead is off by %.1f%% on average, %.1f%% at most; target 20%%.\n", 100*sum/float64(len(scored)), 100*worst)
	if err := compareWith(&b, m, all[len(runs):]); err != nil {
		return err
	}
	fmt.Print(b.String())
	return results.Replace(out, "secure", b.String())
}

// compareWith writes what the pipelines took beside what the model predicts.
func compareWith(b *strings.Builder, m model, measured [][2]compared) error {
	fmt.Fprintf(b, "\n### Two stages, 1F1B\n\nWhat evenkeel plan run does with its links, in the clear and encrypted. Computing is waiting, as for an accelerator, and takes as long as it took in the clear; the predicted iteration is the simulation of evenkeel plan run, in which links work beside the stages, with the model's time of a transfer.\n\n")
	b.WriteString("| micro-batches | payload | plain | predicted | TLS | predicted | overhead | predicted | error |\n|---|---|---|---|---|---|---|---|---|\n")
	worst, sum := 0.0, 0.0
	for i, p := range pipelines {
		c := measured[i]
		plain, encrypted := c[0].seconds, c[1].seconds
		var predicted [2]float64
		for i, send := range []float64{m.plain.of(p.bytes), m.tls.of(p.bytes)} {
			var err error
			stage := pipeline.Timing{Forward: c[0].forward, Backward: c[0].backward, SendNext: send}
			if predicted[i], err = execute.Simulate([]pipeline.Timing{stage, stage}, p.microBatches); err != nil {
				return err
			}
		}
		added, expected := encrypted-plain, predicted[1]-predicted[0]
		e := expected/added - 1
		worst, sum = max(worst, math.Abs(e)), sum+math.Abs(e)
		fmt.Fprintf(b, "| %d | %s | %s | %s | %s | %s | %s | %s | %+.1f%% |\n", p.microBatches, size(p.bytes), milli(plain), milli(predicted[0]), milli(encrypted), milli(predicted[1]), milli(added), milli(expected), 100*e)
	}
	fmt.Fprintf(b, "\nThe prediction of the overhead is off by %.1f%% on average, %.1f%% at most; target 20%%.\n", 100*sum/float64(len(pipelines)), 100*worst)
	return nil
}

func size(bytes int) string {
	if bytes >= 1<<20 {
		return fmt.Sprintf("%g MiB", float64(bytes)/(1<<20))
	}
	return fmt.Sprintf("%d KiB", bytes>>10)
}

func sizesOf(all []int) string {
	var s []string
	for _, n := range all {
		s = append(s, size(n))
	}
	return strings.Join(s, ", ")
}

func micro(s float64) string { return fmt.Sprintf("%.1f µs", 1e6*s) }
func milli(s float64) string { return fmt.Sprintf("%.2f ms", 1e3*s) }
