package episode

import (
	"context"
	"errors"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/sim"
	"github.com/evenkeel/evenkeel/env"
)

// horizon of a look ahead, in rounds: until then a late node has caught up.
const aheadRounds = 4

// ahead plays on from a moment of an episode in a copy of it.
type ahead struct {
	cluster cluster.Cluster // with a fixed rule: the copy need not judge rules itself
	sim     sim.Simulator
	tracker *env.Tracker
	alloc   cluster.Allocator
	actions []int
	sizes   []int
	perf    []cluster.Performance
	ready   []cluster.Performance
}

func newAhead(c *cluster.Cluster) *ahead {
	n := len(c.Nodes)
	a := &ahead{cluster: *c, actions: make([]int, n), sizes: make([]int, n), perf: make([]cluster.Performance, n), ready: make([]cluster.Performance, n)}
	a.cluster.Choices = cluster.Choices{}
	a.tracker = env.NewTracker(&a.cluster)
	return a
}

// judge values the rules asked for in the round about to run. Speed is played out: a copy of the episode runs this round under the rule and some more under
// the preferred one, with the same noise for all, so that a difference is the rule's.
func (e *Episode) judge() error {
	preferred := e.tracker.BestRule(e.allowed, [env.Objectives]float64{1}, nil)
	e.work = e.sim.Deliveries(e.work[:0], e.sizes)
	e.outcomes.Set(e.work)
	batch := float64(e.config.Cluster.GlobalBatch)
	env.Values(e.values, &e.outcomes, float64(len(e.work)), batch, e.sim.Scale(), e.tracker.Rate())
	base, err := e.playOut(preferred, preferred)
	if err != nil {
		return err
	}
	means := e.tracker.Means()
	e.rules = e.rules[:0]
	for _, rule := range e.asked {
		value := e.values[rule]
		if value[0], err = e.playOut(rule, preferred); err != nil {
			return err
		}
		for o := range value {
			reference := e.values[preferred][o]
			if o == 0 {
				reference = base
			}
			above := value[o] - reference - (means[rule][o] - means[preferred][o])
			e.rules = append(e.rules, float32(env.RoundScale*min(max(above, -1), 1)))
		}
	}
	return nil
}

// playOut is the progress, less what the time is worth, of this round under a rule and
// of the rounds after it under another.
func (e *Episode) playOut(rule, after int) (float64, error) {
	a := e.ahead
	a.sim.CopyFrom(e.sim)
	a.tracker.CopyFrom(e.tracker)
	copy(a.sizes, e.sizes)
	batch, value := float64(e.config.Cluster.GlobalBatch), 0.0
	for round := range aheadRounds {
		collect := cluster.Rules[rule].Apply(e.config.Cluster.Collect)
		if round > 0 {
			collect = cluster.Rules[after].Apply(e.config.Cluster.Collect)
			present := a.sim.Present()
			a.tracker.SetRule(collect, count(present))
			a.tracker.Model(a.actions)
			a.tracker.Apply(a.actions, a.perf)
			a.tracker.Occupy(a.perf, a.ready)
			if _, err := a.alloc.Allocate(&a.cluster, present, a.ready, a.sizes); errors.Is(err, cluster.ErrCapacity) {
				return value, nil // too many nodes are gone: the episode ends for every rule
			} else if err != nil {
				return 0, err
			}
		}
		scale := a.sim.Scale()
		report, err := a.sim.Round(context.Background(), cluster.Plan{Sizes: a.sizes, Collect: collect})
		if err != nil {
			return 0, err
		}
		worth, _ := env.Progress(report.Counted, batch, scale)
		value += worth - e.tracker.Rate()*report.Wait.Seconds()
		a.tracker.Observe(report)
	}
	return value, nil
}

func count(present []bool) int {
	n := 0
	for _, p := range present {
		if p {
			n++
		}
	}
	return n
}
