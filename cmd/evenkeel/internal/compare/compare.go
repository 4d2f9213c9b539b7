// Package compare holds the command compare, which evaluates policies over scenarios and seeds.
package compare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"evenkeel/agent/clusters"
	"evenkeel/cluster"
	"evenkeel/cluster/trace"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
	"evenkeel/lab/evaluation"
)

// Cmd compares policies over scenarios and seeds.
type Cmd struct {
	Cluster []string `help:"Cluster file, or an embedded cluster: ${clusters}. Repeatable. Default: the five held-out ones, devices and models that training never saw." placeholder:"FILE|NAME" sep:"none"`
	cli.ProfileFlags
	cli.EqualFlag
	Policy    string   `help:"Policy file for ddqn; default: the embedded policy." placeholder:"FILE"`
	Scenarios []string `help:"Conditions to compare under: ${conditions}; file, for those of the one --cluster file; or replay. Default: steady, drift, interference and bursts; with --replay: replay." placeholder:"NAME"`
	Replay    string   `help:"The scenario replay: measured times of steps, by time; a CSV file of job, worker (both may be missing), round, seconds." placeholder:"FILE"`
	Policies  []string `help:"Policies to compare; the first is compared with every other. Default: all of the above, except those marked + whose choice the clusters fix." placeholder:"NAME"`
	Seeds     int      `help:"Runs per policy, cluster and scenario, the same seeds for each (${default})." default:"30" placeholder:"N"`
	Rounds    int      `help:"Rounds per run (${default})." default:"400" placeholder:"N"`
	JSON      bool     `name:"json" help:"Print the results as JSON."`
	Plot      string   `help:"Draw the progress of every policy, as SVG." placeholder:"FILE"`
}

// Help is what --help adds: the policies.
func (*Cmd) Help() string {
	var b strings.Builder
	b.WriteString("Policies with hyperparameters are tuned for every cluster and scenario, on separate seeds. The policies:\n")
	for _, p := range evaluation.Specs() {
		about := p.About
		if p.Bound {
			about = "bound: " + about
		}
		if p.Rule || p.Batch {
			about += " +"
		}
		fmt.Fprintf(&b, "\n  %-22s %s", p.Name, about)
	}
	b.WriteString("\n\nPolicies marked + choose more than sizes: when rounds end, or the global batch. They are left out if the cluster file fixes that, unless you name them.\n" +
		"\nExamples:\n\n  evenkeel compare\n" +
		"  evenkeel compare --cluster my.yaml --scenarios drift,bursts --policies ddqn,waterfill-margin,uniform\n" +
		"  evenkeel compare --policy policy/policy.safetensors --seeds 10 --plot comparison.svg    # a policy of evenkeel train")
	return b.String()
}

const (
	maxSeeds = 10_000
	// holdBatch is how far the samples of a round may be off the global batch in tuning, where a
	// policy sets deadlines: else those that shrink the batch would win.
	holdBatch = 0.01
)

// Run runs the command.
func (c *Cmd) Run(a *cli.App) error {
	config, err := c.config()
	if err != nil {
		return err
	}
	report, clearBar := a.Progress("comparing")
	config.Progressed = report
	results, err := evaluation.Compare(a.Ctx, config)
	clearBar()
	if errors.Is(err, context.Canceled) {
		hint := "interrupted before any comparison was finished; nothing is kept"
		if len(results) > 0 {
			hint = "interrupted; only the comparisons that are printed were finished"
		}
		err = cli.Interrupted(err, hint)
	}
	if err != nil && len(results) == 0 {
		return err
	}
	if c.Plot != "" {
		failed := comparisonFigure(results).Save(c.Plot)
		if failed == nil {
			a.Log.Info().Str("file", c.Plot).Msg("figure written")
		}
		err = errors.Join(err, failed)
	}
	if c.JSON {
		return errors.Join(err, a.WriteJSON(map[string]any{"results": results}))
	}
	return errors.Join(err, printComparison(a.Out, results))
}

// config reads and checks all that the flags name, before any work.
func (c *Cmd) config() (evaluation.Config, error) {
	config := evaluation.Config{Seeds: c.Seeds, Rounds: c.Rounds, Clock: time.Now}
	if c.Seeds < 1 || c.Seeds > maxSeeds {
		return config, badinput.Errorf("--seeds: %d is outside 1 to %d", c.Seeds, maxSeeds)
	}
	if c.Rounds < 1 || c.Rounds > cli.MaxRounds {
		return config, badinput.Errorf("--rounds: %d is outside 1 to %d", c.Rounds, cli.MaxRounds)
	}
	if err := c.files(); err != nil {
		return config, err
	}
	var known []string
	for _, p := range evaluation.Specs() {
		known = append(known, p.Name)
	}
	if c.Policies != nil {
		if err := cli.CheckNames("--policies", c.Policies, known); err != nil {
			return config, err
		}
	}
	if c.Scenarios == nil {
		c.Scenarios = []string{"steady", "drift", "interference", "bursts"}
		if c.Replay != "" {
			c.Scenarios = []string{replayed}
		}
	}
	if err := cli.CheckNames("--scenarios", c.Scenarios, append(cluster.Presets(), ownConditions, replayed)); err != nil {
		return config, err
	}
	if slices.Contains(c.Scenarios, replayed) != (c.Replay != "") {
		return config, badinput.Errorf("--replay: give a file and the scenario replay, or neither")
	}
	if err := c.cases(&config); err != nil {
		return config, err
	}
	if timed := func(s evaluation.Case) bool {
		return s.Cluster.Collect.AutoDeadline && s.Cluster.Choices.MostBatch == 0
	}; slices.ContainsFunc(config.Cases, timed) {
		config.HoldBatch = holdBatch
	}
	if c.Policies == nil {
		for _, p := range evaluation.Suited(config.Cases) {
			c.Policies = append(c.Policies, p.Name)
		}
	}
	var err error
	if config.Policies, err = evaluation.Find(c.Policies); err != nil {
		return config, err
	}
	equal := slices.IndexFunc(config.Cases, func(s evaluation.Case) bool { return s.Cluster.EqualSteps() > 0 })
	if timed := slices.IndexFunc(config.Policies, func(p evaluation.Spec) bool { return p.Timed }); equal >= 0 && timed >= 0 {
		return config, badinput.Errorf("--policies: %s ends rounds at deadlines, but the nodes of %s make equal micro-steps; leave the policy, or --equal-steps and equal_steps, out", config.Policies[timed].Name, config.Cases[equal].Name)
	}
	if !slices.Contains(c.Policies, "ddqn") && c.Policy != "" {
		return config, badinput.Errorf("--policy has no effect without ddqn among --policies")
	}
	if slices.Contains(c.Policies, "ddqn") {
		config.Trained, err = cli.LoadPolicy(c.Policy)
	}
	return config, err
}

// Names of the scenarios that take the cluster file's conditions and the times of --replay.
const (
	ownConditions = "file"
	replayed      = "replay"
)

// cases reads the clusters and the scenarios.
func (c *Cmd) cases(config *evaluation.Config) error {
	catalogue, err := c.Catalogue()
	if err != nil {
		return err
	}
	named := c.Cluster
	if len(named) == 0 {
		named = clusters.HeldOut
	}
	var own cluster.Conditions
	for i, name := range named {
		for _, other := range named[:i] {
			if name == other || cli.ClusterInput(name).Path != "" && cli.SameFile(name, other) {
				return badinput.Errorf("--cluster: %q is given twice", name)
			}
		}
		_, file, cl, err := cli.LoadCluster(name, catalogue, cli.FileFlag("--plot", c.Plot))
		if err != nil {
			return err
		}
		if err := c.SetEqualSteps(name, cl); err != nil {
			return err
		}
		config.Cases = append(config.Cases, evaluation.Case{Name: name, Cluster: cl, Weights: file.Objectives.Weights()})
		own = file.Conditions.Conditions
	}
	for _, name := range c.Scenarios {
		conditions := own
		switch name {
		case ownConditions:
			if len(c.Cluster) != 1 {
				return badinput.Errorf("--scenarios: %q needs exactly one --cluster, whose conditions it takes", ownConditions)
			}
		case replayed:
			conditions = cluster.Conditions{Replay: trace.Replay{File: c.Replay, Timed: true}}
			if err := conditions.Replay.Open(""); err != nil {
				return cli.FileError(err)
			}
		default:
			if conditions, err = cluster.Preset(name); err != nil {
				return err
			}
		}
		config.Scenarios = append(config.Scenarios, evaluation.Scenario{Name: name, Conditions: conditions})
	}
	return nil
}

// files checks what is read and written.
func (c *Cmd) files() error {
	if err := cli.CheckPlot(c.Plot); err != nil {
		return err
	}
	inputs := append(c.Inputs(), cli.FileFlag("--policy", c.Policy), cli.FileFlag("--replay", c.Replay))
	for _, name := range c.Cluster {
		inputs = append(inputs, cli.ClusterInput(name))
	}
	return cli.CheckFiles(inputs, []cli.File{cli.FileFlag("--plot", c.Plot)})
}
