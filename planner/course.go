package planner

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
)

// course is the search under one condition: dynamic programming from the last stage to the first. A state is a number
// of stages, the layers they begin with, the devices they took and the kind of the first of them; it keeps the Pareto
// points of (largest step, the first stage's own step, sum of steps, largest tail) over all plans of these stages.
type course struct {
	costs       Costs
	pool        []int
	shapes      []Shape
	kinds       []int
	grain       []int
	least, most int
	floor       float64   // of every total under this condition
	work        []float64 // least work of layers 0..i-1
	heaviest    []float64 // of these layers' works
	speed       []float64 // of a device of each class, in units of the work
	fastest     float64   // speed of the fastest shape

	nodes    []node
	states   int
	narrowed bool        // first pass
	width    int         // states kept for each number of stages, 0: all
	whole    bool        // all states were looked at
	strict   bool        // of no use unless whole
	worth    float64     // share of the cheapest total that is worth looking for
	plans    []Candidate // cheapest for each number of stages
	mu       sync.Mutex
	lowest   float64 // total of the cheapest plan
	bound    float64 // no plan of this condition costs less
}

// node is a Pareto point of a state.
type node struct {
	max           float64 // largest step of the stages but the first
	own           float64 // step of the first, without what it receives
	sum, tail     float64
	busy, passing float64
	point         Point
	next          int32 // node of the stages behind, -1: none
	from, to      int32
	shape         int32
}

// key is a state of a given number of stages.
type key struct {
	from, kind int32
	used       int64 // devices taken, one number for all classes
}

type state struct {
	key
	used  []int
	nodes []int32
}

// maxNodes bounds the memory of a course, about 90 bytes each.
const maxNodes = 4 << 20

func newCourse(c Costs, tolerance float64) *course {
	s := &course{costs: c, worth: 1 - tolerance, pool: c.Pool(), shapes: c.Shapes(), lowest: math.Inf(1)}
	s.least, s.most = c.Degrees()
	for i := range s.shapes {
		s.kinds = append(s.kinds, c.Kind(i))
	}
	s.grain = make([]int, len(s.pool))
	for i := range s.grain {
		s.grain[i] = 1
	}
	if g, ok := c.(Grainer); ok {
		s.grain = g.Grain()
	}
	layers := c.Layers()
	s.work, s.heaviest = make([]float64, layers+1), make([]float64, layers+1)
	s.speed = make([]float64, len(s.pool))
	for l := range layers {
		least := math.Inf(1)
		for class := range s.pool {
			least = min(least, c.Work(class, l))
		}
		s.work[l+1], s.heaviest[l+1] = s.work[l]+least, max(s.heaviest[l], least)
		for class := range s.pool {
			if w := c.Work(class, l); w == least {
				s.speed[class] = 1
			} else if w > 0 {
				s.speed[class] = max(s.speed[class], least/w)
			}
		}
	}
	for _, shape := range s.shapes {
		s.fastest = max(s.fastest, s.rate(shape))
	}
	// Memory may ask for more work than the least of each layer.
	all := s.work[layers]
	s.work[layers] = max(all, c.Least(s.speed))
	s.floor = s.beneath(0, 0, 0, 0, layers, s.rate(s.pool))
	s.work[layers] = all
	if len(s.shapes) == 0 || math.IsNaN(s.floor) {
		s.floor = math.Inf(1)
	}
	s.bound = s.floor
	return s
}

// rate is the speed of devices together.
func (s *course) rate(devices []int) float64 {
	v := 0.0
	for class, n := range devices {
		v += float64(n) * s.speed[class]
	}
	return v
}

// beneath is a total that no plan is under whose last stages have these numbers, where layers are left for devices of a
// speed.
func (s *course) beneath(largest, sum, tail float64, stages, layers int, speed float64) float64 {
	if layers > 0 {
		if !(speed > 0) {
			return math.Inf(1)
		}
		// A stage has at least one layer, so that many devices may find no work.
		speed = min(speed, float64(layers)*s.fastest)
		w := s.work[layers]
		largest = max(largest, w/speed, s.heaviest[layers]/s.fastest)
		sum += w / min(speed, s.fastest)
		stages++
	}
	// Rounding must not cut what is equal.
	return s.costs.Total(Front{largest, sum, tail, stages}) * (1 - 1e-12)
}

// run goes through all states that may lead below limit; with a width it keeps that many for each number of stages. A
// quick run keeps one plan for each state.
func (s *course) run(ctx context.Context, limit float64, width int, quick bool) {
	limit = s.worth * min(limit, s.lowest)
	s.nodes, s.narrowed, s.width, s.whole = s.nodes[:0], quick, width, true
	layers := s.costs.Layers()
	level := []*state{{key: key{from: int32(layers), kind: -1}, used: make([]int, len(s.pool)), nodes: []int32{-1}}}
	for stages := 1; stages <= min(s.most, layers) && len(level) > 0; stages++ {
		next := &frontier{index: map[key]*state{}}
		for _, st := range level {
			if ctx.Err() != nil || len(s.nodes) > maxNodes {
				s.whole = false
				break
			}
			s.states++
			limit = s.extend(st, next, stages, limit)
		}
		level = next.order
		if s.strict && width > 0 && len(level) > 4*width {
			s.whole = false
			return
		}
		if width > 0 && len(level) > 4*width {
			level, s.whole = s.narrow(level, stages, 4*width), false
		}
		level = s.sift(level)
		if width > 0 && len(level) > width {
			level, s.whole = s.narrow(level, stages, width), false
		}
	}
	s.nodes = nil
	if quick || !s.whole || !s.costs.Exact() {
		return
	}
	s.mu.Lock()
	s.bound = min(limit, s.lowest)
	s.mu.Unlock()
}

// relax raises the bound of a course whose prices were not exact, by a search over relaxed ones.
func (s *course) relax(ctx context.Context, limit float64, width int) {
	r, ok := s.costs.(Relaxer)
	if !ok || s.bound >= limit || ctx.Err() != nil {
		return
	}
	below := newCourse(r.Relaxed(), 1-s.worth)
	below.strict = true
	below.run(ctx, limit, width, false)
	s.mu.Lock()
	s.bound = max(s.bound, below.bound)
	s.states += below.states
	s.mu.Unlock()
}

// frontier is the states of one number of stages, in the order in which they were reached.
type frontier struct {
	index map[key]*state
	order []*state
}

// extend puts a stage before those of st in every way, and returns the limit, lower when a cheaper plan was found.
func (s *course) extend(st *state, next *frontier, stages int, limit float64) float64 {
	to := int(st.from)
	low := Front{Max: math.Inf(1), Sum: math.Inf(1), Tail: math.Inf(1)}
	for _, n := range st.nodes {
		a := s.node(n)
		low = Front{min(low.Max, max(a.max, a.own)), min(low.Sum, a.sum), min(low.Tail, a.tail), stages}
	}
	used := make([]int, len(s.pool))
	free := make([]int, len(s.pool))
shapes:
	for shape, counts := range s.shapes {
		for c, n := range counts {
			used[c] = st.used[c] + n
			free[c] = s.pool[c] - used[c]
			if free[c] < 0 {
				continue shapes
			}
		}
		if !s.costs.Fits(shape, st.used) {
			continue
		}
		rate, own := s.rate(free), s.rate(counts)
		busy, passing := 0.0, 0.0
		if st.kind >= 0 {
			busy, passing = s.costs.Boundary(to, shape, int(st.kind), st.used)
		}
		for from := to - 1; from >= 0; from-- {
			if s.alone(low, to, from, own, busy, passing, stages) > limit {
				break // more layers only take longer
			}
			if from > 0 && stages == s.most {
				continue
			}
			if s.beneath(low.Max, low.Sum, low.Tail, stages, from, rate) > limit {
				continue // too much is left for the rest
			}
			points := s.costs.Stage(from, to, shape, stages)
			if len(points) == 0 {
				break
			}
			limit = s.join(st, next, Choice{From: from, To: to, Shape: shape, Busy: busy, Passing: passing}, points, used, rate, stages, limit)
		}
	}
	return limit
}

// alone is a total that no plan is under whose stage takes layers from..to-1 at a speed.
func (s *course) alone(low Front, to, from int, speed, busy, passing float64, stages int) float64 {
	step := (s.work[to] - s.work[from]) / speed
	return s.costs.Total(Front{max(low.Max, step+busy), low.Sum + step + passing, low.Tail, stages}) * (1 - 1e-12)
}

// join adds a stage, in each way of running it, to each Pareto point of st.
func (s *course) join(st *state, next *frontier, c Choice, points []Point, used []int, rate float64, stages int, limit float64) float64 {
	var to *state
	for _, p := range points {
		for _, n := range st.nodes {
			a := s.node(n)
			b := node{max: max(a.max, a.own+c.Busy), own: p.Step + c.Busy, sum: a.sum + p.Step + c.Passing, tail: max(a.tail, p.Tail), busy: c.Busy, passing: c.Passing, point: p,
				next: n, from: int32(c.From), to: int32(c.To), shape: int32(c.Shape)}
			largest := max(b.max, b.own)
			if s.beneath(largest, b.sum, b.tail, stages, c.From, rate) > limit {
				continue
			}
			if c.From == 0 {
				if stages >= s.least {
					if total := s.costs.Total(Front{largest, b.sum, b.tail, stages}); total < s.lowest && total <= limit {
						limit = s.keep(b, stages, total)
					}
				}
				continue
			}
			if to == nil {
				to = next.at(s, c, used)
			}
			s.insert(to, b)
		}
	}
	return limit
}

// at finds or makes the state of the stages that begin with c.
func (f *frontier) at(s *course, c Choice, used []int) *state {
	k := key{from: int32(c.From), kind: int32(s.kinds[c.Shape])}
	for class, n := range used {
		k.used = k.used*int64(s.pool[class]+1) + int64(n)
	}
	if st := f.index[k]; st != nil {
		return st
	}
	st := &state{key: k, used: slices.Clone(used)}
	f.index[k] = st
	f.order = append(f.order, st)
	return st
}

func (s *course) node(n int32) node {
	if n < 0 {
		return node{next: -1}
	}
	return s.nodes[n]
}

// insert keeps b unless a point of the state is as good in everything, and drops points that b is as good as.
func (s *course) insert(st *state, b node) {
	if s.narrowed && len(st.nodes) > 0 {
		// One plan for a state will do to begin with: the one that would be the cheapest if nothing came before it.
		a := &s.nodes[st.nodes[0]]
		if s.alike(&b) < s.alike(a) {
			*a = b
		}
		return
	}
	keep := st.nodes[:0]
	for i, n := range st.nodes {
		a := &s.nodes[n]
		if a.beats(&b) {
			st.nodes = append(keep, st.nodes[i:]...)
			return
		}
		if b.beats(a) {
			continue
		}
		keep = append(keep, n)
	}
	if s.width > 0 && len(keep) >= max(8, s.width/4) {
		s.whole = false
		worst := slices.MaxFunc(keep, func(i, j int32) int { return cmp.Compare(s.alike(&s.nodes[i]), s.alike(&s.nodes[j])) })
		if s.alike(&b) >= s.alike(&s.nodes[worst]) {
			st.nodes = keep
			return
		}
		s.nodes[worst], st.nodes = b, keep
		return
	}
	s.nodes = append(s.nodes, b)
	st.nodes = append(keep, int32(len(s.nodes)-1))
}

// alike is the total if nothing came before.
func (s *course) alike(n *node) float64 {
	return s.costs.Total(Front{max(n.max, n.own), n.sum, n.tail, 1})
}

// keep notes a complete plan and returns the new limit.
func (s *course) keep(b node, stages int, total float64) float64 {
	k := Candidate{Total: total}
	for n := b; ; n = s.node(n.next) {
		k.Choices = append(k.Choices, Choice{int(n.from), int(n.to), int(n.shape), n.point, n.busy, n.passing})
		if n.next < 0 {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if total < s.lowest {
		s.lowest = total
	}
	i := slices.IndexFunc(s.plans, func(o Candidate) bool { return len(o.Choices) == stages })
	if i < 0 {
		s.plans = append(s.plans, k)
	} else if total < s.plans[i].Total {
		s.plans[i] = k
	}
	return s.worth * s.lowest
}
