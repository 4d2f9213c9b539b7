package refine

import (
	"cmp"
	"slices"

	"evenkeel/planner/costmodel"
)

// move changes a draft; false: it cannot.
type move func(*draft) bool

// moves are all small changes of a draft, by kind: of the cuts of the layers, of strategies, of shares and tensor degrees, of the micro-batch
// and the order of devices, and of devices.
func (r *refiner) moves(d *draft) [][]move {
	var cuts, strategies, shares []move
	for i := range d.stages {
		if i+1 < len(d.stages) {
			for _, n := range []int{-4, -2, -1, 1, 2, 4} {
				cuts = append(cuts, func(d *draft) bool { return d.shift(i, n) })
			}
			cuts = append(cuts, func(d *draft) bool { return r.merge(d, i) }, func(d *draft) bool { return r.swap(d, i) })
		}
		cuts = append(cuts, r.splits(d, i)...)
		strategies = append(strategies, r.strategyMoves(d, i)...)
		for g, team := range d.stages[i].groups {
			for to := range d.stages[i].groups {
				shares = append(shares, func(d *draft) bool { return d.reshare(i, g, to) })
			}
			for _, t := range r.tensors[team.class] {
				if t != team.tensor && team.devices()%t == 0 {
					shares = append(shares, func(d *draft) bool { return r.retensor(d.own(i), g, t) }, func(d *draft) bool { // layers keep their degree
						s := d.own(i)
						for l := range s.strategies {
							s.strategies[l].Tensor = cmp.Or(s.strategies[l].Tensor, team.tensor)
						}
						return r.retensor(s, g, t) && len(s.groups) == 1
					})
				}
			}
		}
	}
	whole := []move{func(d *draft) bool { d.upward = !d.upward; return true }}
	at, _ := slices.BinarySearch(r.micros, d.micro)
	for i := max(0, at-2); i < min(len(r.micros), at+3); i++ {
		if b := r.micros[i]; b != d.micro {
			whole = append(whole, func(d *draft) bool { d.micro = b; return true })
		}
	}
	return slices.DeleteFunc([][]move{cuts, strategies, shares, whole, r.transfers(d)}, func(kind []move) bool { return len(kind) == 0 })
}

// retensor gives a group another tensor degree.
func (r *refiner) retensor(s *part, group, tensor int) bool {
	g := &s.groups[group]
	g.replicas, g.tensor = g.devices()/tensor, tensor
	r.tidy(s)
	return true
}

// reshare moves a sample of a micro-batch from one group of a stage to another.
func (d *draft) reshare(stage, from, to int) bool {
	s := d.own(stage)
	s.groups[from].more--
	s.groups[to].more++
	return from != to
}

// shift moves the boundary after a stage by n layers. They take the strategy of their new neighbour.
func (d *draft) shift(stage, n int) bool {
	a, b := &d.stages[stage], &d.stages[stage+1]
	switch {
	case n > 0 && n < len(b.strategies):
		a.strategies = slices.Concat(a.strategies, slices.Repeat(a.strategies[len(a.strategies)-1:], n))
		b.strategies = b.strategies[n:]
	case n < 0 && -n < len(a.strategies):
		a.strategies = a.strategies[:len(a.strategies)+n]
		b.strategies = append(slices.Repeat(b.strategies[:1], -n), b.strategies...)
	default:
		return false
	}
	a.to += n
	return true
}

// merge makes one stage of two.
func (r *refiner) merge(d *draft, stage int) bool {
	if len(d.stages) <= r.model.Choices().LeastStages {
		return false
	}
	a, b := d.own(stage), d.stages[stage+1]
	for _, g := range b.groups {
		if !r.give(a, g.class, g.devices(), g.tensor) {
			return false
		}
	}
	a.to = b.to
	a.strategies = append(a.strategies, b.strategies...)
	r.tidy(a)
	d.stages = slices.Delete(d.stages, stage+1, stage+2)
	return true
}

// swap gives two consecutive stages each other's devices.
func (r *refiner) swap(d *draft, stage int) bool {
	a, b := d.own(stage), d.own(stage+1)
	a.groups, b.groups = b.groups, a.groups
	r.tidy(a)
	r.tidy(b)
	return true
}

// splits cut a stage in two. A single group, or its only replica, is halved; of several groups, one is separated from the others.
func (r *refiner) splits(d *draft, stage int) []move {
	s := &d.stages[stage]
	if len(s.strategies) < 2 || len(d.stages) >= r.model.Choices().MostStages {
		return nil
	}
	cut := func(d *draft, first, second []team) bool {
		s := d.stages[stage]
		n := len(s.strategies) / 2
		a := part{d.from(stage) + n, first, slices.Clone(s.strategies[:n])}
		b := part{s.to, second, slices.Clone(s.strategies[n:])}
		r.tidy(&a)
		r.tidy(&b)
		d.stages = slices.Replace(d.stages, stage, stage+1, a, b)
		return true
	}
	if len(s.groups) == 1 {
		g := s.groups[0]
		half := g.replicas / 2 * g.tensor
		if g.replicas == 1 {
			half = g.tensor / 2
		}
		first, second := r.team(g, g.devices()-half), r.team(g, half)
		if first.replicas == 0 || second.replicas == 0 {
			return nil
		}
		return []move{func(d *draft) bool { return cut(d, []team{first}, []team{second}) }}
	}
	var all []move
	for i := range s.groups {
		one, others := s.groups[i:i+1], slices.Delete(slices.Clone(s.groups), i, i+1)
		all = append(all, func(d *draft) bool { return cut(d, slices.Clone(one), slices.Clone(others)) },
			func(d *draft) bool { return cut(d, slices.Clone(others), slices.Clone(one)) })
	}
	return all
}

// transfers move devices of a class between two stages, or between a stage and the unused devices.
func (r *refiner) transfers(d *draft) []move {
	const unused = -1
	var all []move
	for class := range r.pool {
		holders := map[int]team{} // by stage
		left := r.pool[class]
		for i, s := range d.stages {
			for _, g := range s.groups {
				if g.class == class {
					holders[i] = g
					left -= g.devices()
				}
			}
		}
		for from := unused; from < len(d.stages); from++ {
			have, step := left, 1
			if from != unused {
				g, ok := holders[from]
				if !ok {
					continue
				}
				have, step = g.devices(), g.tensor
			}
			for to := unused; to < len(d.stages); to++ {
				if to == from || have == 0 {
					continue
				}
				tensors := r.tensors[class]
				if g, ok := holders[to]; ok {
					tensors = []int{g.tensor}
				} else if to == unused {
					tensors = []int{1}
				}
				for _, t := range tensors {
					for _, n := range r.amounts(class, have, max(step, t)) {
						all = append(all, func(d *draft) bool {
							if from != unused && !r.drop(d.own(from), class, n) {
								return false
							}
							return to == unused || r.give(d.own(to), class, n, t)
						})
					}
				}
			}
		}
	}
	return all
}

// amounts are numbers of devices to move at a time: all there are, or multiples of step.
func (r *refiner) amounts(class, have, step int) []int {
	per := r.model.Classes()[class].PerMachine
	var all []int
	for _, n := range []int{step, 2 * step, 4 * step, per, 2 * per, have / 2, have} {
		if n == have || n > 0 && n < have && n%step == 0 {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// drop removes devices from a stage; false: it would not keep whole replicas, or none.
func (r *refiner) drop(s *part, class, n int) bool {
	g := s.of(class)
	if n%g.tensor != 0 || n > g.devices() {
		return false
	}
	g.replicas -= n / g.tensor
	s.groups = slices.DeleteFunc(s.groups, func(g team) bool { return g.replicas == 0 })
	r.tidy(s)
	return len(s.groups) > 0
}

// give adds devices to a stage, as replicas of the group that it has of the class, or as a new group.
func (r *refiner) give(s *part, class, n, tensor int) bool {
	switch g := s.of(class); {
	case g != nil:
		more := r.team(*g, g.devices()+n)
		if more.replicas == 0 {
			return false
		}
		*g = more
	case n%tensor == 0 && len(s.groups) < costmodel.MaxGroups:
		s.groups = append(s.groups, team{class, n / tensor, tensor, 0})
	default:
		return false
	}
	r.tidy(s)
	return true
}

// team is a group with so many devices, at its tensor degree or the next lower one that divides them; without replicas: there is none.
func (r *refiner) team(g team, devices int) team {
	if devices%g.tensor != 0 {
		lower := slices.DeleteFunc(slices.Clone(r.tensors[g.class]), func(t int) bool { return t > g.tensor || devices%t != 0 })
		if len(lower) == 0 {
			return team{}
		}
		g.tensor = slices.Max(lower)
	}
	g.replicas = devices / g.tensor
	return g
}

// tidy resets the tensor degree of layers to that of their group if the groups of the stage do not allow another, and deals samples anew.
func (r *refiner) tidy(s *part) {
	for g := range s.groups {
		s.groups[g].more = 0
	}
	degrees := r.degrees(s)
	for i := range s.strategies {
		if !slices.Contains(degrees, s.strategies[i].Tensor) {
			s.strategies[i].Tensor = 0
		}
	}
}

// degrees are the tensor degrees that layers may have besides that of their group: none in a stage of several groups.
func (r *refiner) degrees(s *part) (all []int) {
	if len(s.groups) != 1 {
		return nil
	}
	g := s.groups[0]
	for _, t := range r.tensors[g.class] {
		if t != g.tensor && g.devices()%t == 0 {
			all = append(all, t)
		}
	}
	return all
}

// strategyMoves change one part of the strategy of some layers of a stage: of all layers, of each run of equal layers with one
// strategy, and of the first and last layer of such a run.
func (r *refiner) strategyMoves(d *draft, stage int) []move {
	s := &d.stages[stage]
	o, kinds := r.model.Choices(), r.model.Kinds()
	n := len(s.strategies)
	spans := [][2]int{{0, n}}
	for from := 0; from < n; {
		to := from + 1
		for to < n && s.strategies[to] == s.strategies[from] && kinds[d.from(stage)+to] == kinds[d.from(stage)+from] {
			to++
		}
		spans = append(spans, [2]int{from, to}, [2]int{from, from + 1}, [2]int{to - 1, to})
		from = to
	}
	slices.SortFunc(spans, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	var all []move
	for _, span := range slices.Compact(spans) {
		set := func(change func(*costmodel.Strategy)) {
			all = append(all, func(d *draft) bool {
				changed := false
				s := d.own(stage)
				for i := span[0]; i < span[1]; i++ {
					y := &s.strategies[i]
					was := *y
					change(y)
					changed = changed || *y != was
				}
				return changed
			})
		}
		for _, sharding := range o.Shardings {
			set(func(y *costmodel.Strategy) { y.Sharding = sharding })
		}
		if ways := r.model.Recomputations(); len(ways) > 1 {
			for _, way := range ways {
				set(func(y *costmodel.Strategy) { y.Checkpoint, y.Selective = way.Checkpoint, way.Selective })
			}
		}
		if len(s.groups) == 1 {
			for _, t := range append([]int{0}, r.degrees(s)...) {
				set(func(y *costmodel.Strategy) { y.Tensor = t })
			}
		}
	}
	return all
}

// of is the group of a class in a stage; nil: the stage has none.
func (s *part) of(class int) *team {
	if i := slices.IndexFunc(s.groups, func(g team) bool { return g.class == class }); i >= 0 {
		return &s.groups[i]
	}
	return nil
}
