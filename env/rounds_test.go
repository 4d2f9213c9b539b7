package env

import (
	"context"
	"math"
	"testing"
	"time"

	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/env/internal/envtest"
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
		ruleValues(values, &o, 12, float64(e.cluster.GlobalBatch), e.scale, e.round.rate)
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
		e.play(t, e.BestRule(allowed, [Objectives]float64{1}))
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
			got := means[e.BestRule(allowed, weights)][o]
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
	if got := e.BestRule([]int{4}, [Objectives]float64{1}); got != 4 {
		t.Errorf("the only rule allowed is 4, got %d", got)
	}
}

// Choosing rules pays: under bursts the averages lead to much more progress than waiting
// for all nodes.
func TestChoosingRulesPays(t *testing.T) {
	run := func(choose func(*player) int) float64 {
		e := newPlayer(t, 16, "bursts")
		for range 140 {
			e.play(t, choose(e))
		}
		return e.round.rate // progress per second, averaged over the rounds
	}
	chosen := run(func(e *player) int { return e.BestRule(allRules(), [Objectives]float64{1}) })
	all := run(func(*player) int { return len(cluster.Rules) - 1 })
	t.Logf("progress per second %.3f with the rule free, %.3f waiting for all", chosen, all)
	if chosen < 1.1*all {
		t.Errorf("progress per second %.3f with the rule free, %.3f waiting for all", chosen, all)
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
		if v, _ := progress(100, 100, scale); math.Abs(v-1) > 1e-12 {
			t.Errorf("scale %v: a whole batch is worth %v", scale, v)
		}
		for _, n := range []float64{10, 60, 150} {
			v, slope := progress(n, 100, scale)
			w, _ := progress(n+1e-4, 100, scale)
			if math.Abs((w-v)/1e-4-slope) > 1e-6 {
				t.Errorf("scale %v, %v samples: slope %v, difference quotient %v", scale, n, slope, (w-v)/1e-4)
			}
		}
	}
}

// ruleIndex is the place of a rule in cluster.Rules.
func ruleIndex(t *testing.T, quorum, grace float64) int {
	t.Helper()
	for i, r := range cluster.Rules {
		if r.Quorum == quorum && r.Grace == grace {
			return i
		}
	}
	t.Fatalf("no rule of quorum %v and grace %v", quorum, grace)
	return 0
}

// Four nodes of 10 samples deliver after 1, 1, 2 and 4 s; a second costs a tenth of a
// round's progress. Half of them close the round after 1 s: 20 samples count, the other 20
// come 1 and 3 rounds late, and count a half and a quarter. All close it after 4 s, of
// which the nodes idle for 8 in total.
func TestValuesByHand(t *testing.T) {
	var o cluster.Outcomes
	power := cluster.Power{Idle: 100, Busy: 200}
	deliver := func(power cluster.Power) {
		var d []cluster.Delivery
		for _, at := range []float64{1, 1, 2, 4} {
			d = append(d, cluster.Delivery{At: at, Took: at, Size: 10, Power: power})
		}
		o.Set(d)
	}
	deliver(power)
	values := make([][Objectives]float64, len(cluster.Rules))
	check := func(what string, rule int, want [Objectives]float64) {
		t.Helper()
		for k, w := range want {
			if !near(values[rule][k]+1, w+1) {
				t.Errorf("%s: %s is %v, want %v", what, ObjectiveNames[k], values[rule][k], w)
			}
		}
	}
	half, all := ruleIndex(t, cluster.Quorums[0], 0), len(cluster.Rules)-1
	first := float64(cluster.Quorum{Share: cluster.Quorums[0]}.Of(4)) // nodes that close it
	if first != 2 {
		t.Fatalf("the least quorum is of %v in four", first)
	}
	ruleValues(values, &o, 4, 40, 0, 0.1)
	check("half", half, [Objectives]float64{20.0/40 + 7.5/40 - 12.5/40 - 0.1*1 - 0.3*20/40, 0, -0.5, 1 - 1600/27.5/60})
	check("all", all, [Objectives]float64{1 - 0.1*4, -8.0 / 16, 0, 0})
	ruleValues(values, &o, 4, 40, 60, 0.1) // a gradient of 20 samples is worth more than half of one of 40
	check("half, noisy", half, [Objectives]float64{0.5*100/80 + 60*100.0/(80*80*40)*7.5 - 12.5/40 - 0.1 - 0.15, 0, -0.5, 1 - 1600/27.5/60})
	deliver(cluster.Power{})
	ruleValues(values, &o, 4, 40, 0, 0)
	check("power unknown", half, [Objectives]float64{20.0/40 + 7.5/40 - 12.5/40 - 0.15, 0, -0.5, 0})
	values[half][3], values[all][3] = 3, 5
	two := [][Objectives]float64{{1, 2}, {3, -2}}
	center(two)
	if two[0] != [Objectives]float64{-1, 2} || two[1] != [Objectives]float64{1, -2} {
		t.Errorf("centred %v", two)
	}
}

// What a report says about every node's work, by hand.
func TestSeeRound(t *testing.T) {
	c := envtest.Mixed(t, 6)
	c.Choices = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}
	tracker := NewTracker(c)
	due := func(i, size int) float64 { return c.Nodes[i].Finish(c.Nominal()[i], size) }
	late, busy := due(2, 20), due(1, 20)
	tracker.Predict(busy / 2)
	report := &cluster.Report{Wait: 2 * time.Second, Counted: 72, Nodes: []cluster.NodeReport{
		{Status: cluster.In, Size: 20, Seconds: 1.5, Idle: 0.5, Samples: 20},
		{Status: cluster.In, Size: 20, Seconds: 1, Busy: 0.25 * busy, BusySize: 20, Samples: 9, Aged: 9, Behind: 1},
		{Status: cluster.Late, Size: 20, Seconds: 1, Busy: 1.5 * late, BusySize: 20},
		{Status: cluster.In, Size: 20, Seconds: 0.5, Samples: 25, Aged: 5},
		{Status: cluster.Absent}, {Status: cluster.Lost},
	}}
	tracker.Observe(report)
	r := tracker.round
	wait := []cluster.Delivery{
		{At: 1.5, Took: 1.5, Size: 20},
		{At: 2 - 0.25*busy, Took: 1, Size: 20, Behind: 1, NextAt: 2 + 0.75*busy, NextTook: busy, NextSize: 20},
		{At: 2 + 0.2*late, Took: 1.7 * late, Size: 20, Behind: int(1.5 * late / 2)},
		{At: 1.5, Took: 0.5, Size: 5, Behind: 1, NextAt: 2, NextTook: 0.5, NextSize: 20},
		{At: 2, Took: 2}, // lost in a round of many times what was predicted: who waits for all waited for it
	}
	if len(r.work) != len(wait) {
		t.Fatalf("%d deliveries, want %d", len(r.work), len(wait))
	}
	for i, w := range wait {
		g := r.work[i]
		if !near(g.At, w.At) || !near(g.Took, w.Took) || g.Size != w.Size || g.Behind != w.Behind || !near(g.NextAt, w.NextAt) || !near(g.NextTook, w.NextTook) || g.NextSize != w.NextSize {
			t.Errorf("node %d: %+v, want %+v", i, g, w)
		}
	}
	if want := 72.0 / 144 / 2; r.count != 1 || !near(r.rate, want) {
		t.Errorf("rate %v of %v rounds, want %v", r.rate, r.count, want)
	}
	// The second round counts as much as the first.
	report.Counted = 144
	tracker.Observe(report)
	if want := (0.25 + 0.5) / 2; !near(r.rate, want) {
		t.Errorf("rate %v after two rounds, want %v", r.rate, want)
	}
	// Silent since an earlier round: it would have been waited for until now.
	tracker.nodes[5].busy, tracker.nodes[5].busySize = 7, 20
	report.Nodes[2].Busy = 4 * late // beyond three times what is expected: it may be as long again
	tracker.Observe(report)
	if g := r.work[4]; g.At != 9 || g.Size != 0 {
		t.Errorf("a node silent for 9 s: %+v", g)
	}
	if g := r.work[2]; !near(g.At, 2+0.8*late) {
		t.Errorf("a node long overdue: %+v", g)
	}
	all := r.outcomes.Under(cluster.Rule{Quorum: 1})
	if most := r.outcomes.Under(cluster.Rule{Quorum: 0.8}); all.Wait != 9 || most.Wait > 3 {
		t.Errorf("a hang counts for %v s where all are waited for, %v s by a quorum", all.Wait, most.Wait)
	}
}

// A rule is a share of those present, and a grace in parts of the predicted finish.
func TestSetRule(t *testing.T) {
	tracker := NewTracker(envtest.Mixed(t, 8))
	collect := cluster.Collect{Quorum: cluster.Quorum{Count: 6}, GraceShare: 0.1, Grace: time.Second}
	if tracker.SetRule(collect, 8); tracker.Rule() != (cluster.Rule{Quorum: 0.75, Grace: 0.1}) {
		t.Errorf("%+v", tracker.Rule())
	}
	tracker.Predict(4)
	if tracker.SetRule(collect, 8); !near(tracker.Rule().Grace, 0.35) {
		t.Errorf("%+v", tracker.Rule())
	}
}

// Of more than a thousand nodes every second one is looked at, and so on.
func TestSeeSomeOfMany(t *testing.T) {
	for nodes, want := range map[int]int{1024: 1024, 1025: 513, 2049: 683} {
		c := envtest.Mixed(t, nodes)
		c.Choices = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}
		tracker := NewTracker(c)
		report := &cluster.Report{Wait: time.Second, Nodes: make([]cluster.NodeReport, nodes)}
		for i := range report.Nodes {
			report.Nodes[i] = cluster.NodeReport{Status: cluster.In, Size: 24, Seconds: 1, Samples: 24}
		}
		if tracker.Observe(report); len(tracker.round.work) != want {
			t.Errorf("%d of %d nodes, want %d", len(tracker.round.work), nodes, want)
		}
	}
}
