package costmodel

import (
	"slices"
	"testing"

	"evenkeel/planner/pipeline"
)

// Of the layers by hand, the second and the third may be recomputed in part: 0.25 k n seconds on a again, for 4 k kB of a sample's 10 k; on
// two devices 0.125 k n and 2 k kB of 6 k, on b 0.5 k n and 8 k kB of 12 k.
func selectiveModel(t *testing.T, o Options) *Model {
	t.Helper()
	o.GlobalBatches, o.States = []int{16}, States{2, 3, 12}
	if o.Overlap == (Overlap{}) {
		o.Overlap = noOverlap
	}
	p := handProfile()
	for i := 1; i < 3; i++ {
		for k := range p.Layers[i].Runs {
			r := &p.Layers[i].Runs[k]
			x := float64((i + 1) * r.MicroBatch)
			r.Selective, r.Freed = 0.25*x/float64(r.Tensor), 4e3*float64(i+1)/float64(r.Tensor)
			if r.Device == "b" {
				r.Selective, r.Freed = 0.5*x, 8e3*float64(i+1)
			}
		}
	}
	if err := p.Finish("hand"); err != nil {
		t.Fatal(err)
	}
	m, err := New(p, handTopology(t, "1000000000B"), o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestSelective(t *testing.T) {
	m, part := selectiveModel(t, Options{}), Strategy{Sharding: Replicated, Selective: true}
	// Two samples: again 0.25 x (2 + 3) x 2. Kept 2 (10 + 6 x 5); while it runs a layer holds 2 (0 + 40), 2 (40 + 80 + 8), 2 (80 + 20 + 12).
	c := priceOf(t, m, 6, 2, on(0, 3, part, groupOf(0, 0, 1, 2)))
	expect(t, "one device", c.Stages[0], 12, 36, 2.5, 0, 0, 0, 0, 4.8)
	expectMemory(t, "one device", c.Stages[0].Memory[0], 11900, 80, 256)
	same(t, "backward", c.Timings[0].Backward, 38.5)
	// Divided over two: 0.6 x 6 x 2, 1.5 x 6 x 2, and 0.125 x 5 x 2 again; kept 2 (6 + 4 x 5); 2 (40 + 80 + 4) while the second runs.
	c = priceOf(t, m, 6, 2, on(0, 3, part, groupOf(0, 0, 2, 2)))
	expect(t, "two devices", c.Stages[0], 7.2, 18, 1.25, 0, 0, 0, 0, 2.4)
	expectMemory(t, "two devices", c.Stages[0].Memory[0], 5950, 52, 248)
	// b is twice as slow: 0.5 x 5 x 2 x 2.
	c = priceOf(t, m, 6, 2, on(0, 3, part, groupOf(1, 0, 1, 2)))
	same(t, "on b", c.Stages[0].Recompute, 10)
	// Two micro-batches in flight in the first stage: 2 x 2 (10 + 6 x 2). The calibration counts for what is freed, too.
	m, err := m.Calibrated(Calibration{Activations: 2})
	if err != nil {
		t.Fatal(err)
	}
	c = priceOf(t, m, 16, 2, on(0, 2, part, groupOf(0, 0, 1, 2)), on(2, 3, part, groupOf(0, 1, 1, 2)))
	expectMemory(t, "calibrated", c.Stages[0].Memory[0], 17*300, 2*88, 240+32)
	// Until its gradients of weights, ZB-H1 keeps a micro-batch whole: two of them behind the second backward pass.
	z, err := m.PriceScheduled(16, 2, []Stage{on(0, 2, part, groupOf(0, 0, 1, 2)), on(2, 3, part, groupOf(0, 1, 1, 2))}, Passes{Schedule: pipeline.ZeroBubble, Chunks: 1})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "zb-h1", z.Stages[1].Memory[0].Activations, 2*2*(30e3+30e3))
	// What is exchanged hides behind the recomputation as well: 2 (1 + 150/1000) over two replicas beside 3 x 2 + 0 of the first layer, which
	// has nothing to do again, and 2 (1 + 300/1000) beside 3 x 2 x 2 + 1 of the second.
	m = selectiveModel(t, Options{Overlap: Overlap{Compute: 1.5, Communication: 1.2}})
	c = priceOf(t, m, 16, 4, on(0, 2, part, groupOf(0, 0, 1, 2, 2)), on(2, 3, part, groupOf(0, 2, 1, 4)))
	hidden := func(compute, exchange float64) float64 { return 1.2*exchange + compute - 1.2*exchange/1.5 - compute }
	same(t, "hidden", c.Stages[0].Sync, hidden(6, 2.3)+hidden(13, 2.6))
}

// Without anything to gain there is nothing to choose.
func TestRecomputations(t *testing.T) {
	part, full := Strategy{Selective: true}, Strategy{Checkpoint: true}
	for _, c := range []struct {
		m    *Model
		want []Strategy
	}{
		{handModel(t, Options{}), []Strategy{{}, full}}, {selectiveModel(t, Options{}), []Strategy{{}, part, full}},
		{selectiveModel(t, Options{Checkpoint: "never"}), []Strategy{{}}}, {selectiveModel(t, Options{Checkpoint: "always"}), []Strategy{full}},
		{selectiveModel(t, Options{Checkpoint: "selective"}), []Strategy{part}},
	} {
		if got := c.m.Recomputations(); !slices.Equal(got, c.want) {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
}
