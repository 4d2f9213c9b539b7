package search

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// toy is a cost function: a stage is one device of a class, and takes the layers' seconds divided by its speed, or half
// of that at a price once per iteration.
type toy struct {
	seconds []float64 // by layer
	once    []float64 // by layer
	speed   []float64 // by class
	pool    []int
	most    int // layers of a stage
	send    float64
	batches float64
	guesses bool // Stage misses the second point
	beside  bool // stages compute while they send
}

func (c *toy) Layers() int                   { return len(c.seconds) }
func (c *toy) Pool() []int                   { return c.pool }
func (c *toy) Degrees() (least, most int)    { return 1, len(c.seconds) }
func (c *toy) Fits(int, []int) bool          { return true }
func (c *toy) Kind(shape int) int            { return shape }
func (c *toy) Least([]float64) float64       { return 0 }
func (c *toy) Exact() bool                   { return !c.guesses }
func (c *toy) Grain() []int                  { return slices.Repeat([]int{1}, len(c.pool)) }
func (c *toy) Work(class, layer int) float64 { return c.seconds[layer] / c.speed[class] / 2 }
func (c *toy) Total(f Front) float64         { return f.Sum + (c.batches-1)*f.Max + f.PerIteration }

func (c *toy) Boundary(_, shape, next int, _ []int) Sending {
	s := c.send * float64(1+shape+2*next)
	if c.beside {
		return Sending{Passing: s, Link: 3 * s}
	}
	return Sending{s, s, 0}
}

func (c *toy) Shapes() []Shape {
	var all []Shape
	for class := range c.pool {
		s := make(Shape, len(c.pool))
		s[class] = 1
		all = append(all, s)
	}
	return all
}

func (c *toy) Stage(from, to, shape, _ int) []Point {
	if to-from > c.most {
		return nil
	}
	step, once := 0.0, 0.0
	for l := from; l < to; l++ {
		step += c.seconds[l] / c.speed[shape]
		once += c.once[l]
	}
	points := []Point{{Step: step / 2, PerIteration: once, Key: 1}, {Step: step}}
	if c.guesses {
		return points[1:]
	}
	return points
}

// brute tries every plan, first stage first.
func (c *toy) brute() float64 {
	best := math.Inf(1)
	var stage func(from, shape int, left []int, f Front, received float64)
	stage = func(from, shape int, left []int, f Front, received float64) {
		if left[shape] == 0 {
			return
		}
		left = slices.Clone(left)
		left[shape]--
		for to := from + 1; to <= len(c.seconds); to++ {
			for _, p := range c.Stage(from, to, shape, 0) {
				g := Front{max(f.Max, p.Step+received), f.Sum + p.Step, max(f.PerIteration, p.PerIteration), f.Stages + 1}
				if to == len(c.seconds) {
					best = min(best, c.Total(g))
					continue
				}
				for next := range c.pool {
					s := c.Boundary(to, shape, next, nil)
					stage(to, next, left, Front{max(f.Max, p.Step+received+s.Busy, s.Link), g.Sum + s.Passing, g.PerIteration, g.Stages}, s.Busy)
				}
			}
		}
	}
	for shape := range c.pool {
		stage(0, shape, c.pool, Front{}, 0)
	}
	return best
}

func draw(rng *rand.Rand) *toy {
	c := &toy{pool: []int{1 + rng.IntN(3), rng.IntN(3)}, speed: []float64{1, 0.4 + rng.Float64()}, send: rng.Float64() / 4, beside: rng.IntN(2) == 0, batches: float64(1 + rng.IntN(6))}
	for range 1 + rng.IntN(5) {
		c.seconds = append(c.seconds, 0.5+rng.Float64()*2)
		c.once = append(c.once, rng.Float64()*4)
	}
	c.most = 1 + rng.IntN(len(c.seconds))
	return c
}

func TestExact(t *testing.T) {
	infeasible, loose := 0, 0
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 7))
		c, d := draw(rng), draw(rng)
		d.seconds, d.once = c.seconds, c.once
		d.most = min(d.most, len(d.seconds))
		want := min(c.brute(), d.brute())
		done := 0
		r, err := Run(context.Background(), []Costs{c, d}, Options{Progress: func(n, steps int) {
			if done++; n != done || steps != 4 {
				t.Errorf("seed %d: %d of %d done", seed, n, steps)
			}
		}})
		if math.IsInf(want, 1) {
			if !errors.Is(err, ErrInfeasible) {
				t.Fatalf("seed %d: %v; there is no plan", seed, err)
			}
			infeasible++
			continue
		}
		if err != nil || math.Abs(r.Best[0].Total-want) > 1e-12*want || r.Bound < r.Best[0].Total {
			t.Fatalf("seed %d: %+v, %v; want %v", seed, r, err, want)
		}
		// What was found costs what it is said to.
		for _, k := range r.Best {
			if got := totalOf([]*toy{c, d}[k.Condition], k); math.Abs(got-k.Total) > 1e-12*got {
				t.Fatalf("seed %d: %+v costs %v", seed, k, got)
			}
		}
		// Where prices miss points, the bound holds all the same.
		miss := *c
		miss.guesses = true
		best := c.brute()
		if r, err = Run(context.Background(), []Costs{&miss}, Options{}); err == nil {
			if r.Bound > best*(1+1e-12) || r.Best[0].Total < best*(1-1e-12) {
				t.Fatalf("seed %d: bound %v, %v found; the best is %v", seed, r.Bound, r.Best[0].Total, best)
			}
			if r.Best[0].Total > best*(1+1e-9) {
				loose++
				if r.Bound >= r.Best[0].Total {
					t.Fatalf("seed %d: %v is exact; the best is %v", seed, r.Best[0].Total, best)
				}
			}
		}
		// A narrow search finds no better plan than there is, and its bound holds.
		if r, err = Run(context.Background(), []Costs{c}, Options{Width: 1}); err == nil && (r.Bound > best*(1+1e-12) || r.Best[0].Total < best*(1-1e-12)) {
			t.Fatalf("seed %d: bound %v, %v found; the best is %v", seed, r.Bound, r.Best[0].Total, best)
		}
	}
	if infeasible < 5 || infeasible > 150 || loose < 20 {
		t.Errorf("%d without a plan, %d better than was found", infeasible, loose)
	}
}

func totalOf(c *toy, k Candidate) float64 {
	var f Front
	received := 0.0
	for _, s := range k.Choices {
		f = Front{max(f.Max, s.Point.Step+s.Busy+received, s.Link), f.Sum + s.Point.Step + s.Passing, max(f.PerIteration, s.Point.PerIteration), f.Stages + 1}
		received = s.Busy
	}
	return c.Total(f)
}

// Within the tolerance a cheaper plan may be missed, and the bound says so.
func TestTolerance(t *testing.T) {
	for seed := range uint64(50) {
		c := draw(rand.New(rand.NewPCG(seed, 8)))
		best := c.brute()
		r, err := Run(context.Background(), []Costs{c}, Options{Tolerance: 0.2})
		if err != nil {
			continue
		}
		if total := r.Best[0].Total; total > best/0.8*(1+1e-9) || r.Bound > best*(1+1e-9) || r.Bound < 0.8*total*(1-1e-9) {
			t.Fatalf("seed %d: %v, bound %v; the best is %v", seed, total, r.Bound, best)
		}
	}
}

// By hand: of four states that leave one layer, or two, to 10 devices of speed 1, those with the lowest bound stay, in
// turns of the layers that are left.
func TestNarrow(t *testing.T) {
	c := &toy{seconds: []float64{2, 2}, once: []float64{0, 0}, speed: []float64{1}, pool: []int{10}, most: 2, batches: 1}
	s := newTable(c, 0)
	var level []*state
	add := func(from int, sum float64) *state {
		s.nodes = append(s.nodes, node{sum: sum})
		st := &state{key: key{from: int32(from)}, used: []int{1}, nodes: []int32{int32(len(s.nodes) - 1)}}
		level = append(level, st)
		return st
	}
	// A total is at least the sum and what is left at half of the seconds on one device: 1 for a layer, 2 for two.
	worst, third, best, second := add(1, 9), add(2, 5), add(1, 3), add(2, 4)
	if got := s.narrow(slices.Clone(level), 1, 2); !slices.Equal(got, []*state{best, second}) {
		t.Errorf("%v of %v", got, level)
	}
	if got := s.narrow(slices.Clone(level), 1, 3); !slices.Equal(got, []*state{best, second, worst}) {
		t.Errorf("%v of %v", got, level)
	}
	if got := s.narrow(slices.Clone(level), 1, 4); !slices.Equal(got, []*state{best, second, worst, third}) {
		t.Errorf("%v of %v", got, level)
	}
}

func TestEnds(t *testing.T) {
	if _, err := Run(context.Background(), nil, Options{}); !errors.Is(err, ErrInfeasible) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, []Costs{draw(rand.New(rand.NewPCG(1, 7)))}, Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
