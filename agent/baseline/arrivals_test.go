package baseline

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"evenkeel/agent"
	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/internal/agenttest"
)

func in(seconds float64, size int) cluster.NodeReport {
	return cluster.NodeReport{Status: cluster.In, Seconds: seconds, Age: seconds, Size: size, Samples: size}
}

// complete adds a round that opens at start and lasts wait seconds, and returns the times
// and sizes of those that are known in full then.
func complete(a *arrivals, start, wait float64, nodes ...cluster.NodeReport) (times [][]float64, sizes [][]int) {
	a.add(&cluster.Report{Start: time.Duration(start * 1e9), Wait: time.Duration(wait * 1e9), Nodes: nodes})
	for r := a.next(); r != nil; r = a.next() {
		times, sizes = append(times, nil), append(sizes, nil)
		for _, n := range r.sorted {
			times[len(times)-1] = append(times[len(times)-1], math.Round(n.at*1e6)/1e6)
			sizes[len(sizes)-1] = append(sizes[len(sizes)-1], n.size)
		}
	}
	return times, sizes
}

func TestArrivalsByHand(t *testing.T) {
	var a arrivals
	check := func(times [][]float64, sizes [][]int, wantTimes [][]float64, wantSizes [][]int) {
		t.Helper()
		if !slices.EqualFunc(times, wantTimes, slices.Equal) || !slices.EqualFunc(sizes, wantSizes, slices.Equal) {
			t.Fatalf("complete %v of sizes %v, want %v of %v", times, sizes, wantTimes, wantSizes)
		}
	}
	fast := func(wait, second float64) (cluster.NodeReport, cluster.NodeReport) {
		first, other := in(1, 3), in(second, 4)
		first.Idle, other.Idle = wait-1, wait-second
		return first, other
	}
	// 0 s: the third node needs 5 s for its 6 samples; the round waits for two.
	x, y := fast(2, 2)
	late := cluster.NodeReport{Status: cluster.Late, Seconds: 2, Size: 6, Busy: 2, BusySize: 6}
	times, sizes := complete(&a, 0, 2, x, y, late)
	check(times, sizes, nil, nil)
	// 2 s: it misses this round.
	x, y = fast(1.5, 1.5)
	late.Seconds, late.Busy = 3.5, 3.5
	times, sizes = complete(&a, 2, 1.5, x, y, late)
	check(times, sizes, nil, nil)
	// 3.5 s: it delivers at 5 s and begins this round's 2 samples, half a second before the end.
	x, y = fast(2, 2)
	aged := cluster.NodeReport{Status: cluster.In, Seconds: 5, Age: 5, Behind: 2, Size: 6, Samples: 6, Aged: 6, Busy: 0.5, BusySize: 2}
	times, sizes = complete(&a, 3.5, 2, x, y, aged)
	// In the second round it would have been free at 3 s, and as slow again.
	check(times, sizes, [][]float64{{1, 2, 5}, {1, 1.5, 8}}, [][]int{{3, 4, 6}, {3, 4, 6}})
	// 5.5 s: it delivers the 2 at 6.5 s, and a single sample at 7 s, when the round ends.
	x, y = fast(1.5, 1.5)
	both := cluster.NodeReport{Status: cluster.In, Seconds: 0.5, Age: 1.5, Size: 1, Samples: 3, Aged: 2}
	times, sizes = complete(&a, 5.5, 1.5, x, y, both)
	check(times, sizes, [][]float64{{1, 2, 3}, {1, 1.5, 1.5}}, [][]int{{3, 4, 2}, {3, 4, 1}})
	// A node that is lost is not waited for.
	x, y = fast(1.5, 1.5)
	times, sizes = complete(&a, 7, 1.5, x, y, cluster.NodeReport{Status: cluster.Late, Seconds: 1.5, Size: 6, Busy: 1.5, BusySize: 6})
	check(times, sizes, nil, nil)
	times, sizes = complete(&a, 8.5, 1.5, x, y, cluster.NodeReport{Status: cluster.Lost})
	check(times, sizes, [][]float64{{1, 1.5}, {1, 1.5}}, [][]int{{3, 4}, {3, 4}})
	// A node that does not come back counts with the time that has passed, in the end.
	for k := range arrivalPatience + 1 {
		start := 10 + 1.5*float64(k)
		times, sizes = complete(&a, start, 1.5, x, y, cluster.NodeReport{Status: cluster.Late, Seconds: start - 8.5, Size: 6, Busy: start - 8.5, BusySize: 6})
	}
	check(times, sizes, [][]float64{{1, 1.5, 1.5 * (arrivalPatience + 1)}}, [][]int{{3, 4, 6}})
}

func TestArrivalsCount(t *testing.T) {
	r := arrivalRound{sorted: []arrival{{at: 1, size: 10}, {at: 1.25, size: 8}, {at: 4, size: 4}}}
	for _, x := range []struct {
		end   float64
		first int
		late  bool
		want  float64
	}{
		{1, 1, false, 10},
		// 8 samples one update late, for a fifth of their node's round: 1/2 - 1/5. The 4 are
		// three updates late and cost three quarters of a round: nothing.
		{1, 1, true, 10 + 8*0.3},
		{1.25, 2, true, 18},
		{4, 3, true, 22},
	} {
		if got := r.counted(x.end, x.first, x.late); math.Abs(got-x.want) > 1e-12 {
			t.Errorf("after %v s, late %v: %v, want %v", x.end, x.late, got, x.want)
		}
	}
}

// Under a rule that leaves nodes behind, the reported time of work that began when its
// round opened, or came in late, is the time that it truly took.
func TestArrivalsFollowTheSimulator(t *testing.T) {
	c := agenttest.Lines(t, 40, 0.1, 0.1, 0.1, 0.1, 0.1)
	s := sim.New(c, agenttest.Conditions(t, "bursts"), 3)
	ctl := agent.Control{Cluster: c, Runner: s, Policy: NewKofN(c, cluster.Rule{Quorum: 0.6}, WaterFill{Gain: 0.5})}
	var a arrivals
	var took [][]float64 // by round and node; 0: not known here
	told := 0
	for range 200 {
		left := slices.Clone(s.Truth().Left)
		r, err := ctl.Round(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, make([]float64, len(c.Nodes)))
		for i, n := range r.Report.Nodes {
			if n.Status == cluster.In && (left[i] == 0 || n.Behind > 0) {
				took[r.Report.Round-n.Behind][i] = n.Age
			}
		}
		a.add(r.Report)
		for round := a.next(); round != nil; round = a.next() {
			for i, want := range took[told] {
				if got := round.nodes[i].at; want > 0 && math.Abs(got-want) > 1e-6 {
					t.Fatalf("round %d, node %d: told %v s, took %v", told, i, got, want)
				}
			}
			told++
		}
	}
	if told < 150 {
		t.Errorf("told of %d rounds of 200", told)
	}
}
