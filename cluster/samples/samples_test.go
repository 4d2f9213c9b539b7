package samples

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/cluster/sim"
)

// In 1,000 random histories of nodes that fail, join, run out of memory, are late or stop
// early, and of trainers that are killed and resumed, every sample of an epoch is used
// exactly once.
func TestEverySampleOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for history := range 1000 {
		total, nodes := rng.IntN(400), 1+rng.IntN(6)
		e := New(total)
		uses := make([]int, total)
		for round := 0; e.Left() > 0; round++ {
			if round > 100_000 {
				t.Fatalf("history %d does not end: %+v", history, e)
			}
			if rng.IntN(10) == 0 {
				nodes = 1 + rng.IntN(8) // others joined, or left with their work
			}
			most := make([]int, nodes)
			for i := range most {
				most[i] = rng.IntN(30) - 3
			}
			dealt := e.Deal(most)
			used := make([]int, nodes)
			for i := range used {
				have := count(dealt[i])
				if have > 0 {
					used[i] = []int{0, have, rng.IntN(have + 1), Pending}[rng.IntN(4)]
				}
				left := used[i]
				for _, r := range dealt[i] {
					for s := r.First; s < r.End && left > 0; s, left = s+1, left-1 {
						uses[s]++
					}
				}
			}
			if err := e.Settle(used); err != nil {
				t.Fatal(err)
			}
			if rng.IntN(5) == 0 { // killed and resumed
				text, err := json.Marshal(e)
				if err != nil {
					t.Fatal(err)
				}
				e = new(Epoch)
				if err := json.Unmarshal(text, e); err != nil {
					t.Fatal(err)
				}
			}
		}
		for s, n := range uses {
			if n != 1 {
				t.Fatalf("history %d: sample %d was used %d times", history, s, n)
			}
		}
	}
}

// The same with the rounds of a simulated cluster whose nodes fail and whose rounds end at
// a deadline.
func TestEverySampleOnceInSimulatedRounds(t *testing.T) {
	p, err := profile.New("d", "w", []profile.Point{{MicroBatch: 1, Seconds: 0.2}, {MicroBatch: 8, Seconds: 0.9}}, "test")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster.Cluster{GlobalBatch: 40, Collect: cluster.Collect{Deadline: 2e9}}
	for i := range 5 {
		c.Nodes = append(c.Nodes, cluster.Node{Name: fmt.Sprint(i), Profile: p, Limit: 4})
	}
	conditions, err := cluster.Preset("bursts")
	if err != nil {
		t.Fatal(err)
	}
	conditions.Failures = cluster.Failures{Rate: 0.1, Rounds: 3, Silent: 0.3}
	s, e, uses := sim.New(c, conditions, 3), New(2000), make([]int, 2000)
	beyond := false
	for e.Left() > 0 {
		most, sizes := make([]int, 5), make([]int, 5)
		for i, here := range s.Present() {
			if here {
				sizes[i], most[i] = 8, 16
			}
		}
		dealt := e.Deal(most)
		report, err := s.Round(t.Context(), cluster.Plan{Sizes: sizes, Collect: c.Collect})
		if err != nil {
			t.Fatal(err)
		}
		used := make([]int, 5)
		for i := range used {
			used[i] = min(report.Nodes[i].Samples, count(dealt[i]))
			beyond = beyond || used[i] > 8
			left := used[i]
			for _, r := range dealt[i] {
				for k := r.First; k < r.End && left > 0; k, left = k+1, left-1 {
					uses[k]++
				}
			}
		}
		if err := e.Settle(used); err != nil {
			t.Fatal(err)
		}
	}
	for k, n := range uses {
		if n != 1 {
			t.Fatalf("sample %d was used %d times", k, n)
		}
	}
	if !beyond {
		t.Error("nobody went beyond its share: the test does not show what it should")
	}
}

// The same for samples that do not cost the same and nodes that take them out of order, with
// nodes that run out of memory (and use none).
func TestEverySampleOnceByCost(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for history := range 1000 {
		total, nodes := rng.IntN(300), 1+rng.IntN(5)
		costs, longest := make([]float64, total), 0.0
		for k := range costs {
			costs[k] = math.Exp(rng.NormFloat64())
			longest = max(longest, costs[k])
		}
		e, uses := New(total), make([]int, total)
		for round := 0; e.Left() > 0; round++ {
			if round > 100_000 {
				t.Fatalf("history %d does not end: %+v", history, e)
			}
			most, had := make([]float64, nodes), make([]bool, nodes)
			asked, free := 0.0, 0.0
			for i := range most {
				most[i] = 20*rng.Float64() - 2
				if had[i] = i < len(e.Out) && len(e.Out[i]) > 0; !had[i] {
					asked += max(most[i], 0)
				}
			}
			for k := e.Next; k < total; k++ {
				free += costs[k]
			}
			for _, r := range e.Returned {
				for k := r.First; k < r.End; k++ {
					free += costs[k]
				}
			}
			dealt := e.DealCost(most, func(k int) float64 { return costs[k] })
			used, pending := make([][]int, nodes), make([]bool, nodes)
			for i := range used {
				var mine []int
				sum := 0.0
				for _, r := range dealt[i] {
					for k := r.First; k < r.End; k++ {
						mine = append(mine, k)
						sum += costs[k]
					}
				}
				if !had[i] && asked+float64(nodes)*longest < free && most[i] > 0 && (sum < most[i] || sum-costs[mine[len(mine)-1]] >= most[i]) {
					t.Fatalf("history %d: node %d has %v of %v", history, i, sum, most[i])
				}
				if !had[i] && asked > free && sum > max(most[i], 0)/asked*free+longest {
					t.Fatalf("history %d: node %d has %v, its part of %v is %v", history, i, sum, free, max(most[i], 0)/asked*free)
				}
				chance := []float64{0, 0.5, 1, -1}[rng.IntN(4)]
				pending[i] = chance < 0
				for place, k := range mine {
					if rng.Float64() < chance {
						used[i] = append(used[i], place)
						uses[k]++
					}
				}
			}
			if err := e.SettleAt(used, pending); err != nil {
				t.Fatal(err)
			}
			if len(e.Returned) > 1 && !slices.IsSortedFunc(e.Returned, func(a, b Range) int { return a.First - b.First }) {
				t.Fatalf("%v is out of order", e.Returned)
			}
		}
		for k, n := range uses {
			if n != 1 {
				t.Fatalf("history %d: sample %d was used %d times", history, k, n)
			}
		}
	}
	e := New(5)
	e.Deal([]int{3})
	for _, wrong := range [][][]int{{{3}}, {{-1}}, {{1, 1}}, {{}, {0}}} {
		if e.SettleAt(wrong, nil) == nil {
			t.Errorf("%v is taken", wrong)
		}
	}
}

// What comes back is at the front, in order; what is left at the end is shared out.
func TestDealByHand(t *testing.T) {
	e := New(100)
	e.Deal([]int{10, 20, 0, 5})
	if err := e.Settle([]int{10, 15, 0, Pending}); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(e.Returned, e.Next, e.Out, e.Left()), "[{25 30}] 35 [[] [] [] [{30 35}]] 75"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := fmt.Sprint(e.Deal([]int{3, 10, 0, 50})), "[[{25 28}] [{28 30} {35 43}] [] [{30 35}]]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if err := e.Settle([]int{4}); err == nil || err.Error() != "samples: node 0 used 4 samples, more than it was handed" {
		t.Error(err)
	}
	if err := e.Settle([]int{0, 10, 0, 5}); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(e.Returned, e.Next, e.Left()), "[{25 28}] 43 60"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// 60 are left for 120 asked: half of each, in the order of nodes.
	dealt := e.Deal([]int{60, 30, 30})
	if got := []int{count(dealt[0]), count(dealt[1]), count(dealt[2])}; !slices.Equal(got, []int{30, 15, 15}) {
		t.Errorf("%v", got)
	}
	if part(3<<40, 5<<40, 6<<40) != 5<<39 {
		t.Error("products overflow")
	}
}

// The mean of mean gradients with these weights is the mean over all samples.
func TestWeights(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	used, sum, all := []int{3, 0, Pending, 10, 1}, 0.0, 0.0
	w := Weights(used)
	n := 0
	for i, u := range used {
		mean := 0.0
		for range max(u, 0) {
			g := rng.NormFloat64()
			mean += g / float64(u)
			all += g
			n++
		}
		sum += w[i] * mean
	}
	if math.Abs(sum-all/float64(n)) > 1e-15 {
		t.Errorf("%v, want %v", sum, all/float64(n))
	}
	if got := Weights([]int{0, Pending}); got[0] != 0 || got[1] != 0 {
		t.Errorf("%v", got)
	}
}
