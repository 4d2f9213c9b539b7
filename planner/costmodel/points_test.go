package costmodel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"evenkeel/planner/layerprofile"
	"evenkeel/planner/search"
)

// priced is the cost of a stage under a condition, and whether it fits memory.
func priced(t *testing.T, c *Condition, shape, from, to, behind int, choice func(i int) Strategy) (p search.Point, fits bool) {
	t.Helper()
	f := &c.configurations[shape]
	s := Stage{From: from, To: to, Groups: f.groups}
	for i := range to - from {
		s.Strategies = append(s.Strategies, choice(i))
	}
	x := c.stage(&s, behind)
	if x.err != nil {
		return p, false
	}
	cost := x.cost
	for _, u := range cost.Memory {
		if u.Peak() > u.Limit {
			return p, false
		}
	}
	return search.Point{Step: cost.Step(), PerIteration: cost.Sync + cost.Update}, true
}

func better(a, b search.Point) bool {
	const slack = 1e-9
	return a.Step <= b.Step*(1+slack) && a.PerIteration <= b.PerIteration*(1+slack)
}

// longModel has 4 + 5 layers of two kinds, the first of which is a kind of its own as nothing comes before it.
func longModel(t *testing.T, memory string, o Options) *Model {
	t.Helper()
	p := &layerprofile.Profile{Model: "long"}
	for i := range 9 {
		hand := handProfile().Layers[2*(i/4)/(1+i/8)]
		hand.Name, hand.Output = fmt.Sprint(i), 40e3
		p.Layers = append(p.Layers, hand)
	}
	if err := p.Finish("long"); err != nil {
		t.Fatal(err)
	}
	m, err := New(p, handTopology(t, memory), o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Points of packed stages can be had, and are nearly always the best.
func TestPackedPoints(t *testing.T) {
	choices, packed, best := 0, 0, 0
	for _, memory := range []string{"62000000B", "18000000B"} {
		m := longModel(t, memory, Options{GlobalBatches: []int{8}, MicroBatches: []int{1, 2}, Replicas: []int{2}, Shardings: []Sharding{Replicated, Full}, States: States{2, 3, 12}, Reserve: 5e5, Calibration: Calibration{Context: 1.5e6}})
		if m.kinds != 3 {
			t.Fatalf("%d kinds of layers", m.kinds)
		}
		for _, c := range m.Conditions() {
			for shape := range c.configurations {
				for _, part := range [][2]int{{0, 5}, {2, 7}, {3, 6}, {6, 9}} {
					for _, behind := range []int{1, 3} {
						n, b := testPacked(t, c, shape, part[0], part[1], behind)
						choices += n
						if got := c.Stage(part[0], part[1], shape, behind); n > 0 && len(got) > 0 {
							packed++
							if b {
								best++
							}
						}
					}
				}
			}
			if c.Exact() {
				t.Error("packed stages are exact")
			}
		}
	}
	// The knapsack's greedy choice is nearly always the best, and may not be.
	if choices < 1e4 || packed < 50 || best < packed*8/10 {
		t.Errorf("%d choices, %d stages packed, %d of them as good as can be", choices, packed, best)
	}
}

// testPacked tries all numbers of layers of each kind under each strategy, of one tensor degree.
func testPacked(t *testing.T, c *Condition, shape, from, to, behind int) (choices int, best bool) {
	t.Helper()
	f := &c.configurations[shape]
	got := c.Stage(from, to, shape, behind)
	at := fmt.Sprintf("layers %d to %d on %v, batch %d, %d from the end", from, to-1, c.shapes[shape], c.MicroBatch, behind)
	m := float64(c.microBatches())
	least := math.Inf(1)
	// Layers of a kind are alike: they take strategies of rising number.
	var all []search.Point
	var place func(i int, chosen []int)
	place = func(i int, chosen []int) {
		if i == to-from {
			if p, ok := priced(t, c, shape, from, to, behind, func(i int) Strategy { return f.strategies[chosen[i]] }); ok {
				all = append(all, p)
			}
			return
		}
		first := 0
		if i > 0 && c.kindOf[from+i] == c.kindOf[from+i-1] {
			first = chosen[i-1]
		}
		for y := first; y < len(f.strategies); y++ {
			if i == 0 || f.strategies[y].Tensor == f.strategies[chosen[0]].Tensor {
				place(i+1, append(chosen[:i:i], y))
			}
		}
	}
	place(0, nil)
	for _, p := range all {
		least = min(least, m*p.Step+p.PerIteration)
	}
	reached := math.Inf(1)
	for _, q := range got {
		reached = min(reached, m*q.Step+q.PerIteration)
		if !slices.ContainsFunc(all, func(p search.Point) bool { return better(p, q) }) {
			t.Fatalf("%s: %v cannot be", at, q)
		}
	}
	if reached < least*(1-1e-9) {
		t.Fatalf("%s: %v for %v at least", at, reached, least)
	}
	if reached > 1.25*least {
		t.Fatalf("%s: packed for %v where %v will do", at, reached, least)
	}
	return len(all), reached <= least*(1+1e-9)
}

// What the search counts for a plan of packed stages is what its stages cost, and fits; no plan is below the bound.
func TestPackedPlans(t *testing.T) {
	for _, memory := range []string{"60000000B", "20000000B", "12000000B"} {
		m := longModel(t, memory, Options{GlobalBatches: []int{8}, States: States{2, 3, 12}})
		r, conditions, err := find(m)
		if err != nil {
			t.Fatal(err)
		}
		if r.Bound > r.Best[0].Total || r.Bound < 0.4*r.Best[0].Total {
			t.Errorf("memory %s: bound %v of %v", memory, r.Bound, r.Best[0].Total)
		}
		for _, k := range r.Best {
			c := conditions[k.Condition]
			stages := c.Stages(k)
			cost := priceOf(t, m, c.GlobalBatch, c.MicroBatch, stages...)
			// Less where all layers of a stage have another tensor degree than its group: it sends by what they have.
			if total := cost.Seconds / float64(c.GlobalBatch); total > k.Total*(1+1e-9) || total < 0.95*k.Total {
				t.Errorf("memory %s: %v costs %v, the search says %v", memory, stages, total, k.Total)
			}
			if !(&brute{Condition: c}).fitsMemory(cost) {
				t.Errorf("memory %s: %+v does not fit", memory, stages)
			}
		}
	}
}

// By hand. Three layers go from an eighth of the memory and 10 s to three eighths and 4 s, two from 3/32 and 5 s to 4/32
// and 4.5 s. All small, 9/16 are taken. The first kind saves 24 s for a memory, the second 16.
func TestFill(t *testing.T) {
	p := packer{items: []item{
		{kind: 0, count: 3, hull: []option{{0, 10, 0.125}, {1, 4, 0.375}}},
		{kind: 1, count: 2, hull: []option{{2, 5, 0.09375}, {3, 4.5, 0.125}}},
	}}
	// A layer of the first kind fits into the 7/16 that are left, then both of the second: 40 - 6 - 1.
	cost, all, ok := p.fill(false)
	same(t, "packed", cost, 33)
	if want := (packed{{0, 0, 2}, {0, 1, 1}, {1, 3, 2}}); all || !ok || !slices.Equal(p.choice(nil), want) {
		t.Errorf("%v, want %v; all %v", p.choice(nil), want, all)
	}
	// Relaxed, 1.75 layers.
	cost, all, _ = p.fill(true)
	same(t, "relaxed", cost, 40-1.75*6)
	if all {
		t.Error("part of a layer is not all")
	}
	p.items[0].count = 8
	if _, _, ok := p.fill(false); ok {
		t.Error("8/8 and more of the memory fit")
	}
	p.items[0].hull = nil
	if _, _, ok := p.fill(true); ok {
		t.Error("a kind without strategies fits")
	}
	p.items = p.items[1:]
	cost, all, _ = p.fill(false) // room for all
	same(t, "all", cost, 9)
	if !all || !slices.Equal(p.choice(nil), packed{{1, 3, 2}}) {
		t.Errorf("%v, all %v", p.choice(nil), all)
	}
	cost, _, _ = p.fill(true)
	same(t, "all, relaxed", cost, 9)
}

func TestConvex(t *testing.T) {
	// (2, 9) lies above the line from (1, 10) to (3, 4), (5, 5) and (6, 3.5) need more than
	// (4, 3.5) and save nothing.
	got := convex([]option{{0, 5, 5}, {1, 9, 2}, {2, 10, 1}, {3, 3.5, 4}, {4, 4, 3}, {5, 12, 2}, {6, 4, 3}, {7, 11, 1}, {8, 3.5, 6}})
	if want := []option{{2, 10, 1}, {4, 4, 3}, {3, 3.5, 4}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	// Of three in a line the middle one is not needed.
	if got := convex([]option{{0, 4, 1}, {1, 3, 2}, {2, 2, 3}}); !slices.Equal(got, []option{{0, 4, 1}, {2, 2, 3}}) {
		t.Errorf("%v", got)
	}
}

// With memory to spare all layers together take at least what each takes at least: 16 k device-seconds of a micro-batch
// of 4 samples, on a, or as much of b at 16/44 of its speed; see TestCondition. With a quarter of that memory, some of
// them have to shard or to recompute.
func TestLeast(t *testing.T) {
	c := handCondition(t, 2, 2)
	same(t, "least", c.Least([]float64{1, 16.0 / 44}), 16*6)
	same(t, "least, twice as fast", c.Least([]float64{2, 32.0 / 44}), 32*6)
	// Every layer, fully sharded over two replicas, holds 8.5 bytes of a parameter on each of two devices, so 17 x 700 kB
	// in all, besides 40 and 80 kB of inputs of each of 4 samples. Recomputed. 12 devices with 1000 kB hold them.
	m := handModelOn(t, handTopology(t, "1200000B"), Options{GlobalBatches: []int{16}, Replicas: []int{2}, MicroBatches: []int{2}, Overlap: noOverlap})
	tight := m.Conditions()[0].Least([]float64{1, 16.0 / 44})
	m = handModelOn(t, handTopology(t, "1010000B"), Options{GlobalBatches: []int{16}, Replicas: []int{2}, MicroBatches: []int{2}, Overlap: noOverlap})
	all := m.Conditions()
	if !(tight > 16*6+1e-9) || math.IsInf(tight, 1) || len(all) > 0 && !(all[0].Least([]float64{1, 16.0 / 44}) > tight) {
		t.Errorf("%v with little memory, %v with less; 96 with much", tight, all[0].Least([]float64{1, 16.0 / 44}))
	}
}

// The hull is below all options, convex, and made of them.
func TestConvexHull(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	for range 500 {
		var all []option
		for i := range 1 + rng.IntN(8) {
			all = append(all, option{int32(i), float64(1 + rng.IntN(20)), float64(1 + rng.IntN(20))})
		}
		hull := convex(slices.Clone(all))
		for i, o := range hull {
			if !slices.Contains(all, o) {
				t.Fatalf("%v is none of %v", o, all)
			}
			if i > 0 && (o.memory <= hull[i-1].memory || o.cost >= hull[i-1].cost) {
				t.Fatalf("%v falls not", hull)
			}
		}
		slope := func(i int) float64 { return (hull[i].cost - hull[i+1].cost) / (hull[i+1].memory - hull[i].memory) }
		for i := range len(hull) - 2 {
			if slope(i) <= slope(i+1) {
				t.Fatalf("%v is not convex", hull)
			}
		}
		for _, o := range all {
			if o.memory < hull[0].memory || o.cost < hull[len(hull)-1].cost {
				t.Fatalf("%v is beyond %v", o, hull)
			}
			for i := range len(hull) - 1 {
				if a, b := hull[i], hull[i+1]; o.memory >= a.memory && o.memory <= b.memory && o.cost < a.cost-slope(i)*(o.memory-a.memory)-1e-9 {
					t.Fatalf("%v is below %v", o, hull)
				}
			}
		}
	}
}

// What the second group needs for the strategies that need no more than a peak on the first, itself included.
func TestPeaks(t *testing.T) {
	cost := func(first, second float64) layerCost { return layerCost{peak: [MaxGroups]float64{first, second}} }
	f := &configuration{groups: make([]Group, 2), strategies: make([]Strategy, 3), costs: [][]layerCost{{cost(1, 5), cost(2, 3), cost(3, 9)}}}
	c := &Condition{packer: packer{items: []item{{kind: 0, count: 1}}}}
	for first, second := range map[float64]float64{0: 0, 1: 5, 2: 5, 3: 9} {
		if got := c.peaks(f, first); got != [MaxGroups]float64{first, second} {
			t.Errorf("%v: %v", first, got)
		}
	}
}

// Room for the largest peak may cost more than the strategy that has it is worth. By hand: of 1e9 bytes the quick one takes 800e6
// and no peak, the slow one 200e6 and a peak.
func TestRoomForPeaks(t *testing.T) {
	cost := func(step, states, peak float64) layerCost {
		return layerCost{step: [MaxGroups]float64{step}, states: [MaxGroups]float64{states}, peak: [MaxGroups]float64{peak}}
	}
	for _, o := range []struct {
		quick, peak float64 // bytes
		want        []search.Point
	}{
		{800e6, 100e6, []search.Point{{Step: 1}}},
		{800e6, 500e6, []search.Point{{Step: 1}}}, // with room for the peak it does not fit
		{800e6, 900e6, []search.Point{{Step: 1}}}, // the slow one does not fit
		{1e9 + 1, 500e6, []search.Point{{Step: 3}}},
		{1e9 + 1, 900e6, nil},
	} {
		m := handModel(t, Options{})
		m.kinds, m.counts = 1, [][]int{{0}, {1}}
		c := &Condition{Model: m, GlobalBatch: 8, MicroBatch: 8, configurations: []configuration{{groups: []Group{groupOf(0, 0, 1, 1)},
			strategies: []Strategy{{Tensor: 1}, {Tensor: 1, Checkpoint: true}}, costs: [][]layerCost{{cost(1, o.quick, 0), cost(3, 200e6, o.peak)}}}}}
		if got := c.packedPoints(0, 1, 0, 1); !slices.Equal(got, o.want) {
			t.Errorf("%+v: %+v", o, got)
		}
	}
}
