package sim

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/cluster"
)

// Overtime costs no node its gradient: a node that hands in without overtime hands in with it, no
// fewer samples and at most twice as many. Without late nodes nothing changes; otherwise the
// round is longer by at most one micro-step.
func TestOvertimeCostsNobody(t *testing.T) {
	went := 0
	rapid.Check(t, func(t *rapid.T) {
		c, k, seed := drawCluster(t), drawConditions(t), rapid.Uint64().Draw(t, "seed")
		k.Clocks = cluster.Clocks{} // reports say what was
		k.Patterns = nil            // as quick after the deadline as before
		if rapid.Bool().Draw(t, "exact") {
			k.NoiseWithin = 0
		}
		deadline := time.Duration(rapid.SampledFrom([]int{1, 500, 3000, 60_000}).Draw(t, "deadline")) * time.Millisecond
		c.Collect = cluster.Collect{Deadline: deadline, Timeout: rapid.SampledFrom([]time.Duration{0, 2 * deadline, time.Hour}).Draw(t, "timeout")}
		sizes := drawSizes(t, c)
		without := clone(mustRound(t, New(c, k, seed), sizes))
		c.Collect.Overtime = rapid.SampledFrom([]float64{0.02, 0.1, 1}).Draw(t, "overtime")
		with := mustRound(t, New(c, k, seed), sizes)
		late := without.Wait > deadline
		for i := range with.Nodes {
			a, b := without.Nodes[i], with.Nodes[i]
			if a.Status != b.Status || b.Samples < a.Samples || b.Samples > 2*a.Samples || !late && b.Samples != a.Samples {
				if a.Status == cluster.In && b.Status == cluster.Lost && k.NoiseWithin > 0 && c.Collect.Timeout > 0 {
					continue // noise larger than what is kept free before the timeout
				}
				t.Fatalf("node %d: %+v, with overtime %+v", i, a, b)
			}
			if b.Samples > a.Samples {
				went++
				if over := b.Seconds - a.Seconds; k.NoiseWithin == 0 && over > (with.Wait-min(without.Wait, deadline)).Seconds()+1e-6 {
					t.Fatalf("node %d worked for %v s more in a round of %v, late by %v", i, over, with.Wait, without.Wait-deadline)
				}
			}
		}
		if without.Wait > 1000*time.Hour {
			return // near the end of the clock
		}
		most := without.Wait + time.Duration(c.Collect.Overtime*float64(deadline)) + 8
		if k.NoiseWithin > 0 { // of normal noise cut at three deviations: as slow as that, where the pace was measured as quick as that
			most = without.Wait + time.Duration(c.Collect.Overtime*float64(deadline)*60) + 8
		}
		if with.Wait < without.Wait || with.Wait > most {
			t.Fatalf("%v without overtime, %v with it", without.Wait, with.Wait)
		}
	})
	if went == 0 {
		t.Error("no node ever went on")
	}
}
