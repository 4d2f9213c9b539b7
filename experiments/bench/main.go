// Command bench runs one benchmark of what every room does most, and compares it with what
// is kept in ranges.yaml: allocations and bytes must be the same; the time, as a ratio to a
// plain twin that ran in turns with it, must lie in a range. A ratio means the same on a
// busy machine and on another one, seconds do not.
//
//	go run ./experiments/bench                    # all; fails where something is out of its range
//	go run ./experiments/bench -run allocate      # some, by a pattern
//	go run ./experiments/bench -update            # keep what was found: counts, trials, median, spread
//	go run ./experiments/bench -stat              # and benchstat's table: seconds, spread, significance
//	go run ./experiments/bench -against old.txt   # benchstat's table of two runs on one machine
//	go run ./experiments/bench -speeds            # the seconds of docs/results/tuner.md
//
// Every run leaves its times in out/bench.txt as go test would print them: copy it for
// -against. The counts alone are a test of this package.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

const (
	rangesFile = "experiments/bench/ranges.yaml"
	timesFile  = "out/bench.txt"
)

func main() {
	pattern := flag.String("run", "", "only benchmarks whose name matches")
	trials := flag.Int("trials", 20, "how often a benchmark and its twin take turns")
	update := flag.Bool("update", false, "write what was found into "+rangesFile)
	against := flag.String("against", "", "a file of an earlier run to compare seconds with, by benchstat")
	stat := flag.Bool("stat", false, "print benchstat's table of the rooms against their twins")
	speeds := flag.Bool("speeds", false, "instead run the rooms' own benchmarks and print their times")
	flag.Parse()
	var err error
	if *speeds {
		err = printSpeeds()
	} else {
		err = run(*pattern, *trials, *update)
	}
	if err == nil && *stat {
		err = benchstat("-col", "/of", timesFile)
	}
	if err == nil && *against != "" {
		err = benchstat(*against, timesFile)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(pattern string, trials int, update bool) error {
	if trials < 3 {
		return errors.New("-trials must be 3 or more")
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	kept, err := readRanges(rangesFile)
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(1) // one processor, or a twin could be beaten by having two
	var wrong []error
	var times strings.Builder
	fmt.Fprintf(&times, "goos: %s\ngoarch: %s\n", runtime.GOOS, runtime.GOARCH)
	for _, s := range subjects {
		if !re.MatchString(s.name) {
			continue
		}
		fmt.Printf("%-24s ", s.name)
		found, err := measure(s, trials, &times)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Printf("%8.4f ± %.4f of %s; %d allocations, %d bytes\n", found.Median, found.Spread, s.twin, found.allocs, found.bytes)
		if update {
			kept[s.name] = found.keep(kept[s.name])
		} else if err := found.compare(kept[s.name]); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	if err := os.MkdirAll(filepath.Dir(timesFile), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(timesFile, []byte(times.String()), 0o644); err != nil {
		return err
	}
	if update {
		if err := writeRanges(rangesFile, kept); err != nil {
			return err
		}
	}
	return errors.Join(wrong...)
}

func benchstat(args ...string) error {
	cmd := exec.Command("go", append([]string{"tool", "-modfile=tools/bench/go.mod", "benchstat"}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("benchstat: %w", err)
	}
	return nil
}

// median of values, which it sorts, and half of the range of the middle half of them.
func median(values []float64) (middle, spread float64) {
	slices.SortFunc(values, cmp.Compare[float64])
	n := len(values)
	return values[n/2], (values[3*n/4] - values[n/4]) / 2
}
