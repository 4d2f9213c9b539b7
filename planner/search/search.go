package search

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

// ErrInfeasible is wrapped by errors that report that no plan exists.
var ErrInfeasible = errors.New("planner: no feasible plan")

// Choice is a stage of a plan: layers From..To-1 on a shape of its condition.
type Choice struct {
	From, To, Shape int
	Point           Point
	Sending         // to the next stage
}

// Candidate is a plan under one of the conditions.
type Candidate struct {
	Condition int
	Choices   []Choice // first stage first
	Total     float64  // seconds of an iteration per sample, or whatever the condition's Total returns
}

// Result is the outcome of a search.
type Result struct {
	Best   []Candidate // cheapest first, at most one for each condition and number of stages
	Bound  float64     // lower bound on the total of every plan under any condition
	States int         // states visited
}

// Options control how thorough a search is. The zero value: exact; reports no progress.
type Options struct {
	Progress  Progress
	Tolerance float64 // relative improvement below which cheaper plans are not looked for
	Width     int     // states that are kept for each number of stages of a condition; 0: all
}

// Progress is called, by one goroutine at a time, with how many steps are done, and their number.
type Progress func(done, steps int)

// widthWithoutPlan is the number of states kept if the first pass finds no plan, so that no cost prunes the search.
const widthWithoutPlan = 2048

// FirstPassWidth is how many states the first pass keeps for each number of stages.
const FirstPassWidth = 48

// Run finds the plan with the least Total over all conditions. All totals must have the same unit. A first pass by beam search
// finds a plan for every condition; a second pass visits all states that could beat the cheapest of them. The result is exact
// up to the tolerance, unless ctx ends, a condition is not exact, or it has more states than are kept; then Result.Bound shows
// how much may be missed. The result depends on the conditions alone, not on timing, unless ctx ends. If there is no plan, the
// error wraps ErrInfeasible, or is that of ctx.
func Run(ctx context.Context, conditions []Costs, o Options) (*Result, error) {
	if len(conditions) == 0 {
		return nil, fmt.Errorf("%w: no preset condition", ErrInfeasible)
	}
	tables := make([]*table, len(conditions))
	for i, c := range conditions {
		tables[i] = newTable(c, o.Tolerance)
	}
	s := &run{tables: tables, progress: o.Progress, limit: math.Inf(1)}
	// In rounds of fixed size, so that each round prunes the next in the same way on any number of processors.
	byBound := slices.Clone(tables)
	slices.SortStableFunc(byBound, func(a, b *table) int { return cmp.Compare(a.rootBound, b.rootBound) })
	for round := range slices.Chunk(byBound, 8) {
		s.each(ctx, round, func(t *table) {
			if t.rootBound <= s.limit {
				t.fill(ctx, s.limit, FirstPassWidth, true)
			}
		})
		s.lowerLimit()
	}
	if math.IsInf(s.limit, 1) && o.Width == 0 {
		o.Width = widthWithoutPlan
	}
	s.each(ctx, byBound, func(t *table) {
		if t.rootBound <= s.limit {
			t.fill(ctx, s.limit, o.Width, false)
		}
	})
	s.lowerLimit()
	return s.result(ctx)
}

type run struct {
	tables   []*table
	progress Progress
	limit    float64

	mu   sync.Mutex
	done int
}

// lowerLimit sets the limit to the cost of the cheapest plan so far.
func (s *run) lowerLimit() {
	for _, t := range s.tables {
		s.limit = min(s.limit, t.lowest)
	}
}

func (s *run) each(ctx context.Context, tables []*table, work func(*table)) {
	queue := make(chan *table)
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			var nodes []node // memory for one table after another
			for t := range queue {
				t.nodes = nodes[:0]
				work(t)
				nodes, t.nodes = t.nodes, nil
				s.report()
			}
		})
	}
	for _, t := range tables {
		if ctx.Err() == nil {
			queue <- t
		}
	}
	close(queue)
	group.Wait()
}

func (s *run) report() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done++; s.progress != nil {
		s.progress(s.done, 2*len(s.tables))
	}
}

func (s *run) result(ctx context.Context) (*Result, error) {
	r := &Result{Bound: math.Inf(1)}
	for i, t := range s.tables {
		for _, k := range t.plans {
			k.Condition = i
			r.Best = append(r.Best, k)
		}
		r.Bound = min(r.Bound, t.bound)
		r.States += t.visited
	}
	if len(r.Best) == 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w under any of %d conditions", ErrInfeasible, len(s.tables))
	}
	// Of equal costs, fewer stages come first, then the earlier condition.
	slices.SortStableFunc(r.Best, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(a.Total, b.Total), cmp.Compare(len(a.Choices), len(b.Choices)), cmp.Compare(a.Condition, b.Condition))
	})
	r.Bound = min(r.Bound, r.Best[0].Total)
	return r, nil
}
