package search

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
)

// listed is a cost function of plain lists, whose total keeps its four numbers apart.
type listed struct {
	work   [][]float64 // by class and layer
	pool   []int
	shapes []Shape
	grain  []int
	least  float64
	flat   bool // all plans cost the same
}

func (c *listed) Layers() int                               { return len(c.work[0]) }
func (c *listed) Pool() []int                               { return c.pool }
func (c *listed) Shapes() []Shape                           { return c.shapes }
func (c *listed) Degrees() (least, most int)                { return 1, len(c.work[0]) }
func (c *listed) Fits(int, []int) bool                      { return true }
func (c *listed) Kind(int) int                              { return 0 }
func (c *listed) Least([]float64) float64                   { return c.least }
func (c *listed) Exact() bool                               { return true }
func (c *listed) Work(class, layer int) float64             { return c.work[class][layer] }
func (c *listed) Grain() []int                              { return c.grain }
func (c *listed) Boundary(_, _, _ int, _ []int) (s Sending) { return s }
func (c *listed) Stage(from, to, _, _ int) []Point          { return []Point{{Step: float64(to - from)}} }
func (c *listed) Total(f Front) float64 {
	if c.flat {
		return 1
	}
	return f.Sum + 100*f.Max + 10_000*f.PerIteration + 1_000_000*float64(f.Stages)
}

// unequal has classes of speed 1, 1, 1/2 and 0 in units of the least work, 2 and 3, of two layers. All its devices have
// speed 2 + 1 + 4/2 = 5, its fastest shape 3.
func unequal() *listed {
	inf := math.Inf(1)
	return &listed{
		work:   [][]float64{{2, 6}, {4, 3}, {4, 12}, {inf, inf}},
		pool:   []int{2, 1, 4, 3},
		shapes: []Shape{{1, 0, 0, 0}, {2, 1, 0, 0}, {0, 0, 4, 0}, {0, 0, 0, 3}},
		grain:  []int{1, 1, 4, 1},
	}
}

func TestBoundsByHand(t *testing.T) {
	c := unequal()
	c.least = 50
	s := newTable(c, 0)
	if !slices.Equal(s.work, []float64{0, 2, 5}) || !slices.Equal(s.heaviest, []float64{0, 2, 3}) {
		t.Errorf("work %v, heaviest %v", s.work, s.heaviest)
	}
	if !slices.Equal(s.speed, []float64{1, 1, 0.5, 0}) || s.fastest != 3 || s.rate(s.pool) != 5 {
		t.Errorf("speeds %v, fastest %v, all %v", s.speed, s.fastest, s.rate(s.pool))
	}
	if s.lowest != math.Inf(1) || s.complete {
		t.Errorf("before any search %v, %v", s.lowest, s.complete)
	}
	near := func(what string, got float64, f Front) {
		t.Helper()
		// Rounding must not prune an equal total.
		if want := c.Total(f); !(got < want) || got < want*(1-1e-11) {
			t.Errorf("%s: %v, want just below %v", what, got, want)
		}
	}
	near("root, at 5 at once and 3 in a stage", s.rootBound, Front{50. / 5, 50. / 3, 0, 1})
	near("no layer left", s.lowerBound(Front{7, 11, 5, 2}, s.rest(0, 0)), Front{7, 11, 5, 2})
	near("two layers at 5", s.lowerBound(Front{0, 11, 5, 2}, s.rest(2, 5)), Front{1, 11 + 5./3, 5, 3})
	near("two layers at 1/2", s.lowerBound(Front{0, 11, 5, 2}, s.rest(2, 0.5)), Front{10, 21, 5, 3})
	near("one layer, of use to one shape only", s.lowerBound(Front{0, 0, 0, 1}, s.rest(1, 5)), Front{2. / 3, 2. / 3, 0, 2})
	near("the largest step came before", s.lowerBound(Front{7, 0, 0, 1}, s.rest(2, 5)), Front{7, 5. / 3, 0, 2})
	s.heaviest[2] = 4.5
	near("a heavy layer", s.lowerBound(Front{0, 0, 0, 1}, s.rest(2, 5)), Front{1.5, 5. / 3, 0, 2})
	if b := s.lowerBound(Front{0, 0, 0, 1}, s.rest(1, 0)); !math.IsInf(b, 1) {
		t.Errorf("a layer but no device: %v", b)
	}
	s.work[1], s.heaviest[1] = 0, 0
	if b := s.lowerBound(Front{0, 0, 0, 1}, s.rest(1, 0)); !math.IsInf(b, 1) {
		t.Errorf("a layer without work but no device: %v", b)
	}
	s.work[1] = 2
	low := Front{Max: 2, Sum: 7, PerIteration: 3}
	near("a stage of 3 at 2", s.stageBound(low, 2, 1, 2, Sending{0.25, 0.5, 0}, 4), Front{2, 9, 3, 4})
	near("a stage that is slow with its input", s.stageBound(low, 2, 1, 2, Sending{1, 0.5, 0}, 4), Front{2.5, 9, 3, 4})
	near("a slow link", s.stageBound(low, 2, 1, 2, Sending{0, 0.5, 2.5}, 4), Front{2.5, 9, 3, 4})
}

func TestDominationByHand(t *testing.T) {
	a := node{max: 1, own: 2, sum: 3, perIteration: 4}
	if !a.dominates(&a) {
		t.Error("an equal point must go")
	}
	for _, better := range []node{{0.5, 2, 3, 4, Sending{}, Point{}, 0, 0, 0, 0}, {1, 1.5, 3, 4, Sending{}, Point{}, 0, 0, 0, 0}, {1, 2, 2.5, 4, Sending{}, Point{}, 0, 0, 0, 0}, {1, 2, 3, 3.5, Sending{}, Point{}, 0, 0, 0, 0}} {
		if !better.dominates(&a) || a.dominates(&better) {
			t.Errorf("%+v and %+v", better, a)
		}
	}
	s := newTable(unequal(), 0) // machines of 1, 1, 4 and 1 devices
	for _, c := range []struct {
		a, b []int
		want bool
	}{
		{[]int{1, 0, 0, 0}, []int{1, 0, 0, 0}, true},
		{[]int{1, 0, 0, 0}, []int{2, 0, 0, 0}, true},
		{[]int{2, 0, 0, 0}, []int{1, 1, 0, 0}, false},
		{[]int{0, 0, 0, 0}, []int{0, 0, 4, 0}, true},
		{[]int{0, 0, 1, 0}, []int{0, 0, 3, 0}, false}, // elsewhere within a machine
		{[]int{0, 0, 2, 0}, []int{0, 0, 6, 0}, true},
	} {
		if got := s.leavesAtLeast(c.a, c.b); got != c.want {
			t.Errorf("%v leaves at least what %v leaves: %v", c.a, c.b, got)
		}
	}
}

// withStates returns a table of ten equal devices and states of it: the layer they begin with, the devices used, and sums
// of their points.
func withStates(pool int, of ...[]float64) (*table, []*state) {
	s := newTable(&listed{work: [][]float64{{1, 1, 1}}, pool: []int{pool}, shapes: []Shape{{1}}, grain: []int{1}}, 0)
	var level []*state
	for _, v := range of {
		st := &state{key: key{from: int32(v[0])}, used: []int{int(v[1])}}
		for _, total := range v[2:] {
			st.nodes = append(st.nodes, int32(len(s.nodes)))
			s.nodes = append(s.nodes, node{sum: total})
		}
		level = append(level, st)
	}
	return s, level
}

func TestDropDominated(t *testing.T) {
	s, level := withStates(10,
		[]float64{1, 3, 5, 7}, // its 7 is worse than the 6 of fewer devices
		[]float64{1, 2, 6},
		[]float64{2, 3, 9}, // other layers are left
		[]float64{1, 1, 8},
		[]float64{1, 4, 5}, // as good with three devices
	)
	want := []*state{level[0], level[1], level[2], level[3]}
	five := level[0].nodes[:1:1]
	if got := s.dropDominated(slices.Clone(level)); !slices.Equal(got, want) || !slices.Equal(level[0].nodes, five) {
		t.Errorf("%v, the first with %v", got, level[0].nodes)
	}
}

func TestNarrowCountsFreeDevices(t *testing.T) {
	s, level := withStates(2, []float64{1, 2, 1}, []float64{1, 1, 3}, []float64{1, 1, 4}, []float64{2, 1, 5})
	// The first has the lowest sum but no device left for its layer.
	if got := s.narrow(slices.Clone(level), 1, 1); !slices.Equal(got, level[1:2]) {
		t.Errorf("%v", got)
	}
	// One state leaves two layers, so after it only states that leave one are there.
	if got := s.narrow(slices.Clone(level), 1, 3); !slices.Equal(got, []*state{level[1], level[3], level[2]}) {
		t.Errorf("%v", got)
	}
	if got := s.narrow(slices.Clone(level), 1, 4); !slices.Equal(got, []*state{level[1], level[3], level[2], level[0]}) {
		t.Errorf("%v", got)
	}
}

// point is the i-th of points of which none dominates another; alone, each costs 99 more than the one before.
func point(i int) node { return node{max: float64(i), sum: float64(100 - i)} }

func TestInsertByHand(t *testing.T) {
	numbers := func(s *table, st *state) (all []float64) {
		for _, n := range st.nodes {
			all = append(all, s.nodes[n].max)
		}
		return all
	}
	s, st := newTable(unequal(), 0), &state{}
	s.complete = true
	for i := range 20 {
		s.insert(st, point(i))
	}
	s.insert(st, point(7))
	if len(st.nodes) != 20 || !s.complete {
		t.Errorf("without a width: %v, complete %v", numbers(s, st), s.complete)
	}
	s.insert(st, node{max: 2, sum: 1})
	if got := numbers(s, st); !slices.Equal(got, []float64{0, 1, 2}) {
		t.Errorf("after what dominates all others %v", got)
	}

	for _, c := range []struct{ width, keeps int }{{1, 8}, {36, 9}} {
		s, st = newTable(unequal(), 0), &state{}
		s.width, s.complete = c.width, true
		for i := 2; i < 2+c.keeps; i++ {
			s.insert(st, point(i))
		}
		if len(st.nodes) != c.keeps || !s.complete {
			t.Errorf("width %d: %v, complete %v", c.width, numbers(s, st), s.complete)
		}
		s.insert(st, point(30))
		last := float64(c.keeps + 1)
		if got := numbers(s, st); len(got) != c.keeps || slices.Max(got) != last || s.complete {
			t.Errorf("width %d: a worse point came in: %v, complete %v", c.width, got, s.complete)
		}
		equal := point(c.keeps + 1)
		equal.own, equal.max, equal.perIteration = equal.max, -1, 0
		s.insert(st, equal)
		if got := numbers(s, st); slices.Contains(got, -1) {
			t.Errorf("width %d: an equal point came in: %v", c.width, got)
		}
		s.insert(st, point(1))
		if got := numbers(s, st); len(got) != c.keeps || slices.Contains(got, last) || !slices.Contains(got, 1) {
			t.Errorf("width %d: a better point must replace the worst: %v", c.width, got)
		}
	}

	s, st = newTable(unequal(), 0), &state{}
	s.quick = true
	for _, i := range []int{3, 5, 2, 4} {
		s.insert(st, point(i))
	}
	if got := numbers(s, st); !slices.Equal(got, []float64{2}) {
		t.Errorf("a first pass keeps %v", got)
	}
	equal := point(2)
	equal.own, equal.max = equal.max, 1
	s.insert(st, equal)
	if got := numbers(s, st); !slices.Equal(got, []float64{2}) {
		t.Errorf("a first pass takes an equal point %v", got)
	}
}

func TestRecordByHand(t *testing.T) {
	s := newTable(unequal(), 0.25)
	s.nodes = []node{{next: -1, from: 1, to: 2}}
	one := node{next: -1, from: 0, to: 2, sending: Sending{Busy: 1}}
	for _, c := range []struct {
		b      node
		stages int
		total  float64
		limit  float64
	}{
		{one, 1, 10, 7.5},
		{node{next: 0, from: 0, to: 1}, 2, 8, 6},
		{node{next: -1, from: 0, to: 2, sending: Sending{Busy: 2}}, 1, 9, 6},
		{node{next: -1, from: 0, to: 2, sending: Sending{Busy: 3}}, 1, 9, 6}, // no cheaper
	} {
		if limit := s.record(c.b, c.stages, c.total); limit != c.limit {
			t.Errorf("%d stages at %v: limit %v, want %v", c.stages, c.total, limit, c.limit)
		}
	}
	if len(s.plans) != 2 || s.plans[0].Total != 9 || s.plans[1].Total != 8 || s.lowest != 8 {
		t.Fatalf("%+v, lowest %v", s.plans, s.lowest)
	}
	if got := s.plans[0].Choices; len(got) != 1 || got[0].Busy != 2 {
		t.Errorf("one stage: %+v", got)
	}
	if got := s.plans[1].Choices; len(got) != 2 || got[0].To != 1 || got[1].From != 1 || got[1].To != 2 {
		t.Errorf("two stages: %+v", got)
	}
}

// Devices in use must not be mistaken for others: with three of each of two classes, 0 and 2 are not 1 and 0.
func TestStatesByUse(t *testing.T) {
	c := &listed{work: [][]float64{{1, 1}, {1, 1}}, pool: []int{3, 3}, shapes: []Shape{{1, 0}}, grain: []int{1, 1}}
	s, f := newTable(c, 0), &frontier{index: map[key]*state{}}
	seen := map[*state]bool{}
	for a := range 4 {
		for b := range 4 {
			st := f.at(s, Choice{From: 1}, []int{a, b})
			if again := f.at(s, Choice{From: 1}, []int{a, b}); seen[st] || again != st || !slices.Equal(st.used, []int{a, b}) {
				t.Errorf("%d and %d: state of %v", a, b, st.used)
			}
			seen[st] = true
		}
	}
}

// equalLayers has so many layers and devices, and all plans cost the same, so nothing is pruned.
func equalLayers(n int) *table {
	work := make([]float64, n)
	return newTable(&listed{work: [][]float64{work}, pool: []int{n}, shapes: []Shape{{1}}, grain: []int{1}, flat: true}, 0)
}

// By hand, with nine layers: the last stage leaves 8 to 1 of them, so there are eight states after one stage, seven after
// two, and so on. A width of two keeps those that leave most: 8 and 7 layers, then 7 and 6, ..., 2 and 1, then 1.
func TestStatesVisited(t *testing.T) {
	for _, c := range []struct {
		layers, width int
		visited       int
		complete      bool
	}{
		{9, 0, 1 + 8 + 7 + 6 + 5 + 4 + 3 + 2 + 1, true},
		{9, 8, 37, true},
		{9, 2, 1 + 7*2 + 1, false},
		{10, 2, 18, false},
		{3, 1, 3, false},
	} {
		s := equalLayers(c.layers)
		s.fill(context.Background(), math.Inf(1), c.width, false)
		if s.visited != c.visited || s.complete != c.complete {
			t.Errorf("%+v: %d visited, complete %v", c, s.visited, s.complete)
		}
	}
	// A first and a second pass over the one state of one layer.
	r, err := Run(context.Background(), []Costs{equalLayers(1).costs}, Options{})
	if err != nil || r.States != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}

// More conditions than a round of the first pass has: those whose plans cost the same as what an earlier round found are
// in the result too, and none with more stages at the same cost.
func TestEqualConditions(t *testing.T) {
	conditions := make([]Costs, 12)
	for i := range conditions {
		conditions[i] = equalLayers(3).costs
	}
	r, err := Run(context.Background(), conditions, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range r.Best {
		if b.Condition != i || len(b.Choices) != 1 {
			t.Errorf("%d: %+v", i, b)
		}
	}
	if len(r.Best) != len(conditions) {
		t.Errorf("%d plans of %d conditions", len(r.Best), len(conditions))
	}
}

// hidden is a cost function with one plan, of which the first pass sees nothing: its last stage has all layers but one,
// and seems worse than all that are shorter.
type hidden struct{ listed }

func (c *hidden) Stage(from, to, _, _ int) []Point {
	if from == 0 && to != 1 {
		return nil
	}
	return []Point{{Step: float64(to-from) * float64(to-from)}}
}

func TestWidthWithoutPlan(t *testing.T) {
	layers := FirstPassWidth + 10
	c := &hidden{listed{work: [][]float64{make([]float64, layers)}, pool: []int{2}, shapes: []Shape{{1}}, grain: []int{1}}}
	r, err := Run(context.Background(), []Costs{c}, Options{})
	if err != nil || len(r.Best) != 1 || r.Best[0].Choices[1].From != 1 || r.Bound < r.Best[0].Total {
		t.Errorf("%+v, %v", r, err)
	}
	// Who asks for a narrow search gets it.
	if r, err := Run(context.Background(), []Costs{c}, Options{Width: 3}); !errors.Is(err, ErrInfeasible) {
		t.Errorf("%+v, %v", r, err)
	}
}
