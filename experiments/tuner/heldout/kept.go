package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/evenkeel/evenkeel/lab/evaluation"
)

// keptFolder holds the results of scenarios that are done.
const keptFolder = "out/heldout"

// kept is the file of a scenario.
type kept struct {
	Of    string            `json:"of"` // what was judged
	Lines []evaluation.Kept `json:"lines"`
}

// compare judges scenario by scenario and keeps each that is done. With again it takes over
// those that are kept of the same.
func compare(ctx context.Context, name string, config evaluation.Config, files []string, again bool) ([]evaluation.Result, error) {
	var lines []evaluation.Result
	for k, sc := range config.Scenarios {
		one := config
		one.Scenarios = []evaluation.Scenario{sc}
		path := filepath.Join(keptFolder, name+"-"+sc.Name+".json")
		of, err := judged(&one, files)
		if err != nil {
			return nil, err
		}
		if again {
			old, err := read(path, of)
			if err != nil {
				return nil, err
			}
			if old != nil {
				fmt.Fprintf(os.Stderr, "%s: taken over from %s\n", sc.Name, path)
				lines = append(lines, old...)
				continue
			}
		}
		one.Progressed = progress(fmt.Sprintf("%s (%d of %d)", sc.Name, k+1, len(config.Scenarios)))
		done, err := evaluation.Compare(ctx, one)
		if err != nil {
			return nil, err
		}
		if err := write(path, kept{of, evaluation.Keep(done)}); err != nil {
			return nil, err
		}
		lines = append(lines, done...)
	}
	// In the order of one comparison of all: by cluster, those over all clusters last.
	order := func(r evaluation.Result) int {
		k := slices.IndexFunc(config.Cases, func(c evaluation.Case) bool { return c.Name == r.Cluster })
		if k < 0 {
			return len(config.Cases)
		}
		return k
	}
	slices.SortStableFunc(lines, func(a, b evaluation.Result) int { return order(a) - order(b) })
	return lines, nil
}

// judged says what decides the results of a comparison, but for the code.
func judged(c *evaluation.Config, files []string) (string, error) {
	of := []any{c.Seeds, c.TuneSeeds, c.Rounds, c.HoldBatch, c.Scenarios, c.Trained.Record, files}
	for _, cs := range c.Cases {
		of = append(of, cs.Name, cs.Cluster.GlobalBatch, cs.Cluster.Collect, cs.Cluster.Choices, cs.Weights)
		for i := range cs.Cluster.Nodes {
			of = append(of, cs.Cluster.Nodes[i].Device, cs.Cluster.Nodes[i].Limit)
		}
	}
	for _, p := range c.Policies {
		of = append(of, p.Name, p.Hyperparameters)
	}
	text, err := json.Marshal(of)
	return string(text), err
}

// read returns the results in a file, nil if there is none or it is of something else.
func read(path, of string) ([]evaluation.Result, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var k kept
	if err := json.Unmarshal(text, &k); err != nil {
		return nil, fmt.Errorf("%s: %w; remove it", path, err)
	}
	if k.Of != of {
		return nil, nil
	}
	return evaluation.Restore(k.Lines), nil
}

func write(path string, k kept) error {
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return renameio.WriteFile(path, text, 0o644)
}

// progress says every five seconds how far a comparison is.
func progress(what string) func(done, total int) {
	begun, last := time.Now(), time.Time{}
	return func(done, total int) {
		if now := time.Now(); now.Sub(last) > 5*time.Second {
			last = now
			left := time.Duration(float64(now.Sub(begun)) * float64(total-done) / float64(done))
			fmt.Fprintf(os.Stderr, "%s: %d of %d runs, %v left\n", what, done, total, left.Round(time.Second))
		}
	}
}

func names(scenarios []evaluation.Scenario) string {
	var all []string
	for _, s := range scenarios {
		all = append(all, s.Name)
	}
	return strings.Join(all, ", ")
}
