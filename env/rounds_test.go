package env

import (
	"context"
	"math"
	"testing"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/sim"
	"github.com/evenkeel/evenkeel/env/internal/envtest"
)

// player runs rounds of a simulated cluster by the model's own updates; the rule of each
// may be chosen.
type player struct {
	*Tracker
	sim         *sim.Simulator
	alloc       cluster.Allocator
	perf, ready []cluster.Performance
	actions     []int
	sizes       []int
}

func newPlayer(t testing.TB, n int, conditions string) *player {
	t.Helper()
	c := envtest.Mixed(t, n)
	c.Choices = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}
	p := &player{Tracker: NewTracker(c), sim: sim.New(c, envtest.Preset(t, conditions), 7), perf: c.Nominal(),
		ready: make([]cluster.Performance, n), actions: make([]int, n), sizes: make([]int, n)}
	p.run(t, cluster.Collect{})
	return p
}

// play runs a round under a rule, an index into cluster.Rules.
func (p *player) play(t testing.TB, rule int) {
	t.Helper()
	collect := cluster.Rules[rule].Apply(cluster.Collect{})
	p.SetRule(collect, len(p.sizes))
	p.Model(p.actions)
	p.Apply(p.actions, p.perf)
	p.run(t, collect)
}

func (p *player) run(t testing.TB, collect cluster.Collect) {
	t.Helper()
	p.Occupy(p.perf, p.ready)
	finish, err := p.alloc.Allocate(p.cluster, p.sim.Present(), p.ready, p.sizes)
	if err != nil {
		t.Fatal(err)
	}
	p.Predict(finish)
	report, err := p.sim.Round(context.Background(), cluster.Plan{Sizes: p.sizes, Collect: collect})
	if err != nil {
		t.Fatal(err)
	}
	p.Observe(report)
}

// allRules are the indices of cluster.Rules.
func allRules() []int {
	all := make([]int, len(cluster.Rules))
	for i := range all {
		all[i] = i
	}
	return all
}

// Where the averages see every node in time they are the means of the rounds' true
// values, whichever rule is in force: no rule needs trying.
func TestMeansAreThoseOfTheRounds(t *testing.T) {
	e := newPlayer(t, 12, "steady")
	all := len(cluster.Rules) - 1
	var o cluster.Outcomes
	sums := make([][Objectives]float64, len(cluster.Rules))
	values := make([][Objectives]float64, len(cluster.Rules))
	const rounds = 100
	for range rounds {
		e.play(t, all)
		o.Set(e.round.work)
		Values(values, &o, 12, float64(e.cluster.GlobalBatch), e.scale, e.round.rate)
		center(values)
		for a := range values {
			for k, v := range values[a] {
				sums[a][k] += v
			}
		}
	}
	for a := range sums {
		for k := range sums[a] {
			mean := sums[a][k] / rounds
			if got := e.Means()[a][k]; math.Abs(got-mean) > 0.03 {
				t.Errorf("%v, objective %d: average %v, mean of the rounds %v", cluster.Rules[a], k, got, mean)
			}
		}
	}
}

// A rule that is preferred under some weights is not given up when the weight of an
// objective in which it is best rises; and weights on one objective alone find its best.
func TestBestRuleFollowsTheWeights(t *testing.T) {
	e, allowed := newPlayer(t, 16, "bursts"), allRules()
	for range 100 {
		e.play(t, e.BestRule(allowed, [Objectives]float64{1}, nil))
	}
	means := e.Means()
	for o := range Objectives {
		last := math.Inf(-1)
		for _, w := range []float64{0, 0.1, 0.2, 0.4, 0.7, 1} {
			weights := [Objectives]float64{}
			for k := range weights {
				weights[k] = (1 - w) / (Objectives - 1)
			}
			weights[o] = w
			got := means[e.BestRule(allowed, weights, nil)][o]
			if got < last-1e-12 {
				t.Errorf("objective %d falls from %v to %v as its weight rises to %v", o, last, got, w)
			}
			last = got
		}
		for _, a := range allowed {
			if means[a][o] > last+1e-12 {
				t.Errorf("objective %d alone: %v, but rule %v has %v", o, last, cluster.Rules[a], means[a][o])
			}
		}
	}
	// A correction decides from rulePays on.
	speed := [Objectives]float64{1}
	best := e.BestRule(allowed, speed, nil)
	other := (best + 3) % len(cluster.Rules)
	corrections := make([]float32, len(cluster.Rules)*Objectives)
	corrections[other*Objectives] = float32(RoundScale * (means[best][0] - means[other][0] + 0.9*rulePays))
	if got := e.BestRule(allowed, speed, corrections); got != best {
		t.Errorf("a gain below the threshold moves the choice from %d to %d", best, got)
	}
	corrections[other*Objectives] = float32(RoundScale * (means[best][0] - means[other][0] + 1.1*rulePays))
	if got := e.BestRule(allowed, speed, corrections); got != other {
		t.Errorf("a gain above the threshold leads to %d, want %d", got, other)
	}
	if got := e.BestRule([]int{4}, speed, corrections); got != 4 {
		t.Errorf("the only rule allowed is 4, got %d", got)
	}
}

// Rules are worth choosing: under bursts the averages lead to much more progress than
// waiting for everybody.
func TestChoosingRulesPays(t *testing.T) {
	run := func(choose func(*player) int) float64 {
		e := newPlayer(t, 16, "bursts")
		for range 140 {
			e.play(t, choose(e))
		}
		return e.round.rate // progress per second, averaged over the rounds
	}
	chosen := run(func(e *player) int { return e.BestRule(allRules(), [Objectives]float64{1}, nil) })
	all := run(func(*player) int { return len(cluster.Rules) - 1 })
	t.Logf("progress per second %.3f with the rule free, %.3f waiting for all", chosen, all)
	if chosen < 1.1*all {
		t.Errorf("progress per second %.3f with the rule free, %.3f waiting for all", chosen, all)
	}
}

func TestRoundRow(t *testing.T) {
	e := newPlayer(t, 5, "drift")
	for k := range 40 {
		row := e.RoundRow(nil, [Objectives]float64{1})
		if len(row) != RoundFeatures {
			t.Fatalf("%d features, want %d", len(row), RoundFeatures)
		}
		for i, v := range row {
			if !(math.Abs(float64(v)) < 12) {
				t.Fatalf("round %d: feature %d is %v", k, i, v)
			}
		}
		e.play(t, k%len(cluster.Rules))
	}
}

// The noise scale is found from the gradients' norms.
func TestNoiseScale(t *testing.T) {
	e := newPlayer(t, 8, "steady")
	for range 60 {
		e.play(t, len(cluster.Rules)-1)
	}
	if got, want := e.NoiseScale(), e.sim.Scale(); math.Abs(got/want-1) > 0.05 {
		t.Errorf("noise scale %v, truth %v", got, want)
	}
}

func TestProgress(t *testing.T) {
	for _, scale := range []float64{0, 40, 4000} {
		if v, _ := Progress(100, 100, scale); math.Abs(v-1) > 1e-12 {
			t.Errorf("scale %v: a whole batch is worth %v", scale, v)
		}
		for _, n := range []float64{10, 60, 150} {
			v, slope := Progress(n, 100, scale)
			w, _ := Progress(n+1e-4, 100, scale)
			if math.Abs((w-v)/1e-4-slope) > 1e-6 {
				t.Errorf("scale %v, %v samples: slope %v, difference quotient %v", scale, n, slope, (w-v)/1e-4)
			}
		}
	}
}
