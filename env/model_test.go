package env

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/evenkeel/evenkeel/cluster"
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

// A node that is faster than ever before for one round is not believed: were it not so,
// everybody would wait.
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

// A jump back to what was known is a return; one elsewhere is a jump, even where the level
// is too young for it to be strange.
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

// The slow filter is for residuals that do not go together; at the bound they do.
func TestModelsFilterAtTheBound(t *testing.T) {
	r := newRig(t, 1)
	for product, want := range map[float64]int{quiet: modelFilter, quiet - 1e-9: modelSlow} {
		r.tracker.nodes[0].product = product
		if r.tracker.Model(r.actions); r.actions[0] != want+modelRoom {
			t.Errorf("product %v: action %d, want %d", product, r.actions[0], want+modelRoom)
		}
	}
}
