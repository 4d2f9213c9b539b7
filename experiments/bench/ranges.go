package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"github.com/goccy/go-yaml"
)

// kept is what ranges.yaml says of a benchmark.
type kept struct {
	Twin   string     `yaml:"twin"`
	Trials int        `yaml:"trials"`
	Median float64    `yaml:"median"`      // of the ratio to the twin's time
	Spread float64    `yaml:"spread"`      // half of the range of the middle half of the trials
	Range  [2]float64 `yaml:"range,flow"`  // in which the median must lie
	Allocs [2]uint64  `yaml:"allocs,flow"` // of an operation, from and to: the same, but where goroutines meet as they come
	Bytes  [2]uint64  `yaml:"bytes,flow"`
}

func readRanges(path string) (map[string]kept, error) {
	k := map[string]kept{}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err != nil {
		return nil, err
	}
	if err := yaml.UnmarshalWithOptions(text, &k, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return k, nil
}

func writeRanges(path string, k map[string]kept) error {
	var b bytes.Buffer
	b.WriteString("# Written by go run ./experiments/bench -update; ranges.go says what the fields are. A range\n" +
		"# may be changed by hand: -update leaves it, as long as the median lies in it.\n")
	for _, s := range subjects {
		one, ok := k[s.name]
		if !ok {
			continue
		}
		one.Twin = s.twin
		text, err := yaml.MarshalWithOptions(map[string]kept{s.name: one}, yaml.IndentSequence(true))
		if err != nil {
			return err
		}
		b.Write(text)
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// keep is what -update writes.
func (m measured) keep(before kept) kept {
	k := kept{Trials: m.Trials, Median: round(m.Median), Spread: round(m.Spread), Range: before.Range, Allocs: before.Allocs, Bytes: before.Bytes}
	if m.Median < k.Range[0] || m.Median > k.Range[1] {
		// No lower bound: faster is never wrong. Twice is beyond what neighbours on a busy machine do to a ratio.
		k.Range = [2]float64{0, round(2 * m.Median)}
	}
	if !in(m.allocs, k.Allocs) || !in(m.bytes, k.Bytes) || k.Allocs[0] == k.Allocs[1] {
		k.Allocs, k.Bytes = [2]uint64{m.allocs, m.allocs}, [2]uint64{m.bytes, m.bytes}
	}
	return k
}

// compareCounts says what is allocated that was not before.
func (m measured) compareCounts(k kept) error {
	var wrong []error
	if !in(m.allocs, k.Allocs) {
		wrong = append(wrong, fmt.Errorf("%d allocations, kept are %v", m.allocs, k.Allocs))
	}
	if !in(m.bytes, k.Bytes) {
		wrong = append(wrong, fmt.Errorf("%d bytes, kept are %v", m.bytes, k.Bytes))
	}
	return errors.Join(wrong...)
}

func (m measured) compare(k kept) error {
	err := m.compareCounts(k)
	if m.Median < k.Range[0] || m.Median > k.Range[1] {
		err = errors.Join(err, fmt.Errorf("%.4f of the twin's time, the range is %v (kept: %.4f ± %.4f in %d trials)", m.Median, k.Range, k.Median, k.Spread, k.Trials))
	}
	return err
}

func in(n uint64, r [2]uint64) bool { return n >= r[0] && n <= r[1] }

// round to four digits.
func round(x float64) float64 {
	x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', 4, 64), 64) // it was formatted here
	return x
}
