package agent

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/internal/agenttest"
)

// batchCase is a cluster whose global batch is free, with the input of a choice.
type batchCase struct {
	cluster *cluster.Cluster
	present []bool
	perf    []cluster.Performance
	scale   float64 // samples
}

// drawBatch draws a small cluster, some nodes absent; the others may be unable to hold
// the global batch.
func drawBatch(t *rapid.T) batchCase {
	n := rapid.IntRange(1, 6).Draw(t, "nodes")
	b := batchCase{cluster: &cluster.Cluster{Workload: "w"}, present: make([]bool, n), perf: make([]cluster.Performance, n)}
	for i := range n {
		b.cluster.Nodes = append(b.cluster.Nodes, cluster.Node{Name: fmt.Sprint(i), Limit: rapid.IntRange(1, 200).Draw(t, "limit")})
		b.perf[i] = cluster.Performance{Overhead: rapid.Float64Range(0, 5).Draw(t, "overhead"), PerSample: rapid.Float64Range(0.01, 1).Draw(t, "per sample")}
		b.present[i] = i == 0 || rapid.IntRange(0, 3).Draw(t, "here") > 0
	}
	c := b.cluster
	c.Choices.LeastBatch = rapid.IntRange(1, 300).Draw(t, "least")
	c.Choices.MostBatch = rapid.IntRange(max(c.Choices.LeastBatch, n), 1500).Draw(t, "most")
	c.GlobalBatch = rapid.IntRange(max(c.Choices.LeastBatch, n), c.Choices.MostBatch).Draw(t, "batch")
	b.scale = math.Exp(rapid.Float64Range(0, 12).Draw(t, "log scale"))
	return b
}

// look is what a batcher chooses when it next looks; reference is the user's batch.
func (b batchCase) look(reference int) int {
	batcher := newBatcher(b.cluster)
	batcher.reference, batcher.rounds = float64(reference), batchEvery-1
	return batcher.choose(b.cluster, b.present, b.perf, b.scale)
}

// goodput is the definition; 0 for what the nodes cannot hold.
func (b batchCase) goodput(batch int) float64 {
	c := *b.cluster
	c.GlobalBatch = batch
	finish, err := cluster.Allocate(&c, b.present, b.perf, make([]int, len(c.Nodes)))
	if err != nil {
		return 0
	}
	return float64(batch) / (b.scale + float64(batch)) / finish
}

// The choice is as good as the best of all sizes, up to the gain that a change must
// bring and the steps of the sizes tried: a size below the best by a factor has at least
// that share of its goodput, as the round is no longer. It changes nothing for less, and
// it stays.
func TestBatchTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		c := b.cluster
		least, most := max(c.Choices.LeastBatch, len(c.Nodes)), c.Choices.MostBatch
		best, value := 0, 0.0
		for size := least; size <= most; size++ {
			if g := b.goodput(size); g > value {
				best, value = size, g
			}
		}
		got := b.look(c.GlobalBatch)
		if got != c.GlobalBatch {
			if got < least || got > most {
				t.Fatalf("chose %d outside %d..%d", got, least, most)
			}
			if gain := b.goodput(got) / b.goodput(c.GlobalBatch); gain <= 1+batchPays-1e-12 {
				t.Fatalf("from %d to %d for a gain of %v", c.GlobalBatch, got, gain)
			}
		}
		if best > 0 {
			step := math.Pow(float64(least)/float64(most), 1.0/(batchSizes-1))
			share := step - 0.5*(1-step)/float64(best) // sizes are rounded
			if g := b.goodput(got); g < value*share/(1+batchPays)*(1-1e-12) {
				t.Fatalf("chose %d of goodput %v; %d has %v", got, g, best, value)
			}
		}
		if again := b.look(c.GlobalBatch); again != got {
			t.Fatalf("%d, then %d", got, again)
		}
		reference := c.GlobalBatch
		c.GlobalBatch = got
		if again := b.look(reference); again != got {
			t.Fatalf("%d does not stay, but becomes %d", got, again)
		}
	})
}

// Noisier gradients never call for a smaller batch.
func TestBatchGrowsWithNoise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		before := b.look(b.cluster.GlobalBatch)
		b.scale *= rapid.Float64Range(1.01, 1000).Draw(t, "factor")
		if after := b.look(b.cluster.GlobalBatch); after < before {
			t.Fatalf("%d, but %d with more noise", before, after)
		}
	})
}

func TestBatchLooks(t *testing.T) {
	c := agenttest.Lines(t, 8, 0.01, 0.02)
	if newBatcher(c) != nil {
		t.Error("a fixed batch has a batcher")
	}
	c.Choices.LeastBatch, c.Choices.MostBatch = 8, 512
	b := newBatcher(c)
	for round := 1; round <= 3*batchEvery; round++ {
		if got := b.choose(c, nil, c.Nominal(), 1e6); (got != 8) != (round <= batchEvery || round%batchEvery == 0) {
			t.Errorf("call %d: %d", round, got)
		}
	}
	c.GlobalBatch = 64
	b.rounds = batchEvery - 1
	if got := b.choose(c, nil, c.Nominal(), 0); got != 64 {
		t.Errorf("%d by an unknown noise scale", got)
	}
	b.rounds = batchEvery - 1
	if got := b.choose(c, []bool{false, false}, c.Nominal(), 1e6); got != 64 {
		t.Errorf("%d with nobody there", got)
	}
}

// Nodes that are away are expected back: each needs a sample.
func TestBatchKeepsASampleForAll(t *testing.T) {
	c := agenttest.Lines(t, 16, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5)
	c.Choices.LeastBatch, c.Choices.MostBatch = 1, 64
	b := batchCase{cluster: c, present: []bool{true, false, false, false, false, false}, perf: c.Nominal(), scale: 1e-3}
	if got := b.look(16); got != 6 {
		t.Errorf("%d", got)
	}
}

// The choice for a large cluster looks at a part of it, and is as good for the whole.
func TestBatchOfManyNodes(t *testing.T) {
	per := make([]float64, 3*batchNodes+5)
	for i := range per {
		per[i] = 0.01 * float64(1+i%4)
	}
	c := agenttest.Lines(t, len(per)*4, per...)
	c.Choices.LeastBatch, c.Choices.MostBatch = len(per), 100*len(per)
	b := batchCase{cluster: c, perf: c.Nominal(), scale: 2e5}
	best := 0.0
	for size := len(per); size <= 100*len(per); size += len(per) {
		best = max(best, b.goodput(size))
	}
	if got := b.look(c.GlobalBatch); b.goodput(got) < 0.95*best {
		t.Errorf("%d has goodput %v of %v", got, b.goodput(got), best)
	}
}

// At most batchNodes nodes are looked at, and all nodes of a smaller cluster.
func TestBatchOfWhichNodes(t *testing.T) {
	for nodes, want := range map[int]int{1: 1, batchNodes - 1: batchNodes - 1, batchNodes: batchNodes, batchNodes + 1: 512, 2 * batchNodes: 1024, 2*batchNodes + 1: 683} {
		per := make([]float64, nodes)
		for i := range per {
			per[i] = 0.01
		}
		c := agenttest.Lines(t, 4*nodes, per...)
		c.Choices.LeastBatch, c.Choices.MostBatch = nodes, 8*nodes
		b := newBatcher(c)
		b.choose(c, nil, c.Nominal(), 1e6)
		if len(b.part.Nodes) != want {
			t.Errorf("of %d nodes %d are looked at, want %d", nodes, len(b.part.Nodes), want)
		}
	}
}

// Where samples cost nothing and gradients are all noise, the largest batch is the best.
func TestBatchReachesTheLargest(t *testing.T) {
	c := agenttest.Lines(t, 32, 0.01)
	c.Choices.LeastBatch, c.Choices.MostBatch = 8, 512
	b := batchCase{cluster: c, perf: []cluster.Performance{{Overhead: 1, PerSample: 1e-9}}, scale: 1e12}
	if got := b.look(32); got != 512 {
		t.Errorf("%d", got)
	}
}

// The agent's sizes follow the batch that it chose, and the user's cluster stays.
func TestAgentChoosesBatch(t *testing.T) {
	run := func() (batches []int) {
		c := agenttest.Lines(t, 64, 0.01, 0.01, 0.02, 0.03)
		c.Choices.LeastBatch, c.Choices.MostBatch = 16, 256
		a := NewModel(c)
		if a.GlobalBatch() != 64 || a.NoiseScale() != 0 {
			t.Fatalf("begins with %d, noise scale %v", a.GlobalBatch(), a.NoiseScale())
		}
		conditions := agenttest.Conditions(t, "steady")
		conditions.Scale = cluster.NoiseScale{Start: 30, End: 30, Rounds: 1}
		s := sim.New(c, conditions, 1)
		ctl := Control{Cluster: c, Runner: s, Policy: a}
		for range 60 {
			r, err := ctl.Round(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			sum := 0
			for _, size := range r.Plan.Sizes {
				sum += size
			}
			if sum != a.GlobalBatch() || sum < 16 || sum > 256 {
				t.Fatalf("sizes sum to %d, the batch is %d", sum, a.GlobalBatch())
			}
			batches = append(batches, sum)
		}
		if got, want := a.NoiseScale(), s.Scale(); math.Abs(got/want-1) > 0.2 {
			t.Errorf("noise scale %v, truth %v", got, want)
		}
		if c.GlobalBatch != 64 {
			t.Errorf("the cluster's batch became %d", c.GlobalBatch)
		}
		return batches
	}
	first := run()
	if last := first[len(first)-1]; last <= 64 {
		t.Errorf("gradients of little but noise, and a batch of %d", last)
	}
	if second := run(); !slices.Equal(first, second) {
		t.Errorf("%v, then %v", first, second)
	}
}
