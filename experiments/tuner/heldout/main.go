// Command heldout judges policies on held-out devices and models, which training never saw, suite by suite, and prints
// the tables of docs/results/tuner.md.
//
//	go run ./experiments/tuner/heldout -known                                  # every gradient waited for
//	go run ./experiments/tuner/heldout -known -suite free                      # quorum and grace free
//	go run ./experiments/tuner/heldout -known -suite measured -data ../shared/data
//	go run ./experiments/tuner/heldout -suite deadline -scenario bursts        # one scenario, tuned anew
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"evenkeel/agent"
	"evenkeel/cluster/profile"
	"evenkeel/env"
	"evenkeel/experiments/internal/program"
	"evenkeel/lab/evaluation"
)

// speed is the preference that the suites judge by.
var speed = [env.Objectives]float64{1}

// options are the flags.
type options struct {
	suite, scenario, policies string
	known                     bool
}

func main() {
	var o options
	flag.StringVar(&o.suite, "suite", "all", "what to judge: "+strings.Join(slices.Sorted(maps.Keys(suites)), ", "))
	flag.StringVar(&o.scenario, "scenario", "", "judge under these conditions only")
	flag.StringVar(&o.policies, "policies", "", "compare these only, with a comma in between; the first is what the others are compared with")
	flag.BoolVar(&o.known, "known", false, "take the hyperparameters of the suite's last whole run, from experiments/tuner/heldout/SUITE.json, instead of tuning")
	seeds := flag.Int("seeds", 0, "seeds to judge on; 0: the suite's")
	tune := flag.Int("tune", 0, "seeds to tune on; 0: the suite's")
	rounds := flag.Int("rounds", 0, "rounds of a run; 0: the suite's")
	flag.StringVar(&dataFolder, "data", dataFolder, "folder of published measurements, for the suite measured")
	flag.Parse()
	program.Main(func(ctx context.Context) error {
		s, ok := suites[o.suite]
		if !ok {
			return fmt.Errorf("no suite %q; known: %s", o.suite, strings.Join(slices.Sorted(maps.Keys(suites)), ", "))
		}
		whole := !o.known && o.scenario == "" && o.policies == "" && *seeds == 0 && *tune == 0 && *rounds == 0
		s.seeds, s.tuneSeeds, s.rounds = cmp.Or(*seeds, s.seeds), cmp.Or(*tune, s.tuneSeeds), cmp.Or(*rounds, s.rounds)
		return run(ctx, o, s, whole)
	})
}

func run(ctx context.Context, o options, s suite, whole bool) error {
	config, err := s.config(o)
	if err != nil {
		return err
	}
	last := time.Now()
	begun := last
	config.Progressed = func(done, total int) {
		if now := time.Now(); now.Sub(last) > 5*time.Second {
			last = now
			fmt.Fprintf(os.Stderr, "%d of %d runs, %v left\n", done, total, (now.Sub(begun) * time.Duration(total-done) / time.Duration(done)).Round(time.Second))
		}
	}
	lines, err := evaluation.Compare(ctx, config)
	if err != nil {
		return err
	}
	fmt.Printf("%s %d clusters, %d seeds of %d rounds, in %v on %d cores (%s/%s).\n\n", s.about, len(config.Cases), s.seeds, s.rounds, time.Since(begun).Round(time.Second), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	fmt.Print(table(config, lines))
	if !whole {
		return nil
	}
	knobs, err := evaluation.Tuned(lines)
	if err != nil {
		return err
	}
	return renameio.WriteFile(tunedFile(o.suite), knobs, 0o644)
}

// tunedFile holds the hyperparameters that a suite's last whole run found.
func tunedFile(suite string) string { return fmt.Sprintf("experiments/tuner/heldout/%s.json", suite) }

// config is what to compare.
func (s *suite) config(o options) (evaluation.Config, error) {
	config := evaluation.Config{Seeds: s.seeds, TuneSeeds: s.tuneSeeds, HoldBatch: s.hold, Rounds: s.rounds}
	var err error
	if config.Trained, err = agent.Embedded(); err != nil {
		return config, err
	}
	if config.Cases, err = s.cases(profile.Embedded()); err != nil {
		return config, err
	}
	if o.known {
		text, err := os.ReadFile(tunedFile(o.suite))
		if err != nil {
			return config, err
		}
		if config.Known, err = evaluation.ReadTuned(text); err != nil {
			return config, err
		}
	}
	names := s.policies
	if o.policies != "" {
		names = strings.Split(o.policies, ",")
	}
	if config.Policies, err = evaluation.Find(names); err != nil {
		return config, err
	}
	if config.Scenarios, err = s.scenarios(); err != nil || o.scenario == "" {
		return config, err
	}
	config.Scenarios = slices.DeleteFunc(config.Scenarios, func(sc evaluation.Scenario) bool { return sc.Name != o.scenario })
	if len(config.Scenarios) == 0 {
		return config, fmt.Errorf("the suite %s has no scenario %q", o.suite, o.scenario)
	}
	return config, nil
}

// table has a row for each policy and a column for each scenario: progress over all clusters, the samples of a round over
// the global batch where rules may shrink it, and the first policy's gain over this one with its interval, but for bounds.
func table(config evaluation.Config, lines []evaluation.Result) string {
	everywhere := "all"
	if len(config.Cases) == 1 {
		everywhere = config.Cases[0].Name
	}
	var b strings.Builder
	b.WriteString("| policy |")
	for _, s := range config.Scenarios {
		fmt.Fprintf(&b, " %s |", s.Name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(config.Scenarios)) + "\n")
	for k, p := range config.Policies {
		name := p.Name
		if p.Bound {
			name = "*" + name + "*"
		}
		fmt.Fprintf(&b, "| %s |", name)
		for _, s := range config.Scenarios {
			i := slices.IndexFunc(lines, func(r evaluation.Result) bool {
				return r.Cluster == everywhere && r.Scenario == s.Name && r.Policy == p.Name
			})
			r := &lines[i]
			fmt.Fprintf(&b, " %.4f", r.Progress)
			if config.HoldBatch > 0 {
				fmt.Fprintf(&b, " [%.3f]", r.SamplesMean)
			}
			if k > 0 && !p.Bound {
				fmt.Fprintf(&b, ", %+.4f (%+.4f…%+.4f)", r.Gain.Mean, r.Gain.Low, r.Gain.High)
			}
			b.WriteString(" |")
		}
		b.WriteString("\n")
	}
	return b.String()
}
