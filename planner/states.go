package planner

import (
	"math"
	"slices"
)

// sift drops plans of the last stages where others of as many stages leave the same layers, follow the same kind of
// stage, took no more of any device and cost no more.
func (s *course) sift(level []*state) []*state {
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
				if !s.within(a.used, b.used) {
					continue
				}
				b.nodes = slices.DeleteFunc(b.nodes, func(n int32) bool {
					return slices.ContainsFunc(a.nodes, func(m int32) bool { return s.nodes[m].beats(&s.nodes[n]) })
				})
			}
		}
	}
	return slices.DeleteFunc(level, func(st *state) bool { return len(st.nodes) == 0 })
}

func (a *node) beats(b *node) bool {
	return a.max <= b.max && a.own <= b.own && a.sum <= b.sum && a.tail <= b.tail
}

// within says whether a leaves at least the devices that b leaves, and as they lie in machines.
func (s *course) within(a, b []int) bool {
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

// narrow keeps the most promising states.
func (s *course) narrow(level []*state, stages, width int) []*state {
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
		all[i] = scored{st, math.Inf(1)}
		for _, n := range st.nodes {
			a := s.node(n)
			all[i].score = min(all[i].score, s.beneath(max(a.max, a.own), a.sum, a.tail, stages, int(st.from), s.rate(free)))
		}
	}
	slices.SortStableFunc(all, func(a, b scored) int {
		switch {
		case a.score < b.score:
			return -1
		case a.score > b.score:
			return 1
		}
		return 0
	})
	// By turns of the layers left: a promise for many layers says less than one for few.
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
