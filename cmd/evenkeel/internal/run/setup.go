package run

import (
	"cmp"
	"slices"
	"strings"

	"evenkeel/agent"
	"evenkeel/agent/export"
	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/cluster/sim"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
	"evenkeel/lab/evaluation"
)

// flags are those of a simulated run.
type flags struct {
	cli.ClusterFlags
	Policy  string `help:"Policy file of evenkeel train; default: the embedded policy." placeholder:"FILE"`
	Weights string `help:"Weights of the objectives instead of the cluster file's, for example speed=1,waiting=0.5,freshness=0,energy=0." placeholder:"NAME=W,..."`
	rule
	cli.EqualFlag
	Rounds     int    `help:"Rounds to simulate (${default})." default:"200" placeholder:"N"`
	Seed       uint64 `help:"Random seed (${default})." default:"1" placeholder:"N"`
	Conditions string `help:"Conditions instead of the cluster file's: ${conditions}." placeholder:"NAME"`
}

// rule is the round rule, instead of the cluster file's.
type rule struct {
	Quorum   string `help:"Gradients to wait for instead of the cluster file's quorum or deadline: 12, 80%, all; or several for the policy to choose from: 70%,90%,all; or auto." placeholder:"Q"`
	Grace    string `help:"How long to wait for the remaining nodes instead of the cluster file's grace: 500ms, 10%; or several for the policy to choose from: 0%,10%; or auto." placeholder:"G"`
	Deadline string `help:"When every node hands in what it has, instead of the cluster file's deadline or quorum: 2s, 110% of the predicted time, or auto (a round has the global batch on average)." placeholder:"D"`
}

// setup is the input of a run.
type setup struct {
	name       string // of the cluster
	text       string // of its file
	cluster    *cluster.Cluster
	given      *cluster.Cluster // as it was before the run learnt what memory holds
	conditions evaluation.Scenario
	weights    cluster.Objectives
	trained    *agent.Trained
	policy     string
	seed       uint64
	rounds     int
}

// load reads the files that the flags name, of which none may be an output.
func (f *flags) load(outputs ...cli.File) (*setup, error) {
	if f.Rounds < 1 || f.Rounds > cli.MaxRounds {
		return nil, badinput.Errorf("--rounds: %d is outside 1 to %d", f.Rounds, cli.MaxRounds)
	}
	if f.Equal && f.Deadline != "" {
		return nil, badinput.New("--equal-steps excludes --deadline, at which nodes have made different numbers of micro-steps; leave one of the two out")
	}
	catalogue, err := f.Catalogue()
	if err != nil {
		return nil, err
	}
	text, file, c, err := cli.LoadCluster(f.Cluster, catalogue, outputs...)
	if err != nil {
		return nil, err
	}
	s := &setup{name: f.Cluster, text: string(text), cluster: c, policy: f.Policy, seed: f.Seed, rounds: f.Rounds}
	s.conditions = evaluation.Scenario{Name: file.Conditions.Preset, Conditions: file.Conditions.Conditions}
	if f.Conditions != "" {
		s.conditions.Name = f.Conditions
		if s.conditions.Conditions, err = cli.Conditions(f.Conditions); err != nil {
			return nil, err
		}
	}
	if err := f.collect(file.Collect, c); err != nil {
		return nil, err
	}
	if err := f.SetEqualSteps(f.Cluster, c); err != nil {
		return nil, err
	}
	if s.weights, err = chosenWeights(f.Weights, file.Objectives, c); err != nil {
		return nil, err
	}
	s.policy = cmp.Or(s.policy, "embedded")
	s.given = c.Own()
	s.trained, err = cli.LoadPolicy(f.Policy)
	return s, err
}

var errGraceAlone = badinput.New("--grace has no effect while the round waits for all; add --quorum, for example --quorum auto")

// collect lets the flags overrule the file's collect section.
func (f *rule) collect(section clusterfile.Collect, c *cluster.Cluster) (err error) {
	if f.Quorum == "" && f.Grace == "" && f.Deadline == "" {
		return nil
	}
	// A round ends one way or the other: the flags of one take the other away.
	switch {
	case f.Deadline == "":
		section.Deadline, section.Reserve, section.Steps, section.Overtime, section.Timeout.Share = nil, nil, "", 0, 0
	case f.Quorum == "" && f.Grace == "":
		section.Quorum, section.Grace = nil, nil
	}
	if f.Deadline != "" {
		if section.Deadline, err = clusterfile.ParseDeadline(f.Deadline); err != nil {
			return badinput.Errorf("--deadline: %w", err)
		}
	}
	if f.Quorum != "" {
		if section.Quorum, err = clusterfile.ParseQuorum(f.Quorum); err != nil {
			return badinput.Errorf("--quorum: %w", err)
		}
	}
	if f.Grace != "" {
		if section.Grace, err = clusterfile.ParseGrace(f.Grace); err != nil {
			return badinput.Errorf("--grace: %w", err)
		}
	}
	if f.Grace != "" && section.Quorum == nil {
		return errGraceAlone
	}
	if err := section.Apply(c); err != nil {
		var given []string
		for _, g := range []struct{ name, value string }{{"--quorum", f.Quorum}, {"--grace", f.Grace}, {"--deadline", f.Deadline}} {
			if g.value != "" {
				given = append(given, g.name)
			}
		}
		return badinput.Errorf("%s: %w", strings.Join(given, ", "), err)
	}
	if f.Grace != "" && !closesEarly(c) {
		return errGraceAlone
	}
	return nil
}

// closesEarly reports whether a round may end before all nodes have delivered.
func closesEarly(c *cluster.Cluster) bool {
	early := func(rule int) bool { return cluster.Rules[rule].Quorum < 1 }
	return c.Collect.Quorum.Of(len(c.Nodes)) < len(c.Nodes) || slices.ContainsFunc(c.Choices.Rules(), early)
}

// freeRule reports whether the policy chooses the round rule.
func (s *setup) freeRule() bool { return len(s.cluster.Choices.Rules()) > 1 }

// start returns the agent, a new simulator, and the control loop that joins them.
func (s *setup) start() (*agent.Agent, *sim.Simulator, *agent.Control) {
	simulator := sim.New(s.cluster, s.conditions.Conditions, s.seed)
	policy := s.trained.NewAgent(s.cluster, s.weights.Weights())
	return policy, simulator, &agent.Control{Cluster: s.cluster, Runner: simulator, Policy: policy}
}

// end is the end of a run whose last round had these sizes.
func (s *setup) end(policy *agent.Agent, sizes []int) export.Run {
	return export.Run{Cluster: s.cluster, GlobalBatch: policy.GlobalBatch(), NoiseScale: policy.NoiseScale(), Sizes: sizes, Performance: policy.Performance()}
}

// free reports whether the agent chooses the global batch.
func free(c *cluster.Cluster) bool { return c.Choices.MostBatch > 0 }

// scalingFlags are embedded by commands that write sizes.
type scalingFlags struct {
	LRScaling string `name:"lr-scaling" help:"Rule that scales the learning rate with a global batch that the agent chose: ${scalings}; default: sqrt, as for Adam. If the batch is fixed the factor is 1." placeholder:"RULE"`
}

func (f *scalingFlags) check() error {
	if f.LRScaling == "" {
		return nil
	}
	_, err := export.LearningRateFactor(f.LRScaling, 1, 1, 0) // its error suggests the nearest
	return unprefixed("--lr-scaling", err)
}

// checkFormat reports an unknown export format.
func checkFormat(flag, name string) error {
	_, err := export.Find(name)
	return unprefixed(flag, err)
}

// unprefixed replaces the package's name in an error of package export by the flag. It
// returns nil for nil.
func unprefixed(flag string, err error) error {
	if err == nil {
		return nil
	}
	_, text, _ := strings.Cut(err.Error(), ": ")
	return badinput.Errorf("%s: %s", flag, text)
}

// clusterInputs are the files that describe the cluster.
func clusterInputs(f *cli.ClusterFlags) []cli.File {
	return append(f.ProfileFlags.Inputs(), cli.ClusterInput(f.Cluster))
}
