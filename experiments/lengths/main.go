// Command lengths measures what samples of unequal length do: shifts of a node's speed that
// are seen where there are none, and goodput against equal samples with the same work in all.
// It writes both into experiments/RESULTS.md.
//
//	go run ./experiments/lengths
//	go run ./experiments/lengths -derive ../shared/data    # writes cluster/lengths/lengths.csv anew
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/agent/clusters"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/lengths"
	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/cluster/sim"
	"github.com/evenkeel/evenkeel/env"
	"github.com/evenkeel/evenkeel/experiments/internal/program"
	"github.com/evenkeel/evenkeel/experiments/internal/results"
)

func main() {
	data := flag.String("derive", "", "folder of published measurements, from which the table of lengths is written anew")
	seeds := flag.Int("seeds", 10, "seeds of a cell")
	rounds := flag.Int("rounds", 400, "rounds of a run")
	out := flag.String("out", "experiments/RESULTS.md", "file whose section is replaced")
	flag.Parse()
	program.Main(func(ctx context.Context) error {
		if *data != "" {
			return derive(*data, "cluster/lengths/lengths.csv")
		}
		return measure(ctx, *seeds, *rounds, *out)
	})
}

// setup is a kind of rounds.
type setup struct {
	name    string
	steps   int // of a share; 0: as memory has it
	timed   bool
	profile bool // the controller is shown the profiles
}

var setups = []setup{
	{"whole shares", 0, false, true},
	{"8 micro-steps, all waited for", 8, false, true},
	{"8 micro-steps until a deadline", 8, true, true},
	{"8 micro-steps until a deadline, no profile", 8, true, false},
}

// cell is what the runs of a setup came to.
type cell struct {
	goodput []float64 // mean samples per second, by run
	jumps   float64   // node-rounds in which the belief saw a shift
	nodes   float64   // node-rounds measured
}

func (out *cell) share() float64 { return out.jumps / max(out.nodes, 1) }

func measure(ctx context.Context, seeds, rounds int, out string) error {
	begun := time.Now()
	trained, err := agent.Embedded()
	if err != nil {
		return err
	}
	var rows strings.Builder
	for _, u := range setups {
		equal, err := play(ctx, trained, u, "", false, seeds, rounds)
		if err != nil {
			return err
		}
		fmt.Fprintf(&rows, "| %s | equal | %.2f%% | | | |\n", u.name, 100*equal.share())
		for _, name := range lengths.Names() {
			counted, err := play(ctx, trained, u, name, false, seeds, rounds)
			if err != nil {
				return err
			}
			blind, err := play(ctx, trained, u, name, true, seeds, rounds)
			if err != nil {
				return err
			}
			fmt.Fprintf(&rows, "| %s | %s | %.2f%% | %s | %.2f%% | %s |\n", u.name, name, 100*counted.share(), against(&counted, &equal), 100*blind.share(), against(&blind, &equal))
			fmt.Fprintf(os.Stderr, "%v: %s, %s\n", time.Since(begun).Round(time.Second), u.name, name)
		}
	}
	text := fmt.Sprintf(`Made by

    go run ./experiments/lengths

in %v: heldout-8 and heldout-16, %d seeds, %d rounds, the embedded policy. Shifts: node-rounds in which the belief saw a sudden change, in steady conditions without
spikes, where there is none (bias and step noise as everywhere). Goodput: work done per second against samples of equal length under the same
seed, in steady conditions, in points, with its 95%% interval. Blind: what a sample costs is not handed in, so that length is taken for speed.

| rounds | lengths | shifts | goodput | shifts, blind | goodput, blind |
|---|---|---|---|---|---|
%s`, time.Since(begun).Round(time.Second), seeds, rounds, rows.String())
	fmt.Print(text)
	return results.Replace(out, "lengths", text)
}

// against is the difference of two cells' goodput in points, paired by run.
func against(c, equal *cell) string {
	sum, squares, n := 0.0, 0.0, float64(len(c.goodput))
	for i := range c.goodput {
		d := 100 * (c.goodput[i]/equal.goodput[i] - 1)
		sum += d
		squares += d * d
	}
	mean := sum / n
	half := 1.96 * math.Sqrt(max(squares/n-mean*mean, 0)/max(n-1, 1))
	return fmt.Sprintf("%+.2f (%+.2f to %+.2f)", mean, mean-half, mean+half)
}

// play runs a setup twice: in conditions with spikes for the goodput, and without for the shifts.
func play(ctx context.Context, trained *agent.Trained, u setup, data string, blind bool, seeds, rounds int) (cell, error) {
	var out cell
	for _, name := range []string{"heldout-8", "heldout-16"} {
		_, c, err := clusters.Load(name, profile.Embedded())
		if err != nil {
			return out, err
		}
		if err := u.apply(c); err != nil {
			return out, err
		}
		for seed := range uint64(seeds) {
			for _, spikes := range []bool{true, false} {
				conditions, err := cluster.Preset("steady")
				if err != nil {
					return out, err
				}
				conditions.Lengths.Data, conditions.Scale = data, cluster.NoiseScale{}
				if !spikes {
					conditions.Spikes = cluster.Spikes{}
				}
				if err := out.run(ctx, trained, c, conditions, seed+1, rounds, blind, spikes); err != nil {
					return out, err
				}
			}
		}
	}
	return out, nil
}

// apply makes rounds of a cluster such as the setup says.
func (u *setup) apply(c *cluster.Cluster) error {
	if u.steps > 0 {
		sizes := make([]int, len(c.Nodes))
		for i := range c.Nodes {
			c.Nodes[i].Limit = profile.NoLimit
		}
		if _, err := cluster.Allocate(c, nil, c.Nominal(), sizes); err != nil {
			return err
		}
		for i := range c.Nodes {
			c.Nodes[i].Limit = max((sizes[i]+u.steps-1)/u.steps, 1)
		}
	}
	if u.timed {
		c.Collect.AutoDeadline, c.Collect.Reserve = true, cluster.DefaultReserve
	}
	if !u.profile {
		for i := range c.Nodes {
			n := &c.Nodes[i]
			n.Hidden.Profile, n.Profile = n.Profile, nil
		}
	}
	return nil
}

// run plays one run and adds what it came to: its goodput, or the shifts in it.
func (out *cell) run(ctx context.Context, trained *agent.Trained, c *cluster.Cluster, conditions cluster.Conditions, seed uint64, rounds int, blind, goodput bool) error {
	s := sim.New(c, conditions, seed)
	meter := &meter{Simulator: s, blind: blind}
	control := agent.Control{Cluster: c, Runner: meter, Policy: trained.NewAgent(c, [env.Objectives]float64{1})}
	watch, seconds := newWatch(c), 0.0
	for range rounds {
		r, err := control.Round(ctx)
		if err != nil {
			return err
		}
		seconds += r.Report.Wait.Seconds()
		if !goodput {
			jumps, nodes := watch.see(r.Report)
			out.jumps += jumps
			out.nodes += nodes
		}
	}
	if meter.work == 0 || seconds == 0 {
		return errors.New("nothing was done")
	}
	if goodput {
		out.goodput = append(out.goodput, meter.work/seconds)
	}
	return nil
}
