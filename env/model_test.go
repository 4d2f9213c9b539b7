package env

import (
	"math"
	"math/rand/v2"
	"testing"

	"evenkeel/cluster"
)

func TestModelsOwnUpdate(t *testing.T) {
	r, rng := newRig(t, 3), rand.New(rand.NewPCG(2, 2))
	for range 200 {
		r.round(-1, 1+0.02*rng.NormFloat64(), 1+0.02*rng.NormFloat64(), 1)
	}
	r.round(-1, 1.01, 1.6, 1)
	if r.actions[0] != modelSlow+modelRoom || r.actions[1] != modelJump+modelRoom {
		t.Errorf("actions %v, want the slow filter and the jump", r.actions)
	}
	if got := r.tracker.nodes[1].slowdown; math.Abs(got-1.6) > 1e-9 {
		t.Errorf("belief %v after a jump to 1.6", got)
	}
	for name, index := range map[string]int{"filter": modelFilter, "jump": modelJump, "return": modelReturn, "hold": modelLate} {
		if a := Actions[index]; a.Trust.String() != name || a.Margin != margins[0] {
			t.Errorf("the model's %s is %+v", name, a)
		}
	}
	for k := range 80 { // it wanders: neighbouring residuals go together
		r.round(-1, 1+0.03*math.Sin(float64(k)/8)+0.005*rng.NormFloat64(), 1.6, 1)
	}
	if r.actions[0] != modelFilter+modelRoom {
		t.Errorf("action %d of a node that wanders, want the filter", r.actions[0])
	}
	r.tracker.SetRule(cluster.Collect{Quorum: cluster.Quorum{Share: 0.5}}, 3)
	r.round(-1, 1+0.03*math.Sin(10), 1.6, 1)
	if r.actions[0] != modelQuick {
		t.Errorf("action %d with a quorum, want a quick filter without room", r.actions[0])
	}
}

// One round that is faster than ever is not believed: if it is noise, all nodes wait.
func TestModelWaitsForASecondFastRound(t *testing.T) {
	r, rng := newRig(t, 2), rand.New(rand.NewPCG(2, 3))
	for range 100 {
		r.round(-1, 1+0.02*rng.NormFloat64(), 1)
	}
	r.round(-1, 0.6, 1)
	if n := &r.tracker.nodes[0]; n.slowdown < 0.95 {
		t.Errorf("belief %v after one round at 0.6", n.slowdown)
	}
	r.round(-1, 0.6, 1)
	if n := &r.tracker.nodes[0]; math.Abs(n.slowdown-0.6) > 1e-9 {
		t.Errorf("belief %v after two rounds at 0.6", n.slowdown)
	}
}

// A jump back to the level is a return. Another one is a jump, even if the level has too few measurements
// for it to be strange.
func TestModelTellsReturnsFromJumps(t *testing.T) {
	r := newRig(t, 1)
	n := &r.tracker.nodes[0]
	for newest, want := range map[float64]int{1.15: modelReturn, 0.85: modelReturn, 1.25: modelJump, 0.75: modelJump} {
		n.belief = noisy(0.05)
		n.levels, n.slowdown, n.variance = 1, 3, 0.1
		n.newest[0], n.residual, n.count, n.fresh = newest, newest/3-1, 5, true
		if r.tracker.Model(r.actions); r.actions[0] != want+modelRoom {
			t.Errorf("after %v: action %d, want %d", newest, r.actions[0], want+modelRoom)
		}
	}
	n.count = 1
	if r.tracker.Model(r.actions); r.actions[0] == modelJump+modelRoom {
		t.Error("a jump at the first measurement")
	}
}

// The slow filter is for uncorrelated residuals; at the bound they count as correlated.
func TestModelsFilterAtTheBound(t *testing.T) {
	r := newRig(t, 1)
	n := &r.tracker.nodes[0]
	for _, deviation := range []float64{priorDeviation, 0.4} { // beside strong noise they have to go together more
		n.deviance = deviation * normalAbs
		bound := quiet + quieter*deviation
		for product, want := range map[float64]int{bound + 1e-9: modelFilter, bound - 1e-9: modelSlow} {
			n.product = product
			if r.tracker.Model(r.actions); r.actions[0] != want+modelRoom {
				t.Errorf("product %v at a deviation of %v: action %d, want %d", product, deviation, r.actions[0], want+modelRoom)
			}
		}
	}
}

// The actions that a network may choose for a node, by hand: all, only the margin if a slowdown is large and likely to
// last, none under strong noise.
func TestOpen(t *testing.T) {
	const jump = modelJump + modelRoom
	all := [2]int{0, len(Actions)}
	margin := [2]int{modelJump, modelJump + len(margins)}
	for name, x := range map[string]struct {
		residual, noise float64
		stayed          float64 // of 9.5 sudden slowdowns
		nodes           int
		quorum          float64
		want            [2]int
		mean            float64 // of those that passed
	}{
		"a slowdown by one that is likely to last": {1, 1, 4.5, 4, 1, margin, 1}, // odds 5/5.5, times 2 and 4 nodes
		"of a small part":                          {0.49, 1, 4.5, 4, 1, all, 1},
		"just large enough":                        {0.51, 1, 4.5, 4, 1, margin, 1},
		"as likely as needed":                      {1, 1, 2.5, 4, 1, margin, 1}, // 3/7.5 * 8 = 3.2
		"less likely":                              {1, 1, 2, 4, 1, all, 1},      // 2.5/8 * 8 = 2.5
		"of fewer nodes":                           {1, 1, 2.5, 3, 1, all, 1},
		"nobody waits for it":                      {1, 1, 4.5, 4, 0.75, all, 1},
		"a recovery":                               {-0.6, 1, 4.5, 4, 1, all, 1},
		"noise":                                    {0.05, 1, 4.5, 4, 1, all, 1},
		"noise of eight times the usual":           {0.05, 7.9, 4.5, 4, 1, all, 1},
		"more noise":                               {0.05, 8.1, 4.5, 4, 1, [2]int{jump, jump + 1}, 1},
		"more noise, and nobody waits":             {0.05, 8.1, 4.5, 4, 0.75, [2]int{jump, jump + 1}, 1},
		"larger than five times those that passed": {1.01, 1, 0, 4, 1, margin, 0.2}, // odds 0.5/10
		"five times those that passed":             {0.99, 1, 0, 4, 1, all, 0.2},
		"not so, as two of them lasted":            {1, 1, 2, 4, 1, all, 0.21},
	} {
		r := newRig(t, x.nodes)
		r.tracker.SetRule(cluster.Collect{Quorum: cluster.Quorum{Share: x.quorum}}, x.nodes)
		r.tracker.fleet.risen, r.tracker.fleet.stayed, r.tracker.fleet.passed = 9.5, x.stayed, x.mean*(9.5-x.stayed)
		n := &r.tracker.nodes[1]
		n.belief = noisy(0.03)
		n.variance, n.residual, n.count, n.fresh, n.pooled = 0.1, x.residual, 5, true, x.noise*priorDeviation
		if from, to := r.tracker.Open(1, jump); [2]int{from, to} != x.want {
			t.Errorf("%s: %d to %d, want %v", name, from, to, x.want)
		}
		n.fresh = false
		if from, to := r.tracker.Open(1, jump); x.noise < noisyModel && [2]int{from, to} != all {
			t.Errorf("%s, not measured: %d to %d, want all", name, from, to)
		}
	}
}

// A node that becomes slower in small steps is planned for where it will be, not where it was.
func TestApplyMakesUpForLag(t *testing.T) {
	r, rng := newRig(t, 1), rand.New(rand.NewPCG(4, 5))
	slow, off, without := 1.0, 0.0, 0.0
	for k := range 150 {
		r.round(-1, slow*(1+0.02*rng.NormFloat64()))
		slow *= 1.01
		if n := &r.tracker.nodes[0]; k >= 50 { // without the margin
			room := 1 + n.margin*n.deviation()*math.Sqrt(1+n.variance)
			off += (r.perf[0].PerSample/n.base.PerSample/room/slow - 1) / 100
			without += (n.slowdown/slow - 1) / 100
		}
	}
	if without > -0.02 || math.Abs(off) > 0.4*-without {
		t.Errorf("plans are %.4f off in the mean, beliefs %.4f", off, without)
	}
}

// Sudden slowdowns that lasted, of those there were: odds by hand, each a hundredth less by the next.
func TestOddsByHand(t *testing.T) {
	var f fleet
	if f.odds() != 1 {
		t.Errorf("odds of nothing: %v", f.odds())
	}
	f.learn(1, 0, 0.5)
	f.learn(2, 1, 0.2)
	risen, stayed := 0.99*0.99+2, 1.0
	if want := (stayed + 0.5) / (risen - stayed + 0.5); !near(f.odds(), want) {
		t.Errorf("odds %v, want %v", f.odds(), want)
	}
	if !near(f.passed, 0.99*0.99*0.5+0.2) {
		t.Errorf("those that passed were %v above the level in all", f.passed)
	}
	if f.learn(0, 0, 0); f.risen != risen {
		t.Error("a round without any counts")
	}
}

// Observe learns how long sudden slowdowns last: node 0's for a round, node 1's for good.
func TestObserveLearnsWhatLasts(t *testing.T) {
	r := newRig(t, 2)
	for range 20 {
		r.round(-1, 1, 1)
	}
	for _, factor := range []float64{1.5, 1, 1, 1.5, 1} {
		r.round(-1, factor, 1)
	}
	if f := &r.tracker.fleet; !near(f.risen, 1.99) || f.stayed != 0 || math.Abs(f.passed-0.5*1.99) > 0.01 {
		t.Errorf("%v of %v lasted, the others %v above in all, want none of 1.99, half as much", f.stayed, f.risen, f.passed)
	}
	r.round(-1, 1, 2)
	r.round(-1, 1, 2)
	r.round(-1, 1, 2) // is no other case
	if f := &r.tracker.fleet; !near(f.risen, 0.99*1.99+1) || f.stayed != 1 {
		t.Errorf("%v of %v lasted, want 1 of 2.9701", f.stayed, f.risen)
	}
}

// In a small cluster where sudden slowdowns pass, the first measurement of one is ignored. The second is
// not, nor is the first where slowdowns last, or if the node is a small part of the cluster.
func TestModelHoldsASpike(t *testing.T) {
	for _, x := range []struct {
		nodes  int
		stayed float64 // of ten
		rose   int
		mean   float64 // of those that passed
		want   int
	}{
		{2, 0, 1, 0.3, modelHold}, {2, 0, 2, 0.3, modelJump}, {2, 9, 1, 0.3, modelJump}, {10, 0, 1, 0.3, modelHold}, {20, 0, 1, 0.3, modelJump},
		{2, 0, 1, 0.101, modelHold}, {2, 0, 1, 0.099, modelJump}, // that is larger than five times as much
	} {
		r := newRig(t, x.nodes)
		r.tracker.fleet.risen, r.tracker.fleet.stayed, r.tracker.fleet.passed = 10, x.stayed, x.mean*(10-x.stayed) // odds of 1 in 21, or 19 in 3
		n := &r.tracker.nodes[0]
		n.levels, n.count, n.fresh, n.variance, n.rose = 9, 9, true, 0.1, x.rose
		n.newest[0], n.residual = 1.5, 0.5
		if r.tracker.Model(r.actions); r.actions[0] != x.want+modelRoom {
			t.Errorf("%+v: action %d", x, r.actions[0])
		}
	}
}
