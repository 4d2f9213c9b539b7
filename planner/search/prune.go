package search

import (
	"cmp"
	"math"
	"slices"
)

// dropDominated drops a point if another state of the same number of stages has a point that is as good, leaves the same layers,
// begins with the same kind of stage, and takes no more devices of any class.
func (s *table) dropDominated(level []*state) []*state {
	type front struct{ from, kind int32 }
	groups := map[front][]*state{}
	for _, st := range level {
		k := front{st.from, st.kind}
		groups[k] = append(groups[k], st)
	}
	for _, g := range groups {
		slices.SortStableFunc(g, func(a, b *state) int { return sum(a.used) - sum(b.used) })
		for i, b := range g {
			for _, a := range g[:i] {
				if !s.leavesAtLeast(a.used, b.used) {
					continue
				}
				b.nodes = slices.DeleteFunc(b.nodes, func(n int32) bool {
					return slices.ContainsFunc(a.nodes, func(m int32) bool { return s.nodes[m].dominates(&s.nodes[n]) })
				})
			}
		}
	}
	return slices.DeleteFunc(level, func(st *state) bool { return len(st.nodes) == 0 })
}

func (a *node) dominates(b *node) bool {
	return a.max <= b.max && a.own <= b.own && a.sum <= b.sum && a.perIteration <= b.perIteration
}

// leavesAtLeast says whether a leaves at least as many devices as b, at the same positions within machines.
func (s *table) leavesAtLeast(a, b []int) bool {
	for i := range a {
		if a[i] > b[i] || (b[i]-a[i])%s.grain[i] != 0 {
			return false
		}
	}
	return true
}

func sum(list []int) int {
	n := 0
	for _, v := range list {
		n += v
	}
	return n
}

// narrow keeps the width states with the lowest bounds, taking turns over the number of layers left: a low bound with many layers
// left says less than one with few.
func (s *table) narrow(level []*state, stages, width int) []*state {
	type scored struct {
		*state
		score float64
	}
	all := make([]scored, len(level))
	free := make([]int, len(s.pool))
	for i, st := range level {
		for c := range free {
			free[c] = s.pool[c] - st.used[c]
		}
		left := s.rest(int(st.from), s.rate(free))
		all[i] = scored{st, math.Inf(1)}
		for _, n := range st.nodes {
			a := s.node(n)
			all[i].score = min(all[i].score, s.lowerBound(Front{max(a.max, a.own), a.sum, a.perIteration, stages}, left))
		}
	}
	slices.SortStableFunc(all, func(a, b scored) int { return cmp.Compare(a.score, b.score) })
	groups := map[int32][]*state{}
	var order []int32
	for _, a := range all {
		if groups[a.from] == nil {
			order = append(order, a.from)
		}
		groups[a.from] = append(groups[a.from], a.state)
	}
	out := make([]*state, 0, width)
	for turn := 0; len(out) < width; turn++ {
		for _, from := range order {
			if g := groups[from]; turn < len(g) && len(out) < width {
				out = append(out, g[turn])
			}
		}
	}
	return out
}
