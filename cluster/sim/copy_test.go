package sim

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"evenkeel/cluster"
)

// A copy goes on as the original would, bit for bit, and nothing it does is seen there.
func TestCopyFrom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, k, seed := drawCluster(t), drawConditions(t), rapid.Uint64().Draw(t, "seed")
		if rapid.Bool().Draw(t, "stress") {
			k.Stress = cluster.Stress{Modes: cluster.Modes{Share: 1, Excess: 0.5, Rounds: 3}}
		}
		c.Collect = drawCollect(t)
		original, twin := New(c, k, seed), New(c, k, seed)
		var ahead Simulator // used twice: its memory holds what was there before
		for range 6 {
			ahead.CopyFrom(original)
			for range rapid.IntRange(1, 4).Draw(t, "rounds ahead") {
				mustRound(t, &ahead, drawSizes(t, c))
			}
			ahead.CopyFrom(original)
			sizes := drawSizes(t, c)
			want := clone(mustRound(t, twin, sizes))
			if diff := cmp.Diff(want, *mustRound(t, &ahead, sizes)); diff != "" {
				t.Fatal("the copy went elsewhere:", diff)
			}
			if diff := cmp.Diff(want, *mustRound(t, original, sizes)); diff != "" {
				t.Fatal("looking ahead changed the original:", diff)
			}
		}
	})
}

// deliveries is what the nodes will do in the round about to run if they get sizes, noise included. No node fails.
func deliveries(s *Simulator, sizes []int) []cluster.Delivery {
	takes := func(i, size int) float64 {
		var j job
		seconds, _ := s.work(i, cluster.Order{Share: size}, &j)
		return seconds
	}
	var work []cluster.Delivery
	for i := range s.nodes {
		share, busy := s.recorder.Share(i)
		switch {
		case !s.present[i] || sizes[i] == 0 && !busy:
		case busy:
			size, at := max(sizes[i], s.cluster.Nodes[i].LeastShare()), s.truth.Left[i]
			work = append(work, cluster.Delivery{
				At: at, Took: (s.queue.at[i] - share.Start).Seconds(), Size: share.Size, Behind: s.round - share.Round,
				NextAt: at + takes(i, size), NextTook: takes(i, size), NextSize: size, Power: s.cluster.Nodes[i].Power,
			})
		default:
			work = append(work, cluster.Delivery{At: takes(i, sizes[i]), Took: takes(i, sizes[i]), Size: sizes[i], Power: s.cluster.Nodes[i].Power})
		}
	}
	return work
}

// What cluster.Outcomes says of a round happens, where no node fails, no bound on staleness interferes, and a node takes as
// many samples as it is handed.
func TestOutcomesHappen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, k := drawCluster(t), drawConditions(t)
		k.Failures, k.Joins = cluster.Failures{}, cluster.Joins{}
		for i := range c.Nodes {
			c.Nodes[i].Limit, c.Nodes[i].Hidden.Limit = 1<<20, 0
		}
		rule := rapid.SampledFrom(cluster.Rules).Draw(t, "rule")
		c.Collect = rule.Apply(cluster.Collect{})
		s := New(c, k, rapid.Uint64().Draw(t, "seed"))
		var o cluster.Outcomes
		for range 20 {
			sizes := someWork(s, drawSizes(t, c))
			work := deliveries(s, sizes)
			o.Set(work)
			want := o.Under(rule)
			if s.now.Seconds()+want.Wait > 9e9 {
				return // near the end of the clock
			}
			r := mustRound(t, s, sizes)
			idle := 0.0
			for _, n := range r.Nodes {
				idle += n.Idle
			}
			if !close(r.Wait.Seconds(), want.Wait) || !atOnce(work, rule, want.Wait) && (!close(r.Counted, want.Counted) || !close(idle, want.Idle)) {
				t.Fatalf("waited %v, counted %v, idle %v; foretold %+v", r.Wait.Seconds(), r.Counted, idle, want)
			}
		}
	})
}

// atOnce says whether a gradient arrives at the moment the round ends, other than the one
// that ends it: whether it still counts hangs on the clock's nanoseconds.
func atOnce(work []cluster.Delivery, rule cluster.Rule, end float64) bool {
	n := 0
	for _, w := range work {
		for _, at := range []float64{w.At, w.NextAt} {
			if at > 0 && close(at, end) {
				n++
			}
		}
	}
	return n > 1 || n == 1 && rule.Grace > 0
}

// close allows for the clock's nanoseconds, per node, and for the rounding of times of many years.
func close(got, want float64) bool {
	return math.Abs(got-want) < 1e-6+1e-12*math.Abs(want)
}
