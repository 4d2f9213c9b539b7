package env

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/env/internal/envtest"
)

// rig feeds a tracker whose every node gets 20 samples in every round.
type rig struct {
	cluster *cluster.Cluster
	tracker *Tracker
	perf    []cluster.Performance
	actions []int
}

func newRig(t testing.TB, n int) *rig {
	t.Helper()
	c := envtest.Mixed(t, n)
	return &rig{cluster: c, tracker: NewTracker(c), perf: c.Nominal(), actions: make([]int, n)}
}

// report is a round in which every node takes its profile's time for size samples,
// slowed by its factor; a factor of 0 leaves the node out.
func (r *rig) report(size int, factors ...float64) *cluster.Report {
	report := &cluster.Report{Nodes: make([]cluster.NodeReport, len(factors))}
	wait := 0.0
	for i, f := range factors {
		if f == 0 {
			continue
		}
		n := &r.cluster.Nodes[i]
		p := n.Profile
		if p == nil {
			p = n.Hidden.Profile
		}
		seconds := n.Network + f*p.Seconds(float64(size))
		report.Nodes[i] = cluster.NodeReport{Status: cluster.In, Size: size, Seconds: seconds, Samples: size, Age: seconds, Norm: 1, Agree: 1}
		wait = max(wait, seconds)
	}
	report.Wait = time.Duration(wait * 1e9)
	return report
}

// round observes the factors and applies the same action to every node; below 0: the
// model's own.
func (r *rig) round(action int, factors ...float64) {
	r.tracker.Observe(r.report(20, factors...))
	r.tracker.Model(r.actions)
	for i := range r.actions {
		if action >= 0 {
			r.actions[i] = action
		}
	}
	r.tracker.Apply(r.actions, r.perf)
}

// kalman is the plain scalar filter of a random walk: variances in units of one
// measurement's.
type kalman struct{ x, p float64 }

func (k *kalman) step(z, cautious, drift float64) float64 {
	k.p += drift
	gain := k.p / (k.p + 1)
	if gain > 0.25 {
		z = cautious
	}
	k.x += gain * (z - k.x)
	k.p *= 1 - gain
	return gain
}

func TestFilterIsAKalmanFilter(t *testing.T) {
	for _, a := range updates {
		if a.Trust != Filter {
			continue
		}
		r, rng := newRig(t, 2), rand.New(rand.NewPCG(1, 2))
		twin, filter := kalman{x: 1, p: 6}, action(t, Filter, a.Drift)
		n, last := &r.tracker.nodes[0], 0.0
		for k := range 300 {
			z := 1.3 + 0.1*rng.NormFloat64()
			r.round(filter, z, 1)
			cautious := z
			if z < n.level { // faster than the level: the slower of two, up to the level
				cautious = min(max(z, last), n.level)
			}
			gain := twin.step(z, cautious, a.Drift)
			last = z
			if !near(n.slowdown, twin.x) || !near(n.gain, gain) || !near(n.variance, twin.p) {
				t.Fatalf("drift %v, round %d: belief %v gain %v variance %v, twin %v %v %v", a.Drift, k, n.slowdown, n.gain, n.variance, twin.x, gain, twin.p)
			}
			// The parameter leaves room for the next time: measurement noise and doubt.
			room := 1 + margins[1]*r.tracker.marginUnit()*n.deviation()*math.Sqrt(1+twin.p)
			if want := r.cluster.Nominal()[0].PerSample * twin.x * (1 + n.lag(n.deviation())) * room; !near(r.perf[0].PerSample, want) {
				t.Fatalf("drift %v: seconds per sample %v, want %v", a.Drift, r.perf[0].PerSample, want)
			}
		}
		if want := (math.Sqrt(a.Drift*a.Drift+4*a.Drift) - a.Drift) / 2; !near(twin.p, want) && a.Drift > 0.001 {
			t.Errorf("drift %v: gain %v, the steady one is %v", a.Drift, twin.p, want)
		}
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(math.Abs(a), math.Abs(b)) }

// Every drift of the action set is the best one for a node that drifts so.
func TestTheRightDriftIsTheBest(t *testing.T) {
	var drifts []float64
	for _, a := range updates {
		if a.Trust == Filter {
			drifts = append(drifts, a.Drift)
		}
	}
	const noise = 0.02
	for truth, drift := range drifts {
		errors := make([]float64, len(drifts))
		for k, assumed := range drifts {
			r, rng := newRig(t, 2), rand.New(rand.NewPCG(3, 4))
			x, filter := 10.0, action(t, Filter, assumed) // far from 0, where a random walk may go
			for round := range 4000 {
				x += noise * math.Sqrt(drift) * rng.NormFloat64()
				r.round(filter, x+noise*rng.NormFloat64(), 1)
				if round >= 500 {
					e := r.tracker.nodes[0].slowdown - x
					errors[k] += e * e
				}
			}
		}
		for k := range errors {
			if k != truth && errors[k] <= errors[truth] {
				t.Errorf("drift %v: assuming %v errs less (%v) than the truth (%v)", drift, drifts[k], errors[k], errors[truth])
			}
		}
	}
}

// deviationOver is the mean estimate over rounds 300 to 3000 of a node with noise.
func deviationOver(t *testing.T, noise float64, disturb func(round int, rng *rand.Rand) float64) float64 {
	r, rng := newRig(t, 2), rand.New(rand.NewPCG(7, 8))
	sum := 0.0
	for round := range 3000 {
		r.round(-1, disturb(round, rng)*(1+noise*rng.NormFloat64()), 1)
		if round >= 300 {
			sum += r.tracker.nodes[0].deviation()
		}
	}
	return sum / 2700
}

func TestDeviationConverges(t *testing.T) {
	for _, noise := range []float64{0.003, 0.03, 0.12} {
		for _, c := range []struct {
			name    string
			off     float64 // greatest departure, relative
			disturb func(int, *rand.Rand) float64
		}{
			{"steady", 0.10, func(int, *rand.Rand) float64 { return 1.2 }},
			{"drifting", 0.10, func(round int, _ *rand.Rand) float64 { return 1.2 + 0.3*math.Sin(float64(round)/300) }},
			{"spikes", 0.30, func(_ int, rng *rand.Rand) float64 {
				if rng.Float64() < 0.035 {
					return 2
				}
				return 1
			}},
			{"jumps", 0.15, func(round int, _ *rand.Rand) float64 { return 1 + float64(round/50%2) }},
		} {
			if got := deviationOver(t, noise, c.disturb); math.Abs(got/noise-1) > c.off {
				t.Errorf("noise %v, %s: estimate %.4f", noise, c.name, got)
			}
		}
	}
}

func TestLevelOutlastsASpell(t *testing.T) {
	r, rng := newRig(t, 2), rand.New(rand.NewPCG(9, 1))
	n := &r.tracker.nodes[0]
	measure := func(level float64) float64 { return level * (1 + 0.02*rng.NormFloat64()) }
	for range 100 {
		r.round(-1, measure(1.1), 1)
	}
	for range 40 {
		r.round(-1, measure(2), 1)
	}
	if math.Abs(n.slowdown/2-1) > 0.05 || math.Abs(n.level/1.1-1) > 0.01 {
		t.Fatalf("in a spell at 2: belief %v, level %v, want 2 and 1.1", n.slowdown, n.level)
	}
	r.round(-1, measure(1.1), 1)
	if got := Actions[r.actions[0]].Trust; got != Return {
		t.Fatalf("after the spell the model's update is %v", got)
	}
	if n.slowdown != n.level || math.Abs(n.slowdown/1.1-1) > 0.01 {
		t.Fatalf("belief %v after Return, level %v", n.slowdown, n.level)
	}
	if n.variance > 0.05 {
		t.Errorf("the level is known from 100 rounds, but the variance is %v", n.variance)
	}
}

func TestLevelFollowsALastingChange(t *testing.T) {
	r, rng := newRig(t, 2), rand.New(rand.NewPCG(9, 2))
	n := &r.tracker.nodes[0]
	for range 100 {
		r.round(-1, 1.1*(1+0.02*rng.NormFloat64()), 1)
	}
	for k := range 61 {
		if math.Abs(n.level/1.1-1) > 0.01 {
			t.Fatalf("the level was given up after %d rounds: %v", k, n.level)
		}
		r.round(-1, 2*(1+0.02*rng.NormFloat64()), 1)
	}
	r.round(-1, 2, 1)
	if math.Abs(n.level/2-1) > 0.03 {
		t.Errorf("level %v after 62 rounds at 2", n.level)
	}
}

// A level that began in a spell is given up sooner than one that many rounds made.
func TestLevelForgetsASpellAtTheStart(t *testing.T) {
	r, rng := newRig(t, 2), rand.New(rand.NewPCG(2, 4))
	r.round(-1, 3, 1)
	r.round(-1, 3.01, 1)
	for range 15 {
		r.round(-1, 1+0.02*rng.NormFloat64(), 1)
	}
	if n := &r.tracker.nodes[0]; math.Abs(n.level-1) > 0.05 {
		t.Errorf("level %v", n.level)
	}
}

// Margins shrink where a round holds many nodes that are suddenly slow.
func TestRoomHidesBehindJumps(t *testing.T) {
	calm, rough := newRig(t, 300), newRig(t, 300)
	rng := rand.New(rand.NewPCG(2, 5))
	factors := make([]float64, 300)
	for k := range 60 {
		for i := range factors {
			factors[i] = 1 + 0.02*rng.NormFloat64()
		}
		calm.round(-1, factors...)
		for i := range 10 {
			factors[(17*k+i)%300] += 0.5
		}
		rough.round(-1, factors...)
	}
	if got := calm.tracker.marginUnit(); math.Abs(got/calm.tracker.spread-1) > 0.05 {
		t.Errorf("%.3f of the spread without jumps", got/calm.tracker.spread)
	}
	if got, want := rough.tracker.marginUnit(), rough.tracker.spread*Hidden(10); math.Abs(got/want-1) > 0.4 {
		t.Errorf("room %.3f with ten spikes a round, want about %.3f", got, want)
	}
	rough.tracker.SetRule(cluster.Collect{Quorum: cluster.Quorum{Share: 0.9}}, 300)
	if got := rough.tracker.marginUnit(); got != rough.tracker.spread {
		t.Errorf("room %.3f where nobody waits for the late, want %.3f", got, rough.tracker.spread)
	}
}

// late is a report in which node 0 is still at work, for factor times its time at
// slowdown 1.
func (r *rig) late(factor float64) *cluster.Report {
	report := r.report(20, factor, 1)
	n := &report.Nodes[0]
	n.Status, n.Samples, n.Busy, n.BusySize = cluster.Late, 0, n.Seconds, n.Size
	return report
}

// The belief about a node that is still computing, but not overdue, stays, and the node is expected
// after the time left; an overdue node is judged by its action's guess.
func TestLateNodes(t *testing.T) {
	for _, a := range updates {
		r, index := newRig(t, 2), action(t, a.Trust, a.Drift)
		for range 10 {
			r.round(action(t, Filter, 0.1), 1.5, 1)
		}
		n, node := &r.tracker.nodes[0], &r.cluster.Nodes[0]
		before, count := n.slowdown, n.count
		due := node.Finish(node.Slowed(n.base, before), 20)
		for _, so := range []float64{0.2, 1, 1.4} {
			report := r.late(so)
			r.tracker.Observe(report)
			r.tracker.Apply([]int{index, index}, r.perf)
			if n.slowdown != before || !near(n.left, due-report.Nodes[0].Busy) {
				t.Errorf("%v: %v of its time moved the belief from %v to %v; %v s left", a, so, before, n.slowdown, n.left)
			}
		}
		report := r.late(3)
		r.tracker.Observe(report)
		r.tracker.Apply([]int{index, index}, r.perf)
		g := guesses[Actions[index].guess]
		want := before
		switch {
		case g.slower:
			want = node.Slowness(n.base, &cluster.NodeReport{Size: 20, Seconds: report.Nodes[0].Busy * (1 + g.left)})
		case a.Trust == Return:
			want = n.level
		}
		if !near(n.slowdown, want) || !near(n.left, g.left*report.Nodes[0].Busy) {
			t.Errorf("%v: late beyond 3: belief %v, want %v; %v s left", a, n.slowdown, want, n.left)
		}
		if n.count != count || n.fresh || !n.late {
			t.Errorf("%v: a late node counts as measured", a)
		}
		ready := make([]cluster.Performance, 2)
		r.tracker.Occupy(r.perf, ready)
		if !near(ready[0].Overhead, r.perf[0].Overhead+n.left) || ready[1] != r.perf[1] {
			t.Errorf("%v: to allocate by: %+v, in force %+v", a, ready, r.perf)
		}
	}
}

func TestAbsentNodesKeepTheirBelief(t *testing.T) {
	r := newRig(t, 2)
	for range 5 {
		r.round(-1, 1.4, 1)
	}
	n, before := &r.tracker.nodes[0], r.tracker.nodes[0].slowdown
	for i := range Actions {
		r.round(i, 0, 1)
		if n.slowdown != before || n.fresh || n.late {
			t.Fatalf("action %d moved the belief in an absent node from %v to %v", i, before, n.slowdown)
		}
	}
	if r.tracker.fleet.missing != 0 {
		t.Errorf("missing %v: an absent node was not expected", r.tracker.fleet.missing)
	}
}

func TestUnknownProfileConvergesToTheLine(t *testing.T) {
	const overhead, per = 0.5, 0.03
	c := envtest.Mixed(t, 2)
	c.Nodes[0].Profile, c.Nodes[0].Hidden.Profile = nil, envtest.Line(t, overhead, per)
	c.Nodes[0].Limit = profile.NoLimit
	tracker, perf, rng := NewTracker(c), c.Nominal(), rand.New(rand.NewPCG(4, 4))
	r := &rig{cluster: c, tracker: tracker}
	for range 200 {
		tracker.Observe(r.report(10+rng.IntN(60), 1+0.005*rng.NormFloat64(), 1))
		tracker.Apply([]int{modelFilter, modelFilter}, perf)
	}
	base := tracker.nodes[0].base
	if math.Abs(base.PerSample/per-1) > 0.03 || math.Abs(base.Overhead/(overhead+c.Nodes[0].Network)-1) > 0.03 {
		t.Errorf("fitted %+v, want overhead %v and %v per sample", base, overhead+c.Nodes[0].Network, per)
	}
	if p := perf[0]; p.PerSample < 0.99*base.PerSample || p.PerSample > 1.05*base.PerSample {
		t.Errorf("in force %+v, fitted %+v", p, base)
	}
}

// A node without a profile that is late before it was ever measured: its bound is
// believed, and a little more, until a measurement comes.
func TestUnknownProfileMayBeLateAtOnce(t *testing.T) {
	c := envtest.Mixed(t, 2)
	c.Nodes[0].Profile, c.Nodes[0].Hidden.Profile = nil, c.Nodes[0].Profile
	r := &rig{cluster: c, tracker: NewTracker(c), perf: c.Nominal(), actions: make([]int, 2)}
	guess := r.perf[0].PerSample
	for _, x := range []struct{ bound, want float64 }{{0.5, 1}, {3, 3 * (1 + guesses[0].left)}, {2, 3 * (1 + guesses[0].left)}} {
		report := r.report(20, 1, 1)
		report.Nodes[0].Status, report.Nodes[0].Samples = cluster.Late, 0
		report.Nodes[0].Seconds = c.Nodes[0].Network + x.bound*20*guess
		report.Nodes[0].Busy, report.Nodes[0].BusySize = report.Nodes[0].Seconds, 20
		r.tracker.Observe(report)
		r.tracker.Apply(r.actions, r.perf)
		n := &r.tracker.nodes[0]
		if math.Abs(n.slowdown/x.want-1) > 0.01 || math.IsInf(r.perf[0].PerSample, 0) || math.IsInf(n.variance, 0) {
			t.Errorf("late beyond %v: slowdown %v, variance %v, parameters %+v", x.bound, n.slowdown, n.variance, r.perf[0])
		}
	}
	r.round(modelFilter, 1, 1)
	if n := &r.tracker.nodes[0]; !near(n.slowdown, 1) || !near(n.variance, 6.01/7.01) {
		t.Errorf("after a measurement: slowdown %v, variance %v", n.slowdown, n.variance)
	}
}

// What a fleet's spikes were like outlives a new start: otherwise the first one after it would be larger than any known, and believed.
func TestAdoptKnowsSpikes(t *testing.T) {
	old, adopted := NewTracker(envtest.Mixed(t, 2)), NewTracker(envtest.Mixed(t, 2))
	old.fleet.risen, old.fleet.stayed, old.fleet.passed = 10, 1, 4.5
	adopted.Adopt(old, []int{0, 1})
	if f := &adopted.fleet; f.novel(2) || !f.novel(3) || f.odds() != old.fleet.odds() {
		t.Errorf("%+v, want what %+v knows", f, &old.fleet)
	}
}

func TestSpread(t *testing.T) {
	tail := func(t float64) float64 { return 0.5 * math.Erfc(t/math.Sqrt2) }
	last := 0.0
	for _, n := range []int{3, 16, 100, 1000, 100_000} {
		s := spread(n)
		if !(s > last) || math.Abs(tail(s)*float64(n)-1) > 1e-9 {
			t.Errorf("%d nodes: spread %v, tail %v", n, s, tail(s))
		}
		last = s
	}
	if spread(1) != spread(3) || spread(2) != spread(3) {
		t.Error("two nodes have no spread of their own")
	}
}
