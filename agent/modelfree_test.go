package agent

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/ddqn"
)

func modelFreeNet(t testing.TB) *ddqn.Network {
	t.Helper()
	net, err := ddqn.NewNetwork(ModelFreeSpec([]int{16}), rand.New(rand.NewPCG(5, 5)))
	if err != nil {
		t.Fatal(err)
	}
	return net
}

// Whatever its network says, sizes are valid in every scenario, and the same twice.
func TestModelFreeEverywhere(t *testing.T) {
	p, err := ModelFreeContender(modelFreeNet(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sites(t) {
		for _, name := range cluster.Presets() {
			first := s.rounds(t, &p, nil, 0, conditionsOf(t, name), 40)
			if !slices.EqualFunc(first, s.rounds(t, &p, nil, 0, conditionsOf(t, name), 40), slices.Equal) {
				t.Errorf("%s, %s: two runs differ", s.name, name)
			}
		}
	}
	stormy := conditionsOf(t, "steady")
	stormy.Failures = cluster.Failures{Rate: 0.04, Rounds: 6, Silent: 0.3}
	tight := sites(t)[2]
	tight.rounds(t, &p, nil, 0, stormy, 80)
	if _, err := ModelFreeContender(embeddedPolicy(t).Network); !errors.Is(err, ErrPolicy) {
		t.Errorf("another agent's network: %v", err)
	}
}

func TestModelFreeApplyByHand(t *testing.T) {
	const less, hold, more = 0, 3, 6 // 0.8, 1, 1.25
	c, sizes := lines(t, 40, 0.1, 0.1, 0.1, 0.1), make([]int, 4)
	c.Nodes[3].Limit = 12
	p := NewModelFree(c, nil)
	for k, x := range []struct{ actions, want []int }{
		{[]int{hold, hold, hold, hold}, []int{10, 10, 10, 10}},
		{[]int{less, hold, hold, more}, []int{8, 10, 10, 12}}, // the last at its limit
		{[]int{hold, hold, hold, more}, []int{8, 10, 10, 12}}, // which gains no more
		{[]int{hold, hold, hold, less}, []int{8, 11, 11, 10}}, // so that a step back counts: 8.5, 10.6, 10.6, 10.2
		{[]int{less, less, less, less}, []int{8, 11, 11, 10}}, // the fleet as one changes nothing
		{[]int{less, more, hold, hold}, []int{7, 13, 10, 10}}, // 6.7, 13, 10.4, 10
	} {
		if err := p.Apply(x.actions, nil, sizes); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(sizes, x.want) {
			t.Fatalf("step %d: sizes %v, want %v", k, sizes, x.want)
		}
	}
}

// Rows are free of scale, finite when nothing was measured, and see who is slow.
func TestModelFreeRows(t *testing.T) {
	rows := func(unit float64) []float32 {
		c, sizes := lines(t, 30, 0.1, 0.1, 0.1), make([]int, 3)
		p := NewModelFree(c, nil)
		if err := p.Apply(p.actions, nil, sizes); err != nil {
			t.Fatal(err)
		}
		p.Observe(measured(sizes, unit, unit, 4*unit))
		return p.Rows(nil)
	}
	a, b := rows(1), rows(1000)
	for i := range a {
		if math.Abs(float64(a[i]-b[i])) > 1e-6 {
			t.Errorf("feature %d hangs on the unit of time: %v, %v", i%ModelFreeFeatures, a[i], b[i])
		}
	}
	if want := float32(4 * math.Log(0.5)); a[0] != want || a[2*ModelFreeFeatures] != float32(4*math.Log(2)) {
		t.Errorf("times over the mean %v and %v, want %v and its opposite", a[0], a[2*ModelFreeFeatures], want)
	}
	p := NewModelFree(lines(t, 30, 0.1, 0.1, 0.1), nil)
	p.Observe(&cluster.Report{Nodes: make([]cluster.NodeReport, 3)})
	for i, v := range p.Rows(nil) {
		if v-v != 0 {
			t.Errorf("nothing measured: feature %d is %v", i%ModelFreeFeatures, v)
		}
	}
}
