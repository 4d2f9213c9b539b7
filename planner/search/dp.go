package search

import (
	"context"
	"math"
	"slices"
	"sync"
)

// table is the dynamic programming under one condition, from the last stage to the first. It works level by level: each level
// adds one stage in front of the states of the level before. A state is the first layer of its stages, the devices that they
// take, and the kind of the first stage. It keeps the Pareto points of (largest step, step of the first stage, sum of steps,
// largest per-iteration cost) over all choices of these stages.
type table struct {
	costs       Costs
	pool        []int
	shapes      []Shape
	kinds       []int
	grain       []int
	least, most int
	rootBound   float64   // lower bound on every total under this condition, known before the search
	work        []float64 // sum of the least work of layers 0..i-1
	heaviest    []float64 // the largest least work of one of these layers
	speed       []float64 // of a device of each class, in units of the work
	fastest     float64   // speed of the fastest shape

	nodes    []node      // all Pareto points, in memory of the worker that fills the table
	before   []node      // the points of the state that is being extended
	visited  int         // states
	quick    bool        // the first pass, which keeps one point for each state
	width    int         // states kept for each number of stages, 0: all
	complete bool        // all states were visited
	factor   float64     // 1 - tolerance
	plans    []Candidate // cheapest for each number of stages
	mu       sync.Mutex
	lowest   float64 // total of the cheapest plan
	bound    float64 // lower bound on the total of every plan under this condition
}

// node is a Pareto point of a state: a choice of its stages, linked to the stages behind.
type node struct {
	max          float64 // largest step of all stages but the first
	own          float64 // step of the first stage, without receiving its input
	sum          float64
	perIteration float64
	sending      Sending
	point        Point
	next         int32 // node of the following stages, -1: none
	from, to     int32
	shape        int32
}

// key identifies a state of a given number of stages.
type key struct {
	from, kind int32
	used       int64 // devices taken of each class, encoded as one number
}

type state struct {
	key
	used  []int
	nodes []int32
}

// maxNodes bounds the memory of a table. A node takes about 90 bytes.
const maxNodes = 4 << 20

func newTable(c Costs, tolerance float64) *table {
	s := &table{costs: c, factor: 1 - tolerance, pool: c.Pool(), grain: c.Grain(), shapes: c.Shapes(), lowest: math.Inf(1)}
	s.least, s.most = c.Degrees()
	for i := range s.shapes {
		s.kinds = append(s.kinds, c.Kind(i))
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
	// Memory may force more work than the least of each layer.
	all := s.work[layers]
	s.work[layers] = max(all, c.Least(s.speed))
	s.rootBound = s.lowerBound(Front{}, s.rest(layers, s.rate(s.pool)))
	s.work[layers] = all
	if len(s.shapes) == 0 || math.IsNaN(s.rootBound) {
		s.rootBound = math.Inf(1)
	}
	s.bound = s.rootBound
	return s
}

// rate is the summed speed of devices.
func (s *table) rate(devices []int) float64 {
	v := 0.0
	for class, n := range devices {
		v += float64(n) * s.speed[class]
	}
	return v
}

// rest is the least that the remaining layers add to a plan: the largest step, the sum of steps, and the number of stages.
type rest struct {
	largest, sum float64
	stages       int
}

// rest is the rest for the first layers, on devices of this total speed; +Inf without devices.
func (s *table) rest(layers int, speed float64) rest {
	if layers == 0 {
		return rest{}
	}
	if !(speed > 0) {
		return rest{sum: math.Inf(1)}
	}
	// A stage has at least one layer, so a few layers cannot use all devices.
	speed = min(speed, float64(layers)*s.fastest)
	w := s.work[layers]
	return rest{max(w/speed, s.heaviest[layers]/s.fastest), w / min(speed, s.fastest), 1}
}

// lowerBound is a lower bound on the total of any plan with this rest before the stages of f.
func (s *table) lowerBound(f Front, r rest) float64 {
	// The factor keeps rounding from pruning an equal total.
	return s.costs.Total(Front{max(f.Max, r.largest), f.Sum + r.sum, f.PerIteration, f.Stages + r.stages}) * (1 - 1e-12)
}

// fill visits all states that may lead to a total below limit. width, if above 0, limits the states of each number of stages. A
// quick pass keeps one point for each state.
func (s *table) fill(ctx context.Context, limit float64, width int, quick bool) {
	limit = s.factor * min(limit, s.lowest)
	s.nodes, s.quick, s.width, s.complete = s.nodes[:0], quick, width, true
	layers := s.costs.Layers()
	level := []*state{{key: key{from: int32(layers), kind: -1}, used: make([]int, len(s.pool)), nodes: []int32{-1}}}
	for stages := 1; stages <= min(s.most, layers) && len(level) > 0; stages++ {
		next := &frontier{index: map[key]*state{}}
		for _, st := range level {
			if ctx.Err() != nil || len(s.nodes) > maxNodes {
				s.complete = false
				break
			}
			s.visited++
			limit = s.extend(st, next, stages, limit)
		}
		level = next.order
		if width > 0 && len(level) > 4*width {
			level, s.complete = s.narrow(level, stages, 4*width), false
		}
		level = s.dropDominated(level)
		if width > 0 && len(level) > width {
			level, s.complete = s.narrow(level, stages, width), false
		}
	}
	if quick || !s.complete || !s.costs.Exact() {
		return
	}
	s.mu.Lock()
	s.bound = min(limit, s.lowest)
	s.mu.Unlock()
}

// frontier holds the states of one number of stages in the order of discovery, so that results do not depend on map order.
type frontier struct {
	index map[key]*state
	order []*state
}

// extend puts every possible stage in front of st. It returns the limit, which falls when a cheaper plan is found.
func (s *table) extend(st *state, next *frontier, stages int, limit float64) float64 {
	to := int(st.from)
	low := Front{Max: math.Inf(1), Sum: math.Inf(1), PerIteration: math.Inf(1)}
	s.before = s.before[:0]
	for _, n := range st.nodes {
		a := s.node(n)
		s.before = append(s.before, a)
		low = Front{min(low.Max, max(a.max, a.own)), min(low.Sum, a.sum), min(low.PerIteration, a.perIteration), stages}
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
		var sending Sending
		if st.kind >= 0 {
			sending = s.costs.Boundary(to, shape, int(st.kind), st.used)
		}
		for from := to - 1; from >= 0; from-- {
			if s.stageBound(low, to, from, own, sending, stages) > limit {
				break // more layers only take longer
			}
			if from > 0 && stages == s.most {
				continue
			}
			left := s.rest(from, rate)
			if s.lowerBound(low, left) > limit {
				continue // too much is left for the rest
			}
			points := s.costs.Stage(from, to, shape, stages)
			if len(points) == 0 {
				break
			}
			limit = s.join(st, next, Choice{From: from, To: to, Shape: shape, Sending: sending}, points, used, low, left, limit)
		}
	}
	return limit
}

// stageBound is a lower bound on the total of any plan with a stage of layers from..to-1, on devices of this total speed, before
// these stages.
func (s *table) stageBound(low Front, to, from int, speed float64, b Sending, stages int) float64 {
	step := (s.work[to] - s.work[from]) / speed
	return s.costs.Total(Front{max(low.Max, step+b.Busy, b.Link), low.Sum + step + b.Passing, low.PerIteration, stages}) * (1 - 1e-12)
}

// join puts a stage, at each of its points, in front of each Pareto point of st. These points are in s.before; none is below low
// in any number.
func (s *table) join(st *state, next *frontier, c Choice, points []Point, used []int, low Front, left rest, limit float64) float64 {
	var to *state
	for _, p := range points {
		own := max(p.Step+c.Busy, c.Link)
		if s.lowerBound(Front{max(low.Max, own), low.Sum + p.Step + c.Passing, max(low.PerIteration, p.PerIteration), low.Stages}, left) > limit {
			continue // with any of the points
		}
		for i := range s.before {
			a := &s.before[i]
			most := max(a.max, a.own+c.Busy)
			f := Front{max(most, own), a.sum + p.Step + c.Passing, max(a.perIteration, p.PerIteration), low.Stages}
			if s.lowerBound(f, left) > limit {
				continue
			}
			b := node{max: most, own: own, sum: f.Sum, perIteration: f.PerIteration, sending: c.Sending, point: p,
				next: st.nodes[i], from: int32(c.From), to: int32(c.To), shape: int32(c.Shape)}
			if c.From == 0 {
				if f.Stages >= s.least {
					if total := s.costs.Total(f); total < s.lowest && total <= limit {
						limit = s.record(b, f.Stages, total)
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

// at finds or creates the state whose first stage is c and whose stages use these devices.
func (f *frontier) at(s *table, c Choice, used []int) *state {
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

func (s *table) node(n int32) node {
	if n < 0 {
		return node{next: -1}
	}
	return s.nodes[n]
}

// insert keeps b unless a point of the state dominates it, and drops the points that b dominates.
func (s *table) insert(st *state, b node) {
	if s.quick && len(st.nodes) > 0 {
		// The first pass keeps the cheapest plan of each state, as if no stage came before it.
		a := &s.nodes[st.nodes[0]]
		if s.totalAlone(&b) < s.totalAlone(a) {
			*a = b
		}
		return
	}
	keep, place := st.nodes[:0], int32(len(s.nodes))
	for _, n := range st.nodes {
		a := &s.nodes[n]
		if a.dominates(&b) {
			return // no point before a is dominated by b, or a would dominate it too
		}
		if b.dominates(a) {
			place = n
			continue
		}
		keep = append(keep, n)
	}
	if s.width > 0 && len(keep) >= max(8, s.width/4) {
		s.complete = false
		worst, most := int32(0), math.Inf(-1)
		for _, n := range keep {
			if total := s.totalAlone(&s.nodes[n]); total > most {
				worst, most = n, total
			}
		}
		if s.totalAlone(&b) >= most {
			st.nodes = keep
			return
		}
		s.nodes[worst], st.nodes = b, keep
		return
	}
	if int(place) < len(s.nodes) {
		s.nodes[place] = b
	} else {
		s.nodes = append(s.nodes, b)
	}
	st.nodes = append(keep, place)
}

// totalAlone is the total if no stage came before.
func (s *table) totalAlone(n *node) float64 {
	return s.costs.Total(Front{max(n.max, n.own), n.sum, n.perIteration, 1})
}

// record keeps a complete plan if it is the cheapest with its number of stages. It returns the new limit.
func (s *table) record(b node, stages int, total float64) float64 {
	k := Candidate{Total: total}
	for n := b; ; n = s.node(n.next) {
		k.Choices = append(k.Choices, Choice{int(n.from), int(n.to), int(n.shape), n.point, n.sending})
		if n.next < 0 {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lowest = min(s.lowest, total)
	i := slices.IndexFunc(s.plans, func(o Candidate) bool { return len(o.Choices) == stages })
	if i < 0 {
		s.plans = append(s.plans, k)
	} else if total < s.plans[i].Total {
		s.plans[i] = k
	}
	return s.factor * s.lowest
}
