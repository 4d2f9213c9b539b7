// Command bench runs the benchmarks that stand behind the figures of speed and writes
// what they print into experiments/RESULTS.md.
//
//	go run ./experiments/bench
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/evenkeel/evenkeel/experiments/internal/results"
)

func main() {
	out := flag.String("out", "experiments/RESULTS.md", "file whose bench section is replaced")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(out string) error {
	args := []string{"test", "-run", "-", "-bench", "Decide|Round|Allocate|Update|BenchmarkQ", "-benchmem", "-cpu", "1", "-count", "3",
		"./agent", "./cluster", "./cluster/sim", "./ddqn"}
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	printed, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, printed)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Made by\n\n    go run ./experiments/bench\n\nwhich runs `go %s` on one processor (%s/%s, %s):\n\n", strings.Join(args, " "), runtime.GOOS, runtime.GOARCH, runtime.Version())
	for _, line := range strings.Split(string(printed), "\n") {
		if strings.HasPrefix(line, "Benchmark") || strings.HasPrefix(line, "cpu:") {
			fmt.Fprintf(&b, "    %s\n", line)
		}
	}
	fmt.Print(b.String())
	return results.Replace(out, "bench", b.String())
}
