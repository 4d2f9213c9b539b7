package main

import (
	"fmt"
	"strings"

	"evenkeel/agent"
	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/cluster/profile"
	"evenkeel/cluster/sim"
	"evenkeel/env"
	"evenkeel/lab/evaluation"
)

// powered is a cluster of the devices whose power was measured. They belong to the training
// split; the power of no held-out device is known.
const powered = `workload: resnet-50
global_batch: 768
nodes:
  - {device: v100, count: 8}
  - {device: p100, count: 8}
collect: {quorum: auto, grace: auto}
`

// energy writes joules per sample and progress as the weight of energy rises at the cost of
// speed's, and the least energy that a fixed rule of K-of-N reaches.
func energy(b *strings.Builder, like game, trained *agent.Trained, kofn family) error {
	_, c, err := clusterfile.Read(strings.NewReader(powered), "powered.yaml", profile.Embedded())
	if err != nil {
		return err
	}
	shares := []float64{0, 0.2, 0.5, 1}
	b.WriteString("\n| scenario |")
	for _, s := range shares {
		fmt.Fprintf(b, " at weight %g |", s)
	}
	b.WriteString(" least of K-of-N |\n|---|" + strings.Repeat("---|", len(shares)+1) + "\n")
	for _, scenario := range scenarios {
		g := like
		g.cluster = c
		if g.conditions, err = cluster.Preset(scenario); err != nil {
			return err
		}
		if err := g.bases(); err != nil {
			return err
		}
		scores, err := g.scores(len(shares), func(_ *sim.Simulator, k int) agent.Policy {
			return trained.NewAgent(c, [env.Objectives]float64{1 - shares[k], 0, 0, shares[k]})
		})
		if err != nil {
			return err
		}
		fixed, err := g.scores(kofn.points, func(s *sim.Simulator, k int) agent.Policy { return kofn.create(c, s, k) })
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "| %s |", scenario)
		for k := range scores {
			joules, progress := g.joules(scores[k])
			fmt.Fprintf(b, " %.3f J, %.3f |", joules, progress)
		}
		least, with := 0.0, 0.0
		for k := range fixed {
			if joules, progress := g.joules(fixed[k]); least == 0 || joules < least {
				least, with = joules, progress
			}
		}
		fmt.Fprintf(b, " %.3f J, %.3f |\n", least, with)
	}
	return nil
}

// joules returns the means over seeds of joules per sample and of progress.
func (g *game) joules(scores []evaluation.Score) (joules, progress float64) {
	for i, s := range scores {
		joules += s.Energy / float64(len(scores))
		progress += s.Goodput / g.base[i] / float64(len(scores))
	}
	return joules, progress
}
