// Command heldout judges policies on held-out devices and models, which training never
// saw, suite by suite. It prints the tables and writes each, with the command that made
// it, into its section of experiments/tuner/RESULTS.md.
//
//	go run ./experiments/tuner/heldout                                    # quorum all, the embedded policy
//	go run ./experiments/tuner/heldout out/seed-*/policy.safetensors      # and others beside it
//	go run ./experiments/tuner/heldout -suite free                        # quorum and grace free
//	go run ./experiments/tuner/heldout -suite measured -data ../shared/data
//	go run ./experiments/tuner/heldout -suite deadline -scenario bursts   # one scenario, in the background
//	go run ./experiments/tuner/heldout -suite deadline -resume            # the others, and the tables
//
// Every scenario that is done is kept, so that -resume goes on after an interruption.
package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/ddqn"
	"github.com/evenkeel/evenkeel/env"
	"github.com/evenkeel/evenkeel/experiments/internal/program"
	"github.com/evenkeel/evenkeel/experiments/internal/results"
	"github.com/evenkeel/evenkeel/internal/chart"
	"github.com/evenkeel/evenkeel/internal/stats"
	"github.com/evenkeel/evenkeel/lab/evaluation"
)

// chosen are the policies to compare instead of the suite's.
var chosen string

// speed is the preference that the suites judge by.
var speed = [env.Objectives]float64{1}

func main() {
	name := flag.String("suite", "all", "what to judge: "+strings.Join(slices.Sorted(maps.Keys(suites)), ", "))
	seeds := flag.Int("seeds", 0, "seeds to judge on; 0: the suite's")
	tune := flag.Int("tune", 0, "seeds to tune on; 0: the suite's")
	rounds := flag.Int("rounds", 0, "rounds per run; 0: the suite's")
	out := flag.String("out", "experiments/tuner/RESULTS.md", "file whose section heldout-SUITE is replaced")
	only := flag.String("scenario", "", "judge this one only, and keep its results in "+keptFolder+" for -resume")
	flag.StringVar(&chosen, "policies", "", "compare these only, with a comma in between, and write no files; the first is what the others are compared with")
	known := flag.Bool("known", false, "take the hyperparameters that the suite's last run found, from experiments/tuner/heldout/SUITE.json, instead of tuning, and leave out the rules that it has none for: where no rule has changed")
	again := flag.Bool("resume", false, "take over the scenarios that earlier runs with the same flags have kept; not after a change of the code")
	flag.StringVar(&dataFolder, "data", dataFolder, "folder of published measurements, for the suite measured")
	flag.Parse()
	s, ok := suites[*name]
	if !ok {
		fmt.Fprintf(os.Stderr, "heldout: no suite %q; known: %s\n", *name, strings.Join(slices.Sorted(maps.Keys(suites)), ", "))
		os.Exit(2)
	}
	if *seeds > 0 {
		s.seeds = *seeds
	}
	if *rounds > 0 {
		s.rounds = *rounds
	}
	if *tune > 0 {
		s.tuneSeeds = *tune
	}
	command := "go run ./experiments/tuner/heldout"
	flag.Visit(func(f *flag.Flag) {
		if f.Name != "out" && f.Name != "resume" && f.Name != "scenario" {
			command += " -" + f.Name
			if f.Value.String() != "true" {
				command += " " + f.Value.String()
			}
		}
	})
	program.Main(func(ctx context.Context) error {
		return run(ctx, *name, strings.Join(append([]string{command}, flag.Args()...), " "), s, *out, flag.Args(), *only, *again, *known)
	})
}

func run(ctx context.Context, name, command string, s suite, out string, files []string, only string, again, known bool) error {
	embedded, err := agent.Embedded()
	if err != nil {
		return err
	}
	config := evaluation.Config{Trained: embedded, Seeds: s.seeds, TuneSeeds: s.tuneSeeds, HoldBatch: s.hold, Rounds: s.rounds, Clock: time.Now}
	if config.Cases, err = s.cases(profile.Embedded()); err != nil {
		return err
	}
	if known {
		text, err := os.ReadFile(tunedFile(name))
		if err != nil {
			return err
		}
		if config.Known, err = evaluation.ReadTuned(text); err != nil {
			return fmt.Errorf("%s: %w", tunedFile(name), err)
		}
	}
	config.Policies = evaluation.Suited(config.Cases)
	if s.policies != nil {
		if config.Policies, err = evaluation.Find(s.policies); err != nil {
			return err
		}
	}
	if chosen != "" {
		if config.Policies, err = evaluation.Find(strings.Split(chosen, ",")); err != nil {
			return err
		}
	} else if name == "all" {
		modelFree, err := prior()
		if err != nil {
			return err
		}
		config.Policies = append(config.Policies, modelFree)
	}
	if known {
		config.Policies = slices.DeleteFunc(config.Policies, func(p evaluation.Spec) bool { return p.Points() > 1 && !tunedBefore(config.Known, p.Name) })
	}
	for _, f := range files {
		t, err := agent.Load(f)
		if err != nil {
			return err
		}
		config.Policies = append(config.Policies, evaluation.Agent(fmt.Sprintf("ddqn, training seed %d", t.Record.Config.Seed), t))
	}
	if config.Scenarios, err = s.scenarios(); err != nil {
		return err
	}
	if only != "" {
		all := config.Scenarios
		if config.Scenarios = slices.DeleteFunc(slices.Clone(all), func(sc evaluation.Scenario) bool { return sc.Name != only }); len(config.Scenarios) == 0 {
			return fmt.Errorf("-scenario: the suite %s has no %q; it has %s", name, only, names(all))
		}
	}
	begun := time.Now()
	lines, err := compare(ctx, name, config, files, again)
	if err != nil {
		return err
	}
	if only != "" {
		fmt.Printf("%s is judged and kept; without -scenario, -resume goes on from there and writes the tables\n", only)
		return nil
	}
	everywhere := over(config.Cases)
	var b strings.Builder
	fmt.Fprintf(&b, "%s Made by\n\n    %s\n\n", s.about, command)
	fmt.Fprintf(&b, "in %v on %d cores (%s/%s): %d clusters of %s, %d seeds, %d rounds a run.\n", time.Since(begun).Round(time.Second), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, len(config.Cases), nodes(config.Cases), s.seeds, s.rounds)
	b.WriteString("Progress is goodput over the state oracle's (which waits for all) under the same seed, mean over clusters and seeds, with its 95% interval;\n")
	fmt.Fprintf(&b, "gain is the embedded policy's progress minus the line's, paired by seed. Every rule with knobs was tuned for each cluster and\nscenario on %d other seeds.\n", s.tuneSeeds)
	table := fmt.Sprintf("experiments/tuner/heldout/%s.csv", name)
	fmt.Fprintf(&b, "IQM: interquartile mean over clusters and seeds. Every cluster, with the knobs that tuning found: [heldout/%s.csv](heldout/%s.csv).\n\n![performance profiles](heldout/%s.svg)\n", name, name, name)
	summary(&b, config.Scenarios, everywhere, lines)
	if name == "deadline" && chosen == "" {
		parts(&b, config.Scenarios, everywhere, lines)
	}
	fmt.Print(b.String())
	if chosen != "" {
		return nil
	}
	if err := detail(table, lines); err != nil {
		return err
	}
	if err := profiles(name, config, lines); err != nil {
		return err
	}
	knobs, err := evaluation.Tuned(lines)
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(tunedFile(name), knobs, 0o644); err != nil {
		return err
	}
	return results.Replace(out, "heldout-"+name, b.String())
}

// tunedBefore reports whether a policy has hyperparameters for any cell.
func tunedBefore(known map[evaluation.Cell]string, policy string) bool {
	for c := range known {
		if c.Policy == policy {
			return true
		}
	}
	return false
}

// tunedFile holds the hyperparameters that a suite's last run found.
func tunedFile(suite string) string { return fmt.Sprintf("experiments/tuner/heldout/%s.json", suite) }

// prior is the spec of reinforcement learning without a model, which experiments/tuner/modelfree
// trained with the embedded policy's budget.
func prior() (evaluation.Spec, error) {
	nets, _, err := ddqn.Load("experiments/tuner/modelfree/policy.safetensors")
	if err != nil {
		return evaluation.Spec{}, err
	}
	for _, net := range nets {
		return evaluation.ModelFree(net)
	}
	return evaluation.Spec{}, errors.New("experiments/tuner/modelfree/policy.safetensors holds no network")
}

func nodes(cases []evaluation.Case) string {
	var n []string
	for _, c := range cases {
		n = append(n, fmt.Sprint(len(c.Cluster.Nodes)))
	}
	return strings.Join(n, ", ") + " nodes"
}

// over is the name that the results over all clusters have: one alone has no others.
func over(cases []evaluation.Case) string {
	if len(cases) == 1 {
		return cases[0].Name
	}
	return "all"
}

// summary writes a table per scenario over all clusters, whose results have the name everywhere.
func summary(b *strings.Builder, scenarios []evaluation.Scenario, everywhere string, lines []evaluation.Result) {
	for _, scenario := range scenarios {
		sc := scenario.Name
		fmt.Fprintf(b, "\n### %s\n\n| policy | progress | 95%% | IQM | 95%% | gain of ddqn | 95%% | idle | fresh | samples | of hindsight |\n|---|---|---|---|---|---|---|---|---|---|---|\n", sc)
		var best, own, model evaluation.Result
		var trained []float64
		fallback := 0.0
		for _, r := range lines {
			if r.Cluster != everywhere || r.Scenario != sc {
				continue
			}
			name := r.Policy
			if r.Bound {
				name = "*" + name + "*"
			}
			q := stats.IQM(strata(lines, sc, r.Policy))
			fmt.Fprintf(b, "| %s | %.4f | %.4f to %.4f | %.4f | %.4f to %.4f | %+.4f | %+.4f to %+.4f | %.1f%% | %.1f%% | %.3f ± %.3f | %.3f |\n", name, r.Progress, r.Low, r.High, q.Mean, q.Low, q.High, r.Gain.Mean, r.Gain.Low, r.Gain.High, 100*r.Waiting, 100*r.Freshness, r.SamplesMean, r.SamplesSD, r.Hindsight)
			switch {
			case strings.HasPrefix(r.Policy, "ddqn,"):
				trained = append(trained, r.Progress)
			case r.Policy == "model":
				model = r
			case r.Policy == "ddqn" && r.Fallback > 0:
				fallback = r.Fallback
			case r.Bound || strings.HasPrefix(r.Policy, "ddqn"):
			case strings.HasPrefix(r.Policy, "model-"): // the agent's own rule with another part
				if r.Progress > own.Progress {
					own = r
				}
			case r.Progress > best.Progress:
				best = r
			}
		}
		if best.Policy != "" {
			fmt.Fprintf(b, "\nBest tuned baseline: %s, %.4f; the embedded policy gains %+.4f (%+.4f to %+.4f).\n", best.Policy, best.Progress, best.Gain.Mean, best.Gain.Low, best.Gain.High)
		} else {
			fmt.Fprintf(b, "\nBest otherwise, and no other system: the agent's own fallback rule, with who takes part by constants: %s, %.4f; the embedded policy gains %+.4f (%+.4f to %+.4f).\n", own.Policy, own.Progress, own.Gain.Mean, own.Gain.Low, own.Gain.High)
		}
		fmt.Fprintf(b, "The agent's own fallback rule alone (model): %.4f; the network adds %+.4f (%+.4f to %+.4f).\n", model.Progress, model.Gain.Mean, model.Gain.Low, model.Gain.High)
		if fallback > 0 {
			fmt.Fprintf(b, "Decisions left to that rule because the network's input was out of its range: %.2f%%.\n", 100*fallback)
		}
		if len(trained) > 0 {
			low, high, mean := trained[0], trained[0], 0.0
			for _, v := range trained {
				low, high, mean = min(low, v), max(high, v), mean+v/float64(len(trained))
			}
			fmt.Fprintf(b, "Over %d training seeds: mean %.4f, from %.4f to %.4f; mean gain over the best baseline %+.4f.\n", len(trained), mean, low, high, mean-best.Progress)
		}
	}
}

// parts writes what the deadline's rule and the cut of the last micro-step are worth, each
// apart from the other.
func parts(b *strings.Builder, scenarios []evaluation.Scenario, everywhere string, lines []evaluation.Result) {
	progress := func(scenario, policy string) float64 {
		for _, r := range lines {
			if r.Cluster == everywhere && r.Scenario == scenario && r.Policy == policy {
				return r.Progress
			}
		}
		return math.NaN()
	}
	b.WriteString("\n### What it comes of\n\nProgress by the rule that sets the deadline, with whole micro-steps / with the last one cut / and small ones while a node is late.\n\n| deadline |")
	for _, s := range scenarios {
		b.WriteString(" " + s.Name + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(scenarios)) + "\n")
	for _, rule := range [][2]string{{"anytime", "fixed time"}, {"expected-time", "expected time"}, {"auto", "water-filling's finish, samples held"}} {
		fmt.Fprintf(b, "| %s (%s) |", rule[1], rule[0])
		for _, s := range scenarios {
			fmt.Fprintf(b, " %.4f / %.4f / %.4f |", progress(s.Name, rule[0]), progress(s.Name, rule[0]+"-cut"), progress(s.Name, rule[0]+"-on"))
		}
		b.WriteString("\n")
	}
}

// strata returns the progress of a policy's runs under a scenario, by cluster.
func strata(lines []evaluation.Result, scenario, policy string) [][]float64 {
	var s [][]float64
	for i := range lines {
		if l := &lines[i]; l.Cluster != "all" && l.Scenario == scenario && l.Policy == policy {
			s = append(s, l.Ratios())
		}
	}
	return s
}

// profiles draws, for every scenario, the share of runs that reach a progress.
func profiles(name string, config evaluation.Config, lines []evaluation.Result) error {
	fig := chart.Figure{Title: "Share of runs that reach a progress"}
	for _, scenario := range config.Scenarios {
		var best []evaluation.Spec // the agent, its rule, and the strongest others
		for _, p := range config.Policies {
			if !p.Bound && !strings.HasPrefix(p.Name, "ddqn,") && p.Name != "uniform" && !strings.Contains(p.Name, "-default") && !strings.Contains(p.Name, "-fixed") && p.Name != "nameplate" {
				best = append(best, p)
			}
		}
		panel := chart.Panel{Title: scenario.Name, XLabel: "progress", YLabel: "share of runs", ZeroY: true}
		low, high := math.Inf(1), math.Inf(-1)
		for _, p := range best {
			for _, runs := range strata(lines, scenario.Name, p.Name) {
				low, high = min(low, slices.Min(runs)), max(high, slices.Max(runs))
			}
		}
		var at []float64
		for k := range 60 {
			at = append(at, low+(high-low)*float64(k)/59)
		}
		for k, p := range best {
			line := chart.Series{Name: p.Name, Kind: chart.Line, X: at, Dashed: k > 0}
			band := chart.Series{Kind: chart.Band, X: at}
			for _, i := range stats.Profile(strata(lines, scenario.Name, p.Name), at) {
				line.Y = append(line.Y, i.Mean)
				band.Low, band.High = append(band.Low, i.Low), append(band.High, i.High)
			}
			panel.Series = append(panel.Series, line)
			if k == 0 {
				panel.Series = append(panel.Series, band)
			}
		}
		fig.Panels = append(fig.Panels, panel)
	}
	return errors.Join(fig.Save("experiments/tuner/heldout/"+name+".svg"), fig.Save("experiments/tuner/heldout/"+name+".png"))
}

// detail writes every result with its tuned hyperparameters as CSV.
func detail(path string, lines []evaluation.Result) error {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	rows := [][]string{{"cluster", "scenario", "policy", "nodes", "progress", "low", "high", "gain", "gain_low", "gain_high", "waiting", "freshness", "fallback", "decision_us_p50", "decision_us_p99", "knobs"}}
	n := func(v float64) string { return strconv.FormatFloat(v, 'f', 5, 64) }
	for _, r := range lines {
		rows = append(rows, []string{
			r.Cluster, r.Scenario, r.Policy, strconv.Itoa(r.Nodes), n(r.Progress), n(r.Low), n(r.High), n(r.Gain.Mean), n(r.Gain.Low), n(r.Gain.High),
			n(r.Waiting), n(r.Freshness), n(r.Fallback), n(r.P50), n(r.P99), r.Knobs,
		})
	}
	if err := w.WriteAll(rows); err != nil {
		return err
	}
	return renameio.WriteFile(path, b.Bytes(), 0o644)
}
