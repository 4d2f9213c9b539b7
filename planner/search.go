package planner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
)

// ErrInfeasible is wrapped where no plan exists.
var ErrInfeasible = errors.New("no feasible plan")

// Choice is a stage of a plan that was found: layers From..To-1 on a shape of its condition.
type Choice struct {
	From, To, Shape int
	Point           Point
	Boundary        float64 // seconds per micro-batch to the next stage, there and back
}

// Candidate is a plan under one of the conditions.
type Candidate struct {
	Condition int
	Choices   []Choice // first stage first
	Total     float64  // seconds of an iteration per sample, or whatever the condition's Total says
}

// Found is what a search came to.
type Found struct {
	Best   []Candidate // cheapest first, one for each condition and number of stages at most
	Bound  float64     // no plan under any condition costs less
	States int         // states looked at
}

// Exact says whether nothing better than Best[0] exists.
func (f *Found) Exact() bool { return f.Bound >= f.Best[0].Total }

// Progress is told after each condition: how many of them are done, the cheapest plan so far (+Inf: none), the bound.
type Progress func(done, conditions int, best, bound float64)

// beam is how many states a first pass keeps for each number of stages.
const beam = 48

// Search finds the plan with the least Total over all conditions, whose totals must be in one unit. It is exact unless
// ctx ends first or a condition needs more states than fit: Found.Bound tells. A first pass with a beam gives every
// condition a plan; the second goes through all states that could be cheaper than the cheapest of these. The result
// depends on the conditions alone, not on their timing, as long as ctx does not end. Without any plan the error wraps
// ErrInfeasible, or is ctx's.
func Search(ctx context.Context, conditions []Costs, progress Progress) (*Found, error) {
	if len(conditions) == 0 {
		return nil, fmt.Errorf("%w: no preset condition", ErrInfeasible)
	}
	courses := make([]*course, len(conditions))
	for i, c := range conditions {
		courses[i] = newCourse(c)
	}
	s := &searching{courses: courses, progress: progress, limit: math.Inf(1)}
	s.each(ctx, func(c *course) { c.run(ctx, math.Inf(1), beam) })
	for _, c := range courses {
		s.limit = min(s.limit, c.best())
	}
	s.exact = true
	s.each(ctx, func(c *course) {
		if c.bound = c.floor; c.floor <= s.limit {
			c.run(ctx, s.limit, 0)
		}
	})
	return s.found(ctx)
}

// searching is one search.
type searching struct {
	courses  []*course
	progress Progress
	limit    float64
	exact    bool // second pass

	mu   sync.Mutex
	done int
}

// each runs work for every course on all processors, most promising first.
func (s *searching) each(ctx context.Context, work func(*course)) {
	order := slices.Clone(s.courses)
	slices.SortStableFunc(order, func(a, b *course) int { return cmp.Compare(a.floor, b.floor) })
	queue := make(chan *course)
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for c := range queue {
				work(c)
				s.tell()
			}
		})
	}
	for _, c := range order {
		if ctx.Err() == nil {
			queue <- c
		}
	}
	close(queue)
	group.Wait()
}

// tell reports progress.
func (s *searching) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done++
	if s.progress == nil {
		return
	}
	best, bound := math.Inf(1), math.Inf(1)
	for _, c := range s.courses {
		c.mu.Lock()
		best, bound = min(best, c.lowest), min(bound, c.bound)
		c.mu.Unlock()
	}
	s.progress(s.done, 2*len(s.courses), best, min(best, bound))
}

func (s *searching) found(ctx context.Context) (*Found, error) {
	f := &Found{Bound: math.Inf(1)}
	for i, c := range s.courses {
		for _, k := range c.plans {
			k.Condition = i
			f.Best = append(f.Best, k)
		}
		f.Bound = min(f.Bound, c.bound)
		f.States += c.states
	}
	if len(f.Best) == 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w under any of %d conditions", ErrInfeasible, len(s.courses))
	}
	// Equal costs: fewer stages, then the earlier condition, so that the choice does not hang on rounding of a search.
	slices.SortStableFunc(f.Best, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(a.Total, b.Total), cmp.Compare(len(a.Choices), len(b.Choices)), cmp.Compare(a.Condition, b.Condition))
	})
	f.Bound = min(f.Bound, f.Best[0].Total)
	return f, nil
}
