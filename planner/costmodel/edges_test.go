package costmodel

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/planner/layerprofile"
	"evenkeel/planner/search"
)

// The line through a class's times for a micro-batch of half and of all samples gives the shares of mixed stages.
func TestPerformance(t *testing.T) {
	whole := func(seconds map[int]float64) *Condition {
		p := &layerprofile.Profile{Model: "line", Layers: []layerprofile.Layer{{Name: "only"}}}
		for n, s := range seconds {
			p.Layers[0].Runs = append(p.Layers[0].Runs, layerprofile.Run{Device: "a", Tensor: 1, MicroBatch: n, Forward: s / 4, Backward: 3 * s / 4}, layerprofile.Run{Device: "b", Tensor: 1, MicroBatch: n, Forward: s / 4, Backward: 3 * s / 4})
		}
		if err := p.Finish("line"); err != nil {
			t.Fatal(err)
		}
		m, err := New(p, handTopology(t, "1000000000B"), Options{GlobalBatches: []int{8}})
		if err != nil {
			t.Fatal(err)
		}
		return &Condition{Model: m, replicas: 2}
	}
	curve := map[int]float64{1: 10, 2: 12, 4: 30, 8: 40}
	for _, c := range []struct {
		seconds             map[int]float64
		samples, class      int
		overhead, perSample float64
	}{
		{curve, 8, 0, 20, 2.5},  // 4 and 8 samples: 30 and 40 s
		{curve, 8, 1, 40, 5},    // twice as slow
		{curve, 16, 0, 20, 2.5}, // 8 samples are the most: 4 and 8
		{curve, 4, 0, 0, 9},     // 2 and 4 samples: 12 and 30 s, and never a negative overhead
		{map[int]float64{1: 7}, 2, 0, 0, 7},
		{map[int]float64{1: 8, 8: 8}, 8, 0, 8 - 4e-3, 1e-3}, // constant times: a thousandth of 8 s for 8 samples, each
	} {
		x := whole(c.seconds)
		x.MicroBatch = c.samples
		p, ok := x.performance(Group{Class: c.class, Replicas: 1, Tensor: 1})
		if !ok {
			t.Fatalf("%+v: no line", c)
		}
		same(t, fmt.Sprint(c, " overhead"), p.Overhead, c.overhead)
		same(t, fmt.Sprint(c, " per sample"), p.PerSample, c.perSample)
	}
	x := whole(curve)
	x.MicroBatch = 32 // 16 samples were not profiled
	if _, ok := x.performance(Group{Replicas: 1, Tensor: 1}); ok {
		t.Error("a line beyond the profile")
	}
}

func TestPareto(t *testing.T) {
	if got := pareto([]search.Point{{Step: 2, PerIteration: 5}, {Step: 1, PerIteration: 5}, {Step: 3, PerIteration: 4}, {Step: 1, PerIteration: 6}}); len(got) != 2 || got[0].Step != 1 || got[0].PerIteration != 5 || got[1].Step != 3 {
		t.Errorf("%v", got)
	}
}

func TestStrategies(t *testing.T) {
	tensors := func(samples int, groups ...Group) string {
		c := &Condition{Model: handModel(t, Options{}), MicroBatch: samples}
		var all []int
		for _, y := range c.strategies(groups) {
			all = append(all, y.Tensor)
		}
		if len(all)%8 != 0 {
			t.Errorf("%d strategies; four shardings, recomputed or not", len(all))
		}
		return fmt.Sprint(slices.Compact(all))
	}
	for _, c := range []struct {
		got, want string
	}{
		{tensors(4, groupOf(0, 0, 2, 2, 2)), "[0 1]"}, // four devices, a sample each at degree 1
		{tensors(3, groupOf(0, 0, 2, 2, 1)), "[0]"},   // three samples are too few
		{tensors(4, groupOf(0, 0, 1, 2, 2)), "[0 2]"},
		{tensors(3, groupOf(0, 0, 1, 1, 1, 1)), "[0]"}, // three devices are no replicas of two
		{tensors(4, groupOf(0, 0, 2, 2), groupOf(1, 0, 1, 2)), "[0]"},
	} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
	// Nothing is sharded over one replica, unless the options leave nothing else.
	for _, shardings := range [][]Sharding{nil, {Full}} {
		m := handModel(t, Options{Shardings: shardings, Replicas: []int{1}, MicroBatches: []int{1}, Checkpoint: "never"})
		f := m.Conditions()[0].configurations[0]
		for i, y := range f.strategies {
			if y.Tensor == 0 && math.IsInf(f.costs[0][i].step[0], 1) != (shardings == nil && y.Sharding != Replicated) {
				t.Errorf("of %v, %+v costs %v", shardings, y, f.costs[0][i].step[0])
			}
		}
	}
	never := handModel(t, Options{Checkpoint: "never"}).Conditions()[0].configurations[0].strategies
	always := handModel(t, Options{Checkpoint: "always"}).Conditions()[0].configurations[0].strategies
	if slices.ContainsFunc(never, func(y Strategy) bool { return y.Checkpoint }) || slices.ContainsFunc(always, func(y Strategy) bool { return !y.Checkpoint }) {
		t.Errorf("never: %v; always: %v", never, always)
	}
}

func TestMoreEdges(t *testing.T) {
	// Within a machine the links of the machine are used even where they are slow.
	m := handModelOn(t, handTopology(t, "1000000000B", "latency: 1s", "latency: 100s"), Options{Overlap: noOverlap})
	c := priceOf(t, m, 8, 4, on(0, 3, Strategy{Sharding: Replicated}, groupOf(0, 0, 1, 1, 1, 1, 1)))
	same(t, "slow machine", c.Stages[0].Sync, 2*(900+9*700/4000.0))

	// Tensor degree 4: of 4 samples of 40 kB, three quarters pass to or from each device of a machine.
	p := handProfile()
	for i := range p.Layers {
		p.Layers[i].Runs = append(p.Layers[i].Runs, layerprofile.Run{Device: "a", Tensor: 4, MicroBatch: 8, Forward: 1, Backward: 1})
	}
	if err := p.Finish("hand"); err != nil {
		t.Fatal(err)
	}
	top := handTopology(t, "1000000000B")
	m, err := New(p, top, Options{GlobalBatches: []int{8}, Overlap: noOverlap})
	if err != nil {
		t.Fatal(err)
	}
	s := on(0, 3, Strategy{Tensor: 4, Sharding: Replicated}, groupOf(0, 0, 1, 1, 1, 1, 1))
	s.Strategies[0].Tensor = 0
	same(t, "degree 4", priceOf(t, m, 8, 4, s).Stages[0].Convert, 2*(1+0.12))

	// All devices may be replicas; a number of replicas that no machines hold is no condition.
	one, err := clusterfile.ReadTopology(strings.NewReader("nodes: [{device: a, count: 8, per_machine: 4, memory: 1GB, inside: 1GB/s, link: 1GB/s}]"), "one", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ batch, replicas, want int }{{8, 8, 1}, {7, 7, 0}, {9, 9, 0}} {
		if got := len(handModelOn(t, one, Options{GlobalBatches: []int{c.batch}, Replicas: []int{c.replicas}}).Conditions()); got != c.want {
			t.Errorf("%d replicas: %d conditions", c.replicas, got)
		}
	}
	if _, err := New(handProfile(), one, Options{GlobalBatches: []int{cluster.MaxGlobalBatch}}); err != nil {
		t.Error(err)
	}

	// A reserve counts without full sharding, too. At tensor degree 4, 100 thousand parameters of 5 bytes and a sixth of 12, in two replicas and
	// four devices of the other kind.
	for memory, fits := range map[string]bool{"1301000B": true, "1300999B": false} {
		_, err := New(p, handTopology(t, memory), Options{GlobalBatches: []int{8}, Shardings: []Sharding{Optimizer}, States: States{2, 3, 12}, Reserve: 601e3})
		if fits != !errors.Is(err, search.ErrInfeasible) {
			t.Errorf("%s: %v", memory, err)
		}
	}
}

// One layer on one device holds 1700 kB of states, and 10 kB of activations unless it recomputes, which takes 5 s instead
// of 4. With room for 5 kB half of the layer recomputes.
func TestLeastOfOneLayer(t *testing.T) {
	p := &layerprofile.Profile{Model: "one", Layers: handProfile().Layers[:1]}
	if err := p.Finish("one"); err != nil {
		t.Fatal(err)
	}
	top, err := clusterfile.ReadTopology(strings.NewReader("nodes: [{device: a, memory: 2705000B}]"), "one", nil)
	if err != nil {
		t.Fatal(err)
	}
	for reserve, want := range map[float64]float64{1e6: 4.5, 995e3: 4, 1005e3: 5} {
		m, err := New(p, top, Options{GlobalBatches: []int{1}, States: States{2, 3, 12}, Reserve: reserve})
		if err != nil {
			t.Fatal(err)
		}
		same(t, fmt.Sprint("reserve ", reserve), m.Conditions()[0].Least([]float64{1}), want)
		same(t, "twice as fast", m.Conditions()[0].Least([]float64{2}), 2*want)
	}
}

// What one replica holds is not sharded, whether the degree is the group's or the layer's.
func TestUnshard(t *testing.T) {
	m := handModel(t, Options{})
	for _, c := range []struct {
		replicas, layers int
		want             Sharding
	}{{1, 0, Replicated}, {2, 0, Full}, {2, 2, Replicated}} {
		s := on(0, 2, Strategy{Tensor: c.layers, Sharding: Full}, groupOf(0, 0, 1, make([]int, c.replicas)...))
		if m.Unshard(&s); s.Strategies[0].Sharding != c.want || s.Strategies[1].Sharding != c.want {
			t.Errorf("%+v: %v", c, s.Strategies)
		}
	}
}

// A tensor degree that all layers share becomes the group's.
func TestUseGroupTensor(t *testing.T) {
	s := on(0, 2, Strategy{Tensor: 2, Sharding: Full}, groupOf(0, 0, 1, 2, 2, 1, 1))
	s.useGroupTensor(6, false)
	if g := s.Groups[0]; g.Replicas != 2 || g.Tensor != 2 || !slices.Equal(g.Shares, []int{3, 3}) || s.Strategies[0] != (Strategy{Sharding: Full}) || s.Strategies[1].Tensor != 0 {
		t.Errorf("%+v", s)
	}
	// Not if every device sends whole samples, and would then send more of them.
	for tensor, want := range map[int]int{1: 1, 2: 2, 4: 2} {
		s := on(0, 2, Strategy{Tensor: 2}, groupOf(0, 0, tensor, make([]int, 4/tensor)...))
		if s.useGroupTensor(4, true); s.Groups[0].Tensor != want {
			t.Errorf("%d: %+v", tensor, s)
		}
	}
	for _, tensors := range [][2]int{{2, 0}, {0, 2}, {0, 0}} {
		s := on(0, 2, Strategy{}, groupOf(0, 0, 1, 2, 2))
		s.Strategies[0].Tensor, s.Strategies[1].Tensor = tensors[0], tensors[1]
		s.useGroupTensor(4, false)
		if g := s.Groups[0]; g.Replicas != 2 || g.Tensor != 1 || s.Strategies[0].Tensor != tensors[0] || s.Strategies[1].Tensor != tensors[1] {
			t.Errorf("%v: %+v", tensors, s)
		}
	}
}
