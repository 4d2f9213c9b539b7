package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/evenkeel/evenkeel/experiments/internal/results"
)

// writeSpeeds runs the rooms' own benchmarks and writes what they print.
func writeSpeeds(out string) error {
	args := []string{"test", "-run", "-", "-bench", "Decide|Round|MicroSteps|Allocate|Update|BenchmarkQ", "-benchmem", "-cpu", "1", "-count", "3",
		"./agent", "./cluster", "./cluster/sim", "./ddqn"}
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	printed, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, printed)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Made by\n\n    go run ./experiments/bench -speeds\n\nwhich runs `go %s` on one processor (%s/%s, %s):\n\n", strings.Join(args, " "), runtime.GOOS, runtime.GOARCH, runtime.Version())
	for _, line := range strings.Split(string(printed), "\n") {
		if strings.HasPrefix(line, "Benchmark") || strings.HasPrefix(line, "cpu:") {
			fmt.Fprintf(&b, "    %s\n", line)
		}
	}
	fmt.Print(b.String())
	return results.Replace(out, "bench", b.String())
}
