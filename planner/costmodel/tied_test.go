package costmodel

import (
	"testing"
)

// tiedModel is the model by hand whose last layer shares 50 of its 400 thousand parameters with the first, which has 100.
func tiedModel(t *testing.T, o Options) *Model {
	t.Helper()
	o.GlobalBatches, o.States, o.Overlap = []int{16}, States{2, 3, 12}, noOverlap
	p := handProfile()
	p.Layers[2].Tied = 50e3
	if err := p.Finish("hand"); err != nil {
		t.Fatal(err)
	}
	m, err := New(p, handTopology(t, "1000000000B"), o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// In one stage shared parameters are held, exchanged and updated once; the first and the last of several exchange their gradients,
// 50 x 3 = 150 kB, in halves.
func TestTied(t *testing.T) {
	m, plain := tiedModel(t, Options{}), Strategy{Sharding: Replicated}
	// Updates 0.8 (1 + 2 + 3 x 350/400), states 17 x 650.
	c := priceOf(t, m, 6, 2, on(0, 3, plain, groupOf(0, 0, 1, 2)))
	expect(t, "one stage", c.Stages[0], 12, 36, 0, 0, 0, 0, 0, 4.5)
	same(t, "states", c.Stages[0].Memory[0].States, 17*650e3)
	// Two replicas exchange 3 x 650 kB by halves: 2 (1 + 3 x 100/2000) + 2 (1 + 3 x 200/2000) + 2 (1 + 3 x 350/2000).
	c = priceOf(t, m, 16, 4, on(0, 3, plain, groupOf(0, 0, 1, 2, 2)))
	same(t, "one stage of two replicas", c.Stages[0].Sync, 2*(1.15+1.3+1.525))

	// Both in a machine: 2 (1 + 75/1000), and over two devices a replica 2 (1 + 37.5/1000), if both have two.
	sync := func(what string, want float64, stages ...Stage) {
		t.Helper()
		c := priceOf(t, m, 16, 4, stages...)
		for i := range stages {
			tied := want
			if i > 0 && i < len(stages)-1 {
				tied = 0
			}
			same(t, what, c.Stages[i].Sync, tied)
		}
	}
	sync("in a machine", 2*1.075, on(0, 1, plain, groupOf(0, 0, 1, 4)), on(1, 3, plain, groupOf(0, 1, 1, 4)))
	sync("in a machine, divided", 2*1.0375, on(0, 1, plain, groupOf(0, 0, 2, 4)), on(1, 3, plain, groupOf(0, 2, 2, 4)))
	sync("in a machine, one divided", 2*1.075, on(0, 1, plain, groupOf(0, 0, 1, 4)), on(1, 3, plain, groupOf(0, 2, 2, 4)))
	// A stage between has none. Between machines of a and b 8 s and 50 kB/s, whatever the degree.
	sync("between machines", 2*(8+75/50.0), on(0, 1, plain, groupOf(0, 0, 2, 4)), on(1, 2, plain, groupOf(0, 4, 1, 4)), on(2, 3, plain, groupOf(1, 0, 1, 4)))
	// Two replicas in a machine share its link, on either side; here they exchange among themselves as well: layer 0 takes 2 (1 + 300/2000).
	c = priceOf(t, m, 16, 4, on(0, 1, plain, groupOf(0, 0, 1, 2, 2)), on(1, 3, plain, groupOf(1, 0, 1, 4)))
	same(t, "two replicas first", c.Stages[0].Sync, 2.3+2*(8+150/50.0))
	same(t, "two replicas first", c.Stages[1].Sync, 2*(8+150/50.0))
	c = priceOf(t, m, 16, 4, on(0, 1, plain, groupOf(1, 0, 1, 4)), on(1, 3, plain, groupOf(0, 0, 1, 2, 2)))
	same(t, "two replicas last", c.Stages[0].Sync, 2*(8+150/50.0))
}

// Options that allow one stage alone, or not, leave the other model out.
func TestTiedParts(t *testing.T) {
	for _, c := range []struct {
		least, most, alone, several int
	}{{0, 0, 1, 1}, {0, 1, 1, 0}, {2, 0, 0, 1}, {1, 3, 1, 1}} {
		m := tiedModel(t, Options{LeastStages: c.least, MostStages: c.most})
		alone, several := 0, 0
		for _, k := range m.Conditions() {
			least, most := k.Degrees()
			switch {
			case least == 1 && most == 1 && k.profile.Layers[2].Parameters == 350e3:
				alone = 1
			case least == 2 && k.profile.Layers[2].Parameters == 400e3:
				several = 1
			default:
				t.Errorf("%+v: stages %d to %d", c, least, most)
			}
		}
		if alone != c.alone || several != c.several {
			t.Errorf("%+v: %d, %d", c, alone, several)
		}
	}
	// Restricted, calibrated or with other memory, both models are.
	m := tiedModel(t, Options{}).Restricted(Restriction{Tensor: 2, Sharding: Full}).WithMemory(2)
	m, err := m.Calibrated(Calibration{Compute: map[string]float64{"a": 3}})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range m.Conditions() {
		if tensors := k.TensorsOf(0); len(tensors) != 1 || tensors[0] != 2 || k.options.Shardings[0] != Full || k.slow(0) != 3 || k.limit(0) != 2e9 {
			t.Errorf("%v, %v, %v, %v", tensors, k.options.Shardings, k.slow(0), k.limit(0))
		}
	}
}

// DeepSpeed hides what replicas exchange once an iteration only in one stage, and only of layers of which something is sharded.
func TestLate(t *testing.T) {
	overlap := Options{GlobalBatches: []int{16}, Overlap: Overlap{Compute: 1.5, Communication: 1.2}}
	m := handModel(t, overlap)
	late, plain, sharded := m.Late(), Strategy{Sharding: Replicated}, Strategy{Sharding: Optimizer}
	mixed := on(0, 3, sharded, groupOf(0, 0, 1, 2, 2))
	mixed.Strategies[1] = plain
	// Of layer k + 1, 2 (1 + 3 x parameters / 2000) behind 6 (k + 1) of a backward pass.
	open := []float64{2.3, 2.6, 3.2}
	hidden := make([]float64, 3)
	for k, exchange := range open {
		hidden[k] = 1.2*exchange - 1.2*exchange/1.5
	}
	for _, c := range []struct {
		m      *Model
		stages []Stage
		want   []float64
		hides  bool
	}{
		{m, []Stage{mixed}, []float64{hidden[0] + hidden[1] + hidden[2]}, true},
		{late, []Stage{mixed}, []float64{hidden[0] + open[1] + hidden[2]}, true},
		{late, []Stage{on(0, 3, plain, groupOf(0, 0, 1, 2, 2))}, []float64{8.1}, false},
		{m, []Stage{on(0, 2, sharded, groupOf(0, 0, 1, 2, 2)), on(2, 3, sharded, groupOf(0, 2, 1, 2, 2))}, []float64{hidden[0] + hidden[1], hidden[2]}, true},
		{late, []Stage{on(0, 2, sharded, groupOf(0, 0, 1, 2, 2)), on(2, 3, sharded, groupOf(0, 2, 1, 2, 2))}, []float64{4.9, 3.2}, false},
	} {
		cost := priceOf(t, c.m, 16, 4, c.stages...)
		for i, want := range c.want {
			same(t, "sync", cost.Stages[i].Sync, want)
		}
		if got := c.m.Hides(len(c.stages), c.stages[0].Strategies[0].Sharding); got != c.hides {
			t.Errorf("hides: %v, want %v", got, c.hides)
		}
	}
	// Two replicas of two devices send two samples of 40 kB each over one link: all of them from every device, or together.
	two := []Stage{on(0, 1, plain, groupOf(0, 0, 2, 2, 2)), on(1, 3, plain, groupOf(0, 4, 2, 2, 2))}
	for _, c := range []struct {
		m    *Model
		want float64
	}{{m, 2 * (6 + 4*80/100.0)}, {late, 2 * (6 + 2*80/100.0)}, {m.Sequential(), 2 * (6 + 2*80/100.0)}} {
		same(t, "send", priceOf(t, c.m, 16, 4, two...).Stages[0].Send, c.want)
	}
	if overlap.Overlap.Off = true; handModel(t, overlap).Hides(1, Optimizer) || late.Tied() || late.Late().Hides(2, Full) {
		t.Error("nothing is hidden")
	}
}
