package sim

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
)

func init() { _ = flag.Set("rapid.checks", "300") } // the command line still rules

func drawCluster(t *rapid.T) *cluster.Cluster {
	c := &cluster.Cluster{Workload: "w", GlobalBatch: 64}
	n := rapid.IntRange(2, 8).Draw(t, "nodes")
	for i := range n {
		per := rapid.SampledFrom([]float64{0.01, 0.5, 1, 2, 40, 1e5}).Draw(t, "per sample")
		p, err := profile.New("d", "w", []profile.Point{{MicroBatch: 1, Seconds: per}, {MicroBatch: 8, Seconds: 4 * per}}, "test")
		if err != nil {
			t.Fatal(err)
		}
		node := cluster.Node{Name: fmt.Sprint(i), Profile: p, Limit: profile.NoLimit, Network: rapid.SampledFrom([]float64{0, 0, 0.3}).Draw(t, "network")}
		if rapid.Bool().Draw(t, "limited") {
			node.Limit = rapid.IntRange(1, 20).Draw(t, "limit")
		}
		if rapid.IntRange(0, 4).Draw(t, "small memory") == 0 {
			node.Hidden.Limit = rapid.IntRange(1, 20).Draw(t, "memory")
		}
		c.Nodes = append(c.Nodes, node)
	}
	return c
}

func drawCollect(t *rapid.T) cluster.Collect {
	ms := func(name string) time.Duration {
		return time.Duration(rapid.SampledFrom([]int{0, 0, 1, 500, 3000, 60_000}).Draw(t, name)) * time.Millisecond
	}
	c := cluster.Collect{Grace: ms("grace"), MaxStaleness: ms("staleness"), Timeout: ms("timeout")}
	c.GraceShare = rapid.SampledFrom([]float64{0, 0.1, 1}).Draw(t, "grace share")
	if rapid.IntRange(0, 3).Draw(t, "timed") == 0 {
		c.Deadline, c.Whole = 1+ms("deadline"), rapid.Bool().Draw(t, "whole")
		c.Reserve = rapid.SampledFrom([]float64{0, 0.1, 1}).Draw(t, "reserve")
		c.Overtime = rapid.SampledFrom([]float64{0, 0.1, 1}).Draw(t, "overtime")
	}
	c.Quorum.Count = rapid.IntRange(0, 9).Draw(t, "count")
	c.Quorum.Share = rapid.SampledFrom([]float64{0, 0.1, 0.7, 1}).Draw(t, "share")
	return c
}

func drawConditions(t *rapid.T) cluster.Conditions {
	f := func(most float64, name string) float64 {
		if rapid.Bool().Draw(t, name+"?") {
			return 0
		}
		return rapid.Float64Range(0, most).Draw(t, name)
	}
	long := func(name string) float64 { return rapid.SampledFrom([]float64{1, 1.5, 20, 1e9}).Draw(t, name) }
	c := cluster.Conditions{
		Bias: f(1, "bias"), Noise: cluster.Spread{Median: f(0.5, "noise"), Sigma: f(2, "sigma")},
		Spikes:   cluster.Spikes{Rate: f(1, "spikes"), Least: f(3, "least"), More: f(3, "more")},
		Drift:    cluster.Drift{SD: f(1, "drift"), Rounds: long("drift rounds")},
		Failures: cluster.Failures{Rate: f(0.5, "failures"), Rounds: long("absence"), Silent: f(1, "silent")},
		Joins:    cluster.Joins{Share: f(1, "joins"), Rounds: rapid.IntRange(0, 30).Draw(t, "join rounds")},
	}
	for range rapid.IntRange(0, 2).Draw(t, "episodes") {
		c.Episodes = append(c.Episodes, cluster.Episode{
			Rate: f(1, "rate"), Rounds: long("rounds"), Excess: cluster.Spread{Median: f(8, "excess"), Sigma: f(3, "sigma")}, AtStart: f(1, "at start"),
		})
	}
	if rapid.Bool().Draw(t, "job") {
		c.Spikes.Again = f(1, "again")
		c.Drift.SlowSD, c.Drift.SlowRounds = f(1, "slow drift"), long("slow drift rounds")
		c.Job = cluster.Job{Noise: f(3, "job noise"), Bias: f(3, "job bias"), Spikes: f(3, "job spikes"), Episodes: f(3, "job episodes")}
		c.Straggler = cluster.Straggler{
			Chance: f(1, "straggler"), Excess: cluster.Spread{Median: f(99, "excess"), Sigma: f(3, "sigma")}, SD: f(3, "wander"), Rounds: long("wander rounds"),
		}
	}
	for range rapid.IntRange(0, 2).Draw(t, "patterns") {
		c.Patterns = append(c.Patterns, randomPattern(t))
	}
	if len(c.Patterns) > 0 && rapid.Bool().Draw(t, "turns") {
		c.Turns = cluster.Spread{Median: 5, Sigma: 0.3}
	}
	if rapid.Bool().Draw(t, "within") {
		c.NoiseWithin = f(1, "noise within")
	}
	if rapid.Bool().Draw(t, "scale") {
		c.Scale = cluster.NoiseScale{Start: 0.5, End: 50, Rounds: 10}
	}
	if rapid.Bool().Draw(t, "stress") {
		c.Stress = cluster.Stress{
			Racks: cluster.Racks{Size: rapid.IntRange(1, 4).Draw(t, "rack"), Episode: cluster.Episode{
				Rate: f(1, "rack rate"), Rounds: long("rack rounds"), Excess: cluster.Spread{Median: f(8, "excess"), Sigma: f(3, "sigma")},
			}},
			Diurnal: cluster.Diurnal{Amplitude: f(3, "amplitude"), Rounds: long("period")},
			Creep:   cluster.Creep{Share: f(1, "creep"), Rounds: long("creep rounds"), Most: 100},
			Modes:   cluster.Modes{Share: f(1, "modes"), Excess: f(8, "mode"), Rounds: long("stay")},
			Wrong:   cluster.Wrong{Share: f(1, "wrong"), Factor: 1 + f(99, "factor")},
			Clocks:  cluster.Clocks{SD: f(1000, "clocks")},
		}
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	return c
}

func drawSizes(t *rapid.T, c *cluster.Cluster) []int {
	sizes := make([]int, len(c.Nodes))
	for i := range sizes {
		sizes[i] = rapid.IntRange(0, 24).Draw(t, "size") // beyond some limits
	}
	if !slices.ContainsFunc(sizes, func(b int) bool { return b > 0 }) {
		sizes[0] = 1
	}
	return sizes
}

func clone(r *cluster.Report) cluster.Report {
	c := *r
	c.Nodes = slices.Clone(r.Nodes)
	return c
}

// someWork gives every node a sample where none that is there has any.
func someWork(s *Simulator, sizes []int) []int {
	for i, here := range s.Present() {
		if here && sizes[i] > 0 {
			return sizes
		}
	}
	for i := range sizes {
		sizes[i] = max(sizes[i], 1)
	}
	return sizes
}

func mustRound(t interface{ Fatal(...any) }, s *Simulator, sizes []int) *cluster.Report {
	r, err := s.Round(context.Background(), cluster.Plan{Sizes: someWork(s, sizes), Collect: s.cluster.Collect})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Every round ends, time increases, and the numbers of the report agree.
func TestRounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, k := drawCluster(t), drawConditions(t)
		c.Collect = drawCollect(t)
		s := New(c, k, rapid.Uint64().Draw(t, "seed"))
		calm := k.Failures.Rate == 0 && c.Collect.Timeout == 0 && c.Collect.Quorum.Of(len(c.Nodes)) == len(c.Nodes)
		for round := range 25 {
			sizes, start := someWork(s, drawSizes(t, c)), s.now
			taking := slices.Clone(s.Present())
			for i := range taking {
				_, busy := s.recorder.Share(i)
				taking[i] = taking[i] && (sizes[i] > 0 || busy)
			}
			r := mustRound(t, s, sizes)
			if r.Round != round || r.Start != start || r.Wait < 0 || s.now != start+r.Wait {
				t.Fatalf("round %d from %v: %+v, now %v", round, start, r, s.now)
			}
			if limit := c.Collect.Timeout; limit > 0 && r.Wait > limit {
				t.Fatalf("waited %v, the timeout is %v", r.Wait, limit)
			}
			accepted, in, expected, want := 0, 0, 0, 0
			for i, n := range r.Nodes {
				accepted += n.Samples
				if (n.Status == cluster.Absent) == taking[i] {
					t.Fatalf("node %d is %v, takes part %v", i, n.Status, taking[i])
				}
				if n.Idle < 0 || n.Idle > r.Wait.Seconds() || n.Age < 0 || n.Seconds < 0 || n.Aged > n.Samples || math.IsNaN(n.Norm) || n.Agree > 1 {
					t.Fatalf("node %d: %+v", i, n)
				}
				if n.Status == cluster.In != (n.Samples > 0) && n.Status != cluster.Lost {
					t.Fatalf("node %d: %+v", i, n)
				}
				if n.Samples > n.Aged {
					in++
				}
				if taking[i] && (n.Status != cluster.Lost || n.Samples > n.Aged) {
					expected++
				}
				step := min(sizes[i], c.Nodes[i].Limit)
				if fits := c.Nodes[i].Hidden.Limit; taking[i] && (fits == 0 || step <= fits) {
					want += sizes[i]
				}
			}
			if accepted != r.Accepted {
				t.Fatalf("accepted %d, nodes %d", r.Accepted, accepted)
			}
			if calm && c.Collect.Deadline == 0 && accepted != want {
				t.Fatalf("nothing failed: accepted %d of %d", accepted, want)
			}
			if c.Collect.Timeout == 0 && in < min(c.Collect.Quorum.Of(expected), expected) {
				t.Fatalf("the round ended with %d of %d: %+v", in, expected, r)
			}
		}
	})
}

// A seed and the same sizes give the same bits, a refused call changes nothing, and the
// truth depends on neither the sizes nor the rule of the round: runs can be compared pairwise. (Patterns follow the clock; see
// TestSameTimeSameSpells.)
func TestPairing(t *testing.T) {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	rapid.Check(t, func(t *rapid.T) {
		c, k, seed := drawCluster(t), drawConditions(t), rapid.Uint64().Draw(t, "seed")
		c.Collect = drawCollect(t)
		d := *c
		d.Collect = drawCollect(t)
		a, b, other := New(c, k, seed), New(c, k, seed), New(&d, k, seed)
		for range 25 {
			if diff := cmp.Diff(a.Truth().Slowdown, other.Truth().Slowdown) + cmp.Diff(a.Truth().Noise, other.Truth().Noise); diff != "" && len(k.Patterns) == 0 {
				t.Fatal("the truth depends on the sizes:", diff)
			}
			sizes := someWork(a, drawSizes(t, c))
			ra := clone(mustRound(t, a, sizes))
			if _, err := b.Round(done, cluster.Plan{Sizes: sizes, Collect: b.cluster.Collect}); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			if _, err := b.Round(context.Background(), cluster.Plan{Sizes: sizes[1:], Collect: b.cluster.Collect}); err == nil {
				t.Fatal("too few sizes accepted")
			}
			if diff := cmp.Diff(ra, *mustRound(t, b, sizes)); diff != "" {
				t.Fatal("not the same bits:", diff)
			}
			mustRound(t, other, someWork(other, drawSizes(t, c)))
		}
	})
}

// The clock stops at its end rather than run over.
func TestEndOfTime(t *testing.T) {
	p, err := profile.New("d", "w", []profile.Point{{MicroBatch: 1, Seconds: 1e6}}, "test")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster.Cluster{GlobalBatch: 2, Nodes: []cluster.Node{{Name: "a", Profile: p, Limit: profile.NoLimit}, {Name: "b", Profile: p, Limit: profile.NoLimit}}}
	s := New(c, cluster.Conditions{}, 1)
	for range 3 {
		if r := mustRound(t, s, []int{1 << 40, 1}); r.Wait < 0 || r.Accepted != 1<<40+1 {
			t.Fatalf("%+v", r)
		}
	}
	if s.now != math.MaxInt64 {
		t.Error(s.now)
	}
}

// twoNodes are alike, for a batch of 100.
func twoNodes(t *testing.T) *cluster.Cluster {
	t.Helper()
	p, err := profile.New("d", "w", []profile.Point{{MicroBatch: 1, Seconds: 1}}, "test")
	if err != nil {
		t.Fatal(err)
	}
	n := cluster.Node{Profile: p, Limit: profile.NoLimit}
	return &cluster.Cluster{GlobalBatch: 100, Nodes: []cluster.Node{n, n}}
}

// What is reported of gradients, and the efficiency, follow from the noise scale:
// E|g|^2 of b samples is |G|^2 (1 + scale/b).
func TestNoiseScale(t *testing.T) {
	c := twoNodes(t)
	s := New(c, cluster.Conditions{Scale: cluster.NoiseScale{Start: 1, End: 100, Rounds: 2}}, 1)
	for _, want := range []float64{100, 1000, 10_000, 10_000} {
		if got := s.Scale(); math.Abs(got-want) > 1e-9*want {
			t.Errorf("scale %v, want %v", got, want)
		}
		if got := s.Efficiency(100); got != 1 {
			t.Errorf("efficiency of the whole batch %v", got)
		}
		if got, want := s.Efficiency(50), (want+100)/(want+50); math.Abs(got-want) > 1e-12 {
			t.Errorf("efficiency %v, want %v", got, want)
		}
		r := mustRound(t, s, []int{20, 80})
		if n, want := r.Nodes[0], math.Sqrt((1+want/20)/(1+want/100)); math.Abs(n.Norm-want) > 1e-12 || math.Abs(n.Agree*n.Norm-1) > 1e-12 {
			t.Errorf("%+v, norm %v", n, want)
		}
	}
	if s := New(c, cluster.Conditions{}, 1); s.Scale() != 0 || s.Efficiency(7) != 1 {
		t.Error("without a noise scale everything counts fully")
	}
}

// Norms are off by a round's samples: log-normal, their squares right in the mean, by a seed, and
// nothing else of the run changes.
func TestNoiseOfNorms(t *testing.T) {
	c := twoNodes(t)
	conditions := cluster.Conditions{Noise: cluster.Spread{Median: 0.03}, Scale: cluster.NoiseScale{Start: 1, End: 1, Rounds: 2}}
	plain := New(c, conditions, 1)
	conditions.Scale.Norms = 0.1
	s, again := New(c, conditions, 1), New(c, conditions, 1)
	const rounds = 4000
	squares, logs, expected := 0.0, 0.0, math.Sqrt((1+100.0/20)/(1+100.0/100))
	for range rounds {
		r, same, without := mustRound(t, s, []int{20, 80}), mustRound(t, again, []int{20, 80}), mustRound(t, plain, []int{20, 80})
		n := r.Nodes[0]
		if n != same.Nodes[0] || r.Wait != without.Wait || n.Seconds != without.Nodes[0].Seconds {
			t.Fatalf("%+v, again %+v, without noise of norms %+v", n, same.Nodes[0], without.Nodes[0])
		}
		if !(n.Agree <= 1) || math.Abs(n.Agree*n.Norm-1) > 1e-12 && n.Agree != 1 {
			t.Fatalf("%+v", n)
		}
		z := math.Log(n.Norm / expected)
		logs += (z + 0.01) * (z + 0.01) / rounds
		squares += n.Norm * n.Norm / (expected * expected) / rounds
	}
	if math.Abs(squares-1) > 0.015 || math.Abs(math.Sqrt(logs)-0.1) > 0.005 {
		t.Errorf("squares are %v of what is expected, the logarithm's sd is %v", squares, math.Sqrt(logs))
	}
}
