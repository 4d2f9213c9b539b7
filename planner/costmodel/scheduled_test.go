package costmodel

import (
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
