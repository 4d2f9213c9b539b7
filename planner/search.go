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
	Busy, Passing   float64 // of the boundary to the next stage, as Costs.Boundary has them
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

// SearchOptions say how thorough a search is. The zero value: exact, without word of progress.
type SearchOptions struct {
	Progress  Progress
	Tolerance float64 // share by which a plan must be cheaper to be looked for
	Width     int     // states kept for each number of stages of a condition; 0: all
}

// Progress is told after each condition: how many of them are done, the cheapest plan so far (+Inf: none), the bound.
type Progress func(done, conditions int, best, bound float64)

// withoutLimit is how many states are kept where the first pass found no plan whose cost would cut the search.
const withoutLimit = 2048

// beam is how many states a first pass keeps for each number of stages.
const beam = 48

// Search finds the plan with the least Total over all conditions, whose totals must be in one unit. It is exact to the
// tolerance unless ctx ends first or a condition needs more states than are kept: Found.Bound tells. A first pass with a beam gives every
// condition a plan; the second goes through all states that could be cheaper than the cheapest of these; a third bounds
// what conditions that are not exact may have missed. The result
// depends on the conditions alone, not on their timing, as long as ctx does not end. Without any plan the error wraps
// ErrInfeasible, or is ctx's.
func Search(ctx context.Context, conditions []Costs, o SearchOptions) (*Found, error) {
	if len(conditions) == 0 {
		return nil, fmt.Errorf("%w: no preset condition", ErrInfeasible)
	}
	courses := make([]*course, len(conditions))
	for i, c := range conditions {
		courses[i] = newCourse(c, o.Tolerance)
	}
	s := &searching{courses: courses, progress: o.Progress, limit: math.Inf(1)}
	// In rounds, so that what a round finds cuts the next, whatever the number of processors.
	byFloor := slices.Clone(courses)
	slices.SortStableFunc(byFloor, func(a, b *course) int { return cmp.Compare(a.floor, b.floor) })
	for round := range slices.Chunk(byFloor, 8) {
		s.each(ctx, round, func(c *course) {
			if c.floor <= s.limit {
				c.run(ctx, s.limit, beam, true)
			}
		})
		s.settle()
	}
	if math.IsInf(s.limit, 1) && o.Width == 0 {
		o.Width = withoutLimit
	}
	s.each(ctx, byFloor, func(c *course) {
		if c.floor <= s.limit {
			c.run(ctx, s.limit, o.Width, false)
		}
	})
	s.settle()
	s.each(ctx, byFloor, func(c *course) { c.relax(ctx, s.limit, o.Width) })
	return s.found(ctx)
}

// Relaxer is a Costs that need not be exact: Relaxed prices every stage at or below all ways to run it, so that a search
// over these prices bounds all plans.
type Relaxer interface{ Relaxed() Costs }

// Grainer is a Costs to which it matters how the devices that are left lie in machines: Grain is a machine's devices of
// each class. Without it devices count alone.
type Grainer interface{ Grain() []int }

// searching is one search.
type searching struct {
	courses  []*course
	progress Progress
	limit    float64

	mu   sync.Mutex
	done int
}

// settle lowers the limit to the cheapest plan so far.
func (s *searching) settle() {
	for _, c := range s.courses {
		s.limit = min(s.limit, c.lowest)
	}
}

// each runs work for the courses on all processors.
func (s *searching) each(ctx context.Context, courses []*course, work func(*course)) {
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
	for _, c := range courses {
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
	s.progress(s.done, 3*len(s.courses), best, min(best, bound))
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
