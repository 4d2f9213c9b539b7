package costmodel

import (
	"slices"
	"testing"

	"evenkeel/planner/pipeline"
)

// Activations of a device under other schedules. A micro-batch of 4 samples on 1 device; the layers keep 40, 80 and 120 kB of it, their
// inputs are 0, 160 and 320 kB.
func TestScheduledMemory(t *testing.T) {
	m := handModel(t, Options{Overlap: noOverlap})
	first, second := groupOf(0, 0, 1, 4), groupOf(0, 1, 1, 4)
	stages := []Stage{on(0, 2, Strategy{Sharding: Replicated}, first), on(2, 3, Strategy{Sharding: Replicated, Checkpoint: true}, second)}
	price := func(schedule pipeline.Schedule, chunks int, stages ...Stage) *Cost {
		t.Helper()
		c, err := m.PriceScheduled(16, 4, stages, Passes{Schedule: schedule, Chunks: chunks})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	// 1F1B: two micro-batches in the first stage, one in the last, of which it keeps the input.
	c := price(pipeline.OneForwardOneBackward, 1, stages...)
	same(t, "1f1b", c.Stages[0].Memory[0].Activations, 240e3)
	same(t, "1f1b", c.Stages[1].Memory[0].Activations, 320e3)
	// ZB-H1: the first stage computes each backward pass whole. The second has the next micro-batch's input beside what was recomputed
	// for the weights of the one before, 320 + 120; a backward pass on, two are recomputed, 240.
	z := price(pipeline.ZeroBubble, 1, stages...)
	same(t, "zb-h1", z.Stages[0].Memory[0].Activations, 240e3)
	same(t, "zb-h1", z.Stages[1].Memory[0].Activations, 440e3)
	same(t, "weights", z.Timings[0].Weights, c.Stages[0].Backward/2)
	// H-1F1B: as many as are sent ahead, four at most.
	for _, warmup := range [][]int{{3, 2}, {9, 1}, {1, 1}} {
		a, err := m.PriceScheduled(16, 4, stages, Passes{Schedule: pipeline.SentAhead, Warmup: warmup, Overlap: true})
		if err != nil {
			t.Fatal(err)
		}
		same(t, "h-1f1b", a.Stages[0].Memory[0].Activations, 120e3*float64(min(4, warmup[0])))
		same(t, "h-1f1b", a.Stages[1].Memory[0].Activations, 320e3*float64(warmup[1]))
	}
	// Interleaved on two devices, the first with the layers 0 and 2: 2 x 40 + 2 x 120 after its warm-up (0 0 2 2), and 40 more with the
	// next forward pass.
	plain := Strategy{Sharding: Replicated}
	four := []Stage{on(0, 1, plain, first), on(1, 2, plain, second), on(2, 3, plain, first), on(2, 3, plain, second)}
	i := price(pipeline.Interleaved, 2, four...)
	for _, k := range []int{0, 2} {
		same(t, "interleaved", i.Stages[k].Memory[0].Activations, (3*40+2*120)*1e3)
		same(t, "interleaved states", i.Stages[k].Memory[0].States, c.Stages[0].Memory[0].States*5/3)
	}
}

// Three stages of 3 s that take 3, 1.5 and 0 s to send one way. A micro-batch is back in the second from the third after 9 s, in the first from the
// second after 12, from the third after 18 s: they begin with 6, 3 and 1 forward passes if memory allows, and none waits. With room for 5 in the
// first it waits for the trip.
func TestAheadByHand(t *testing.T) {
	c := &Cost{Timings: []pipeline.Timing{{Forward: 1, Backward: 2, SendNext: 3}, {Forward: 1, Backward: 2, SendNext: 1.5}, {Forward: 1, Backward: 2}}}
	for range 3 {
		c.Stages = append(c.Stages, StageCost{Sync: 0.25, Update: 0.5, Memory: []Usage{{Limit: 100}}})
	}
	check := func(microBatches int, want []int, seconds float64) {
		t.Helper()
		warmup, got := c.Ahead(microBatches)
		if !slices.Equal(warmup, want) {
			t.Errorf("%v, want %v", warmup, want)
		}
		same(t, "by formula", got, seconds)
		orders, err := pipeline.OrdersAhead(warmup, microBatches)
		if err != nil {
			t.Fatal(err)
		}
		_, simulated, err := pipeline.Simulate(c.Timings, orders, true)
		if simulated += 0.75; err != nil || simulated < seconds*0.99 || simulated > 1.03*seconds {
			t.Errorf("simulated %v, by formula %v: %v", simulated, seconds, err)
		}
	}
	check(100, []int{6, 3, 1}, 18+99*3+0.75)
	check(4, []int{4, 3, 1}, 18+3*3+0.75)
	check(2, []int{2, 2, 1}, 18+3+0.75)
	c.Stages[0].Memory = []Usage{{Limit: 100, States: 10, Working: 5, Activations: 50}, {Limit: 100, States: 5, Working: 10, Activations: 42}} // of 3 in flight
	check(100, []int{5, 3, 1}, 18+99*4+0.75)
	c.Stages[1].Memory[0] = Usage{Limit: 100, Activations: 80}
	check(100, []int{4, 2, 1}, 18+99*4.5+0.75)
	c.Timings[0].SendNext = 4
	check(100, []int{5, 2, 1}, 20+99*4.5+0.75)
}
