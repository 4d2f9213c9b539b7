package sim

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/profile"
)

// Samples that all have one length make the rounds that there are without lengths.
func TestOneLength(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, k, seed := drawCluster(t), drawConditions(t), rapid.Uint64().Draw(t, "seed")
		c.Collect = drawCollect(t)
		c.Collect.Quorum, c.Collect.Grace, c.Collect.Timeout, c.Collect.MaxStaleness = cluster.Quorum{}, 0, 0, 0
		c.Collect.Overtime = 0 // not where samples may differ
		for i := range c.Nodes {
			c.Nodes[i].Limit = min(c.Nodes[i].Limit, 30)
			c.Nodes[i].Least = rapid.IntRange(0, c.Nodes[i].Limit).Draw(t, "least")
		}
		k.Lengths.Values = nil
		plain := New(c, k, seed)
		k.Lengths.Values = []float64{7, 7, 7}
		one := New(c, k, seed)
		for range 15 {
			sizes := drawSizes(t, c)
			for i := range sizes {
				sizes[i] = max(shareOf(&c.Nodes[i], sizes[i]), c.Nodes[i].LeastShare())
			}
			want, got := clone(mustRound(t, plain, sizes)), clone(mustRound(t, one, sizes))
			if want.Accepted > 0 && math.Abs(got.Cost-float64(want.Accepted)) > 1e-9 {
				t.Fatalf("%v samples cost %v", want.Accepted, got.Cost)
			}
			for i := range got.Nodes {
				got.Nodes[i].Cost = 0
			}
			got.Cost = 0
			if diff := cmp.Diff(want, got, cmpopts.EquateApprox(1e-9, 1e-6), cmp.Comparer(func(a, b time.Duration) bool {
				return close(a.Seconds(), b.Seconds())
			})); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

// shareOf is the largest share up to b that the node takes.
func shareOf(n *cluster.Node, b int) int {
	for ; b > 0 && !n.Takes(b); b-- {
	}
	return b
}

// Every sample of a node's order is used once, in time: none is passed over for ever, and
// what the belief divides by is what the micro-steps cost.
func TestLengths(t *testing.T) {
	for _, x := range []struct {
		name    string
		collect cluster.Collect
		seconds float64 // mean of a round, 0: until the deadline
	}{
		{"shares", cluster.Collect{}, 0},
		{"deadline", cluster.Collect{Deadline: 4e9}, 4},
		{"whole steps", cluster.Collect{Deadline: 4e9, Whole: true}, 0},
	} {
		const overhead, slope = 0.1, 0.05
		p, err := profile.New("d", "w", []profile.Point{{MicroBatch: 1, Seconds: overhead + slope}, {MicroBatch: 101, Seconds: overhead + 101*slope}}, "test")
		if err != nil {
			t.Fatal(err)
		}
		c := &cluster.Cluster{GlobalBatch: 64, Collect: x.collect}
		for range 4 {
			c.Nodes = append(c.Nodes, cluster.Node{Profile: p, Limit: 8, Network: 0.2})
		}
		k := cluster.Conditions{Failures: cluster.Failures{Rate: 0.05, Rounds: 2, Silent: 0.5}}
		k.Lengths.Data = "azure-conversations"
		s := New(c, k, 5)
		used, work, rounds, seconds := make([]int, 4), make([]float64, 4), 0.0, 0.0
		for range 1000 {
			r, err := s.Round(t.Context(), cluster.Plan{Sizes: []int{48, 48, 48, 48}, Collect: x.collect})
			if err != nil {
				t.Fatal(err)
			}
			for i := range r.Nodes {
				n := &r.Nodes[i]
				if used[i] += n.Samples; n.Samples > 0 {
					work[i] += n.Cost
					rounds++
					seconds += n.Seconds
					want := overhead*float64(n.Steps) + slope*n.Cost + 0.2
					if n.Steps == 0 {
						want += overhead
					}
					if math.Abs(n.Seconds-want) > 1e-6 {
						t.Fatalf("%s: %+v, want %v s", x.name, n, want)
					}
					if got := c.Nodes[i].Measured(n) * slope; math.Abs(got+0.2-want) > 1e-6 {
						t.Fatalf("%s: the belief divides by %v, not %v", x.name, got, want-0.2)
					}
				}
			}
		}
		for i := range used {
			f, sum := &s.lengths.nodes[i], 0.0
			for j := range f.next {
				sum += s.lengths.cost(i, j)
			}
			for _, v := range f.costs {
				sum -= v
			}
			if uint64(used[i]+len(f.costs)) != f.next || math.Abs(sum-work[i]) > 1e-6 {
				t.Errorf("%s: %d samples used, %d looked at and not used, of %d; they cost %v, not %v", x.name, used[i], len(f.costs), f.next, work[i], sum)
			}
			if len(f.costs) > 150 {
				t.Errorf("%s: %d samples are passed over", x.name, len(f.costs))
			}
			if mean := work[i] / float64(used[i]); math.Abs(mean-1) > 0.02 {
				t.Errorf("%s: the mean sample costs %v", x.name, mean)
			}
		}
		mean := work[0] + work[1] + work[2] + work[3]
		if mean /= rounds; x.collect.Deadline == 0 && math.Abs(mean-48) > 0.1 {
			t.Errorf("%s: a share of 48 costs %v", x.name, mean)
		}
		if got := seconds / rounds; x.seconds > 0 && math.Abs(got-x.seconds) > 0.02*x.seconds {
			t.Errorf("%s: a round takes %v s", x.name, got)
		}
	}
}
