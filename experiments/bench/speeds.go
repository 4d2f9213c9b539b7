package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// printSpeeds runs the rooms' own benchmarks and prints their lines.
func printSpeeds() error {
	args := []string{"test", "-run", "-", "-bench", "Decide|Round|MicroSteps|Allocate|Update|BenchmarkQ", "-benchmem", "-cpu", "1", "-count", "3",
		"./agent", "./cluster", "./cluster/sim", "./ddqn", "./ddqn/learn"}
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	printed, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, printed)
	}
	fmt.Printf("go %s (%s/%s, %s):\n", strings.Join(args, " "), runtime.GOOS, runtime.GOARCH, runtime.Version())
	for _, line := range strings.Split(string(printed), "\n") {
		if strings.HasPrefix(line, "Benchmark") || strings.HasPrefix(line, "cpu:") {
			fmt.Println(line)
		}
	}
	return nil
}
