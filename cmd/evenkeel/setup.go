package main

import (
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/agent/export"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/cluster/sim"
)

// maxRounds bounds a run.
const maxRounds = 1_000_000

// runFlags are embedded by commands that simulate one run of the agent.
type runFlags struct {
	clusterFlags
	policyFlags
	Rounds     int    `help:"Rounds to simulate (${default})." default:"${rounds}" placeholder:"N"`
	Seed       uint64 `help:"Seed of everything random (${default})." default:"1" placeholder:"N"`
	Conditions string `help:"Conditions instead of the cluster file's: ${conditions}." placeholder:"NAME"`
	Quorum     string `help:"Gradients to wait for instead of the cluster file's quorum: 12, 80%, all; left to the policy: 70%,90%,all, or auto." placeholder:"Q"`
	Grace      string `help:"How long to wait for the others instead of the cluster file's grace: 500ms, 10%; left to the policy: 0%,10%, or auto." placeholder:"G"`
}

// setup is what a run starts from.
type setup struct {
	name        string // of the cluster
	text        string // of its file
	cluster     *cluster.Cluster
	conditions  agent.Scenario
	weights     cluster.Objectives // of the first round
	preferences []preference       // these and what follows
	trained     *agent.Trained
	policy      string
	seed        uint64
	rounds      int
}

// load reads all that the flags name.
func (f *runFlags) load() (*setup, error) {
	if f.Rounds < 1 || f.Rounds > maxRounds {
		return nil, badInputf("--rounds: %d is outside 1 to %d", f.Rounds, maxRounds)
	}
	catalogue, err := f.catalogue()
	if err != nil {
		return nil, err
	}
	text, file, c, err := loadCluster(f.Cluster, catalogue)
	if err != nil {
		return nil, err
	}
	s := &setup{name: f.Cluster, text: string(text), cluster: c, policy: f.Policy, seed: f.Seed, rounds: f.Rounds}
	s.conditions = agent.Scenario{Name: file.Conditions.Preset, Conditions: file.Conditions.Conditions}
	if f.Conditions != "" {
		if err := checkNames("--conditions", []string{f.Conditions}, cluster.Presets()); err != nil {
			return nil, err
		}
		s.conditions.Name = f.Conditions
		if s.conditions.Conditions, err = cluster.Preset(f.Conditions); err != nil {
			return nil, err
		}
	}
	if err := f.collect(file.Collect, c); err != nil {
		return nil, err
	}
	if s.preferences, err = preferences(f.Weights, file.Objectives, c, f.Rounds); err != nil {
		return nil, err
	}
	s.weights = s.preferences[0].Weights
	if s.policy == "" {
		s.policy = "embedded"
	}
	s.trained, err = loadPolicy(f.Policy)
	return s, err
}

// collect lets the flags overrule the file's collect section.
func (f *runFlags) collect(section cluster.FileCollect, c *cluster.Cluster) (err error) {
	if f.Quorum == "" && f.Grace == "" {
		return nil
	}
	if f.Quorum != "" {
		if section.Quorum, err = cluster.ParseQuorum(f.Quorum); err != nil {
			return badInputf("--quorum: %w", err)
		}
	}
	if f.Grace != "" {
		if section.Grace, err = cluster.ParseGrace(f.Grace); err != nil {
			return badInputf("--grace: %w", err)
		}
	}
	if err := section.Apply(c); err != nil {
		return badInputf("--quorum, --grace: %w", err)
	}
	if f.Grace != "" && !closesEarly(c) {
		return badInputf("--grace has no effect while the round waits for all; add --quorum, for example --quorum auto")
	}
	return nil
}

// closesEarly says whether a round may end before every node's work is in.
func closesEarly(c *cluster.Cluster) bool {
	early := func(rule int) bool { return cluster.Rules[rule].Quorum < 1 }
	return c.Collect.Quorum.Of(len(c.Nodes)) < len(c.Nodes) || slices.ContainsFunc(c.Choices.Rules(), early)
}

// freeRule says whether the policy chooses the rounds' rule.
func (s *setup) freeRule() bool { return len(s.cluster.Choices.Rules()) > 1 }

// start returns the agent and its control of a fresh simulation.
func (s *setup) start() (*agent.Agent, *sim.Simulator, *agent.Control) {
	simulator := sim.New(s.cluster, s.conditions.Conditions, s.seed)
	policy := s.trained.NewAgent(s.cluster, s.weights.Weights())
	return policy, simulator, &agent.Control{Cluster: s.cluster, Runner: simulator, Policy: policy}
}

// settled are the sizes for a trainer: those of the last round where every node took
// part in it, else the allocation over all nodes by the same performance parameters. A
// trainer has no use for a node's simulated absence.
func settled(c *cluster.Cluster, sizes []int, perf []cluster.Performance) (export.Sizes, error) {
	sum, all := 0, len(sizes) > 0
	for _, b := range sizes {
		sum += b
		all = all && b > 0
	}
	if sum > 0 && sum >= c.Choices.LeastBatch && sum <= c.Choices.MostBatch {
		own := *c
		own.GlobalBatch, c = sum, &own // as the policy chose it
	}
	if !all || sum != c.GlobalBatch {
		sizes = make([]int, len(c.Nodes))
		if _, err := cluster.Allocate(c, nil, perf, sizes); err != nil {
			return export.Sizes{}, err
		}
	}
	return export.New(c, sizes), nil
}

// checkFormat says whether the export format exists.
func checkFormat(flag, name string) error {
	err := export.Write(io.Discard, name, export.Sizes{}) // its error suggests the nearest
	if !errors.Is(err, export.ErrFormat) {
		return nil // the format exists, and refuses sizes of nothing
	}
	_, text, _ := strings.Cut(err.Error(), ": ")
	return badInputf("%s: %s", flag, text)
}

// warnMemory names the devices whose memory no size is checked against.
func (a *app) warnMemory(c *cluster.Cluster) {
	var devices []string
	for i := range c.Nodes {
		if n := &c.Nodes[i]; n.Limit == profile.NoLimit && !slices.Contains(devices, n.Device) {
			devices = append(devices, n.Device)
		}
	}
	if len(devices) > 0 {
		a.log.Warn().Msgf("no memory limit known for %s: sizes are not checked against memory", strings.Join(devices, ", "))
	}
}
