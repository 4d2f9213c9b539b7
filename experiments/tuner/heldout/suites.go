package main

import (
	"fmt"
	"math"

	"evenkeel/agent/clusters"
	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/cluster/trace"
	"evenkeel/experiments/internal/fleet"
	"evenkeel/lab/evaluation"
)

// suite is a set of comparisons on held-out devices and models.
type suite struct {
	about     string // what is left to the policies, in a sentence
	cases     func(*profile.Catalogue) ([]evaluation.Case, error)
	scenarios func() ([]evaluation.Scenario, error)
	policies  []string // the first is what the others are compared with
	hold      float64  // of the global batch in tuning: evaluation.Config.HoldBatch
	seeds     int
	tuneSeeds int
	rounds    int
}

var suites = map[string]suite{
	"all": {
		about: "Quorum all, a fixed global batch.",
		cases: heldOut(clusters.HeldOut, cluster.Choices{}), scenarios: presets("steady", "drift", "interference", "bursts"),
		policies: []string{"ddqn", "uniform", "proportional", "lbbsp", "waterfill", "waterfill-margin", "cusum", "model", "lag1", "lag1-margin", "oracle", "oracle-margin", "hindsight"},
		seeds:    30, tuneSeeds: 10, rounds: 400,
	},
	"deadline": {
		about: "Shares of 4 to 32 micro-steps, the deadline of rounds free, micro-steps of up to 10% of it after it (the agent, model and -on), a fixed global batch. A sample counts the same in a small round and a large one (no gradient noise scale), and tuning holds the samples of a round within 1% of the global batch in the mean, where a rule can: otherwise rules that shrink the batch would win.",
		cases: stepped(clusters.HeldOut), scenarios: unscaled("steady", "drift", "interference", "bursts", "failures", "production"), hold: 0.01,
		policies: []string{"ddqn", "waterfill-margin", "anytime", "anytime-cut", "anytime-on", "expected-time", "expected-time-cut", "expected-time-on",
			"auto", "auto-cut", "auto-on", "waterfill-deadline-on", "model", "lag1-margin", "oracle", "oracle-margin", "hindsight"},
		seeds: 30, tuneSeeds: 10, rounds: 400,
	},
	"few": {
		about: "As the suite deadline, with shares of 1, 2, 3 and 8 micro-steps on all nodes.",
		cases: fewSteps("heldout-16", 1, 2, 3, 8), scenarios: unscaled("steady", "drift", "interference", "bursts", "failures"), hold: 0.01,
		policies: []string{"ddqn", "auto-cut", "auto-on", "waterfill-deadline-on", "hindsight"},
		seeds:    10, tuneSeeds: 2, rounds: 300,
	},
	"free": {
		about: "Quorum and grace free, a fixed global batch.",
		cases: heldOut(clusters.HeldOut, freeRule), scenarios: presets("steady", "drift", "interference", "bursts", "failures"),
		policies: []string{"ddqn", "waterfill-margin", "cusum", "kofn", "dbw", "dropcompute", "model", "lag1", "oracle", "kofn-hindsight"},
		seeds:    30, tuneSeeds: 10, rounds: 400,
	},
	"short": {
		about: "Quorum and grace free, a fixed global batch, rounds of 0.05 to 1 s, and hangs that only a missed heartbeat of 30 s shows.",
		cases: short([]string{"heldout-8", "heldout-16"}, freeRule, 0.05, 0.3, 1), scenarios: hangs,
		policies: []string{"ddqn", "waterfill-margin", "kofn", "dbw", "model", "oracle"},
		seeds:    10, tuneSeeds: 5, rounds: 300,
	},
	"batch": {
		about: "Quorum, grace and the global batch free, within a quarter and four times the named one.",
		cases: heldOut(clusters.HeldOut, freeAll), scenarios: presets("steady", "bursts"),
		policies: []string{"ddqn", "waterfill-margin", "kofn", "goodput", "goodput-kofn", "model", "oracle"},
		seeds:    30, tuneSeeds: 10, rounds: 400,
	},
	"stages": {
		about: "Quorum, grace and the global batch free, within a quarter and four times the named one, where the gradient noise scale is that of the beginning, the middle and the end of the presets' course: 0.6, 6.6 and 72 times the named batch, steady conditions.",
		cases: heldOut([]string{"heldout-8", "heldout-16", "heldout-32"}, freeAll), scenarios: stages,
		policies: []string{"ddqn", "goodput", "goodput-kofn", "model", "oracle"},
		seeds:    10, tuneSeeds: 5, rounds: 300,
	},
	"scale": {
		about: "One set of weights from 2 to 10,000 nodes, quorum all; 40 samples a node.",
		cases: scaled(2, 8, 64, 512, 4096, 10_000), scenarios: presets("steady", "drift"),
		policies: []string{"ddqn", "model", "waterfill-margin", "oracle", "oracle-margin"},
		seeds:    5, tuneSeeds: 2, rounds: 200,
	},
	"unseen": {
		about: "Conditions beside the usual ones: training has swings, creep and wrong profiles, but no racks, nodes of two speeds or skewed clocks; quorum all.",
		cases: heldOut([]string{"heldout-16", "heldout-32"}, cluster.Choices{}), scenarios: presets("racks", "diurnal", "creep", "bimodal", "wrong-profile", "skewed-clocks"),
		policies: []string{"ddqn", "model", "waterfill", "waterfill-margin", "cusum", "oracle"},
		seeds:    30, tuneSeeds: 10, rounds: 400,
	},
	"foresee": {
		about: "Conditions with an order in them, by simulated time; racks of four nodes, whose names the policies see; quorum all.",
		cases: racked([]string{"heldout-16", "heldout-32"}, 4), scenarios: presets("periodic", "saves", "cascade", "hopping", "announced", "thermal", "mixture"),
		policies: []string{"ddqn", "uniform", "waterfill-margin", "cusum", "periods", "followers", "signs", "reactive", "model", "lag1-margin", "oracle-margin"},
		seeds:    30, tuneSeeds: 2, rounds: 400,
	},
	"orders": {
		about: "Spells in an order with other times and slowdowns than the presets', by simulated time; racks of eight nodes, whose names the policies see; quorum all.",
		cases: racked([]string{"heldout-8", "heldout-24", "heldout-64"}, 8), scenarios: orders,
		policies: []string{"ddqn", "waterfill-margin", "cusum", "periods", "followers", "signs", "reactive", "lag1-margin", "oracle-margin"},
		seeds:    30, tuneSeeds: 2, rounds: 400,
	},
	"measured": {
		about: "Jobs as measured, quorum all: the preset production, and the times of three jobs' workers replayed (shared/data, variability/pai_minibatch_time.csv): " +
			"its rows, which are ten rounds apart, as successive rounds (replayed), each held for ten rounds (held), and with the logarithms of the factors doubled (doubled). " +
			"The oracle knows a replayed round beforehand, so progress is lower than under presets.",
		cases: heldOut([]string{"heldout-8", "heldout-16"}, cluster.Choices{}), scenarios: measured,
		policies: []string{"ddqn", "model", "waterfill", "waterfill-margin", "cusum", "lag1", "oracle"},
		seeds:    30, tuneSeeds: 5, rounds: 300,
	},
}

// stepped returns the held-out clusters with memory for a part of a share only, so that
// micro-steps are the rule: 4, 8, 16 or 32 to a share by the profiles, by device and cluster;
// the deadline is left to the policy.
func stepped(names []string) func(*profile.Catalogue) ([]evaluation.Case, error) {
	return func(catalogue *profile.Catalogue) ([]evaluation.Case, error) {
		cases, err := heldOut(names, cluster.Choices{})(catalogue)
		if err != nil {
			return nil, err
		}
		for k := range cases {
			if err := fleet.InMicroSteps(cases[k].Cluster, k); err != nil {
				return nil, err
			}
		}
		return cases, nil
	}
}

// fewSteps returns a held-out cluster whose nodes' shares are so many micro-steps by the profiles; the deadline is left to the policy.
func fewSteps(name string, steps ...int) func(*profile.Catalogue) ([]evaluation.Case, error) {
	return func(catalogue *profile.Catalogue) ([]evaluation.Case, error) {
		var cases []evaluation.Case
		for _, k := range steps {
			again, err := heldOut([]string{name}, cluster.Choices{})(catalogue)
			if err != nil {
				return nil, err
			}
			if err := fleet.InSteps(again[0].Cluster, func(int) int { return k }); err != nil {
				return nil, err
			}
			again[0].Name = fmt.Sprintf("%d micro-steps", k)
			cases = append(cases, again[0])
		}
		return cases, nil
	}
}

var freeRule = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}

// freeAll marks the global batch as free too; heldOut fills in the bounds.
var freeAll = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces, LeastBatch: 1, MostBatch: 1}

// heldOut returns embedded clusters that leave the given choices to the policy.
func heldOut(names []string, choices cluster.Choices) func(*profile.Catalogue) ([]evaluation.Case, error) {
	return func(catalogue *profile.Catalogue) ([]evaluation.Case, error) {
		var cases []evaluation.Case
		for _, name := range names {
			_, c, err := clusters.Load(name, catalogue)
			if err != nil {
				return nil, err
			}
			c.Choices = choices
			if choices.MostBatch > 0 {
				c.Choices.LeastBatch, c.Choices.MostBatch = c.GlobalBatch/4, 4*c.GlobalBatch
			}
			cases = append(cases, evaluation.Case{Name: name, Cluster: c, Weights: speed})
		}
		return cases, nil
	}
}

// racked returns embedded clusters with so many nodes in a rack.
func racked(names []string, size int) func(*profile.Catalogue) ([]evaluation.Case, error) {
	return func(catalogue *profile.Catalogue) ([]evaluation.Case, error) {
		cases, err := heldOut(names, cluster.Choices{})(catalogue)
		for _, c := range cases {
			for i := range c.Cluster.Nodes {
				c.Cluster.Nodes[i].Rack = fmt.Sprintf("rack-%d", i/size)
			}
		}
		return cases, err
	}
}

// scaled returns clusters of one mix of devices with so many nodes.
func scaled(sizes ...int) func(*profile.Catalogue) ([]evaluation.Case, error) {
	return func(*profile.Catalogue) ([]evaluation.Case, error) {
		var cases []evaluation.Case
		for _, n := range sizes {
			c, err := fleet.Mixed("gpt-1.3b-512-fp32", n, 40, "a6000", "p40", "l40s", "p40", "a6000")
			if err != nil {
				return nil, err
			}
			cases = append(cases, evaluation.Case{Name: fmt.Sprintf("%d nodes", n), Cluster: c, Weights: speed})
		}
		return cases, nil
	}
}

// unscaled are presets without a gradient noise scale.
func unscaled(names ...string) func() ([]evaluation.Scenario, error) {
	return func() ([]evaluation.Scenario, error) {
		all, err := presets(names...)()
		for k := range all {
			all[k].Conditions.Scale = cluster.NoiseScale{}
		}
		return all, err
	}
}

func presets(names ...string) func() ([]evaluation.Scenario, error) {
	return func() ([]evaluation.Scenario, error) {
		var scenarios []evaluation.Scenario
		for _, name := range names {
			c, err := cluster.Preset(name)
			if err != nil {
				return nil, err
			}
			scenarios = append(scenarios, evaluation.Scenario{Name: name, Conditions: c})
		}
		return scenarios, nil
	}
}

// orders are patterns unlike the presets'.
func orders() ([]evaluation.Scenario, error) {
	spread := func(median, sigma float64) cluster.Spread { return cluster.Spread{Median: median, Sigma: sigma} }
	var scenarios []evaluation.Scenario
	for _, s := range []struct {
		name    string
		pattern cluster.Pattern
	}{
		{"quick periods", cluster.Pattern{Share: 0.5, Every: spread(15, 0.03), Length: spread(3, 0.2), Vary: 0.3, Excess: spread(0.5, 0.4)}},
		{"slow periods", cluster.Pattern{Share: 0.15, Every: spread(90, 0.1), Length: spread(12, 0.1), Vary: 0.5, Excess: spread(1.5, 0.5)}},
		{"loose periods", cluster.Pattern{Share: 0.25, Every: spread(30, 0.4), Length: spread(5, 0.5), Vary: 0.5, Excess: spread(1, 0.8)}},
		{"rare pauses", cluster.Pattern{Per: cluster.PerRun, Share: 0.25, Every: spread(60, 0.02), Length: spread(4, 0.3), Vary: 0.3, Excess: spread(2, 0.3)}},
		{"short pauses", cluster.Pattern{Per: cluster.PerRun, Share: 0.8, Every: spread(12, 0.1), Length: spread(0.7, 0.2), Vary: 0.3, Excess: spread(99, 0)}},
		{"quick cascades", cluster.Pattern{Per: cluster.PerRack, Every: spread(50, 1), Length: spread(6, 0.5), Excess: spread(1, 0.5), Lag: 1}},
		{"slow tenants", cluster.Pattern{Per: cluster.PerRack, Every: spread(30, 0.2), Length: spread(20, 0.3), Excess: spread(0.6, 0.4), Hop: true}},
		{"faint signs", cluster.Pattern{Every: spread(100, 1), Length: spread(15, 0.8), Excess: spread(0.8, 0.5), Notice: 2, Sign: 0.07}},
		{"steep sawteeth", cluster.Pattern{Share: 0.5, Every: spread(60, 0.1), Length: spread(30, 0.1), Vary: 0.3, Excess: spread(0.4, 0.5), Ramp: true}},
	} {
		c, err := cluster.Preset("steady")
		if err != nil {
			return nil, err
		}
		c.Patterns = []cluster.Pattern{s.pattern}
		scenarios = append(scenarios, evaluation.Scenario{Name: s.name, Conditions: c})
	}
	return scenarios, nil
}

// stages are steady conditions with the noise scales of a training's beginning, middle and end.
func stages() ([]evaluation.Scenario, error) {
	base, err := cluster.Preset("steady")
	if err != nil {
		return nil, err
	}
	var scenarios []evaluation.Scenario
	for _, s := range []struct {
		name  string
		scale float64 // over the named batch
	}{{"beginning", base.Scale.Start}, {"middle", math.Sqrt(base.Scale.Start * base.Scale.End)}, {"end", base.Scale.End}} {
		c := base
		c.Scale.Start, c.Scale.End = s.scale, s.scale
		scenarios = append(scenarios, evaluation.Scenario{Name: s.name, Conditions: c})
	}
	return scenarios, nil
}

// dataFolder holds published measurements.
var dataFolder = "../shared/data"

// measured returns the preset that is fitted to jobs, and measured times replayed in three ways.
func measured() ([]evaluation.Scenario, error) {
	scenarios, err := presets("production")()
	if err != nil {
		return nil, err
	}
	base := trace.Replay{File: "variability/pai_minibatch_time.csv", Columns: trace.Columns{Round: "time_index", Time: "batch_time_norm"}}
	if err := base.Open(dataFolder); err != nil {
		return nil, err
	}
	for _, s := range []struct {
		name        string
		pace, scale float64
	}{{"replayed", 10, 1}, {"held", 1, 1}, {"doubled", 10, 2}} {
		r := base
		r.Pace, r.Scale = s.pace, s.scale
		scenarios = append(scenarios, evaluation.Scenario{Name: s.name, Conditions: cluster.Conditions{Replay: r}})
	}
	return scenarios, nil
}

// short returns held-out clusters sped up, so that a round takes so many seconds by the profiles.
func short(names []string, choices cluster.Choices, rounds ...float64) func(*profile.Catalogue) ([]evaluation.Case, error) {
	return func(catalogue *profile.Catalogue) ([]evaluation.Case, error) {
		var cases []evaluation.Case
		for _, seconds := range rounds {
			again, err := heldOut(names, choices)(catalogue)
			if err != nil {
				return nil, err
			}
			for _, c := range again {
				if err := speedUp(c.Cluster, seconds); err != nil {
					return nil, err
				}
				c.Name = fmt.Sprintf("%s, %g s", c.Name, seconds)
				cases = append(cases, c)
			}
		}
		return cases, nil
	}
}

// speedUp scales all times of a cluster.
func speedUp(c *cluster.Cluster, seconds float64) error {
	sizes := make([]int, len(c.Nodes))
	finish, err := cluster.Allocate(c, nil, c.Nominal(), sizes)
	if err != nil {
		return err
	}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		points := append([]profile.Point(nil), n.Profile.Points...)
		for k := range points {
			points[k].Seconds *= seconds / finish
		}
		if n.Profile, err = profile.New(n.Profile.Device, n.Profile.Workload, points, n.Profile.Source); err != nil {
			return err
		}
		n.Network *= seconds / finish
	}
	return nil
}

// hangs returns conditions in which some failures are seen by a missed heartbeat alone, 30 s later.
func hangs() ([]evaluation.Scenario, error) {
	var scenarios []evaluation.Scenario
	for _, s := range []struct {
		name, preset string
		failures     cluster.Failures
	}{
		{"failures", "failures", cluster.Failures{Rate: 0.001, Rounds: 50, Silent: 0.3}},
		{"hangs", "steady", cluster.Failures{Rate: 0.001, Rounds: 50, Silent: 1}},
		{"rare hangs", "steady", cluster.Failures{Rate: 0.0001, Rounds: 50, Silent: 1}},
		{"bursts and hangs", "bursts", cluster.Failures{Rate: 0.001, Rounds: 50, Silent: 1}},
	} {
		c, err := cluster.Preset(s.preset)
		if err != nil {
			return nil, err
		}
		c.Failures = s.failures
		scenarios = append(scenarios, evaluation.Scenario{Name: s.name, Conditions: c})
	}
	return scenarios, nil
}
