// Command bench runs one benchmark of what every room does most, and compares it with what
// is kept in ranges.yaml: allocations and bytes must be the same; the time, as a ratio to a
// plain twin that ran in turns with it, must lie in a range. A ratio means the same on a
// busy machine and on another one, seconds do not.
//
//	go run ./experiments/bench                    # all; fails where something is out of its range
//	go run ./experiments/bench -run allocate      # some, by a pattern
//	go run ./experiments/bench -update            # keep what was found: counts, trials, median, spread
//
// The counts alone are a test of this package.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"runtime"
	"slices"

	"evenkeel/experiments/internal/program"
)

const rangesFile = "experiments/bench/ranges.yaml"

func main() {
	pattern := flag.String("run", "", "only benchmarks whose name matches")
	trials := flag.Int("trials", 20, "how often a benchmark and its twin take turns")
	update := flag.Bool("update", false, "write what was found into "+rangesFile)
	flag.Parse()
	program.Main(func(context.Context) error { return run(*pattern, *trials, *update) })
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
	for _, s := range subjects {
		if !re.MatchString(s.name) {
			continue
		}
		fmt.Printf("%-24s ", s.name)
		found, err := measure(s, trials)
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
	if update {
		if err := writeRanges(rangesFile, kept); err != nil {
			return err
		}
	}
	return errors.Join(wrong...)
}

// median of values, which it sorts, and half of the range of the middle half of them.
func median(values []float64) (middle, spread float64) {
	slices.SortFunc(values, cmp.Compare[float64])
	n := len(values)
	return values[n/2], (values[3*n/4] - values[n/4]) / 2
}
