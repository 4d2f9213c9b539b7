package refine

import (
	"context"
	"math/bits"
	"slices"
)

// threshold is the share by which a step may lengthen an iteration when a walk begins.
const threshold = 0.02

// wander is the quickest draft on a random walk. It takes a step unless that lengthens the iteration by more than a threshold,
// which falls to 0 during the walk.
func (r *refiner) wander(ctx context.Context, d *draft, prices int) *draft {
	best := d
	for n := range prices {
		if n%64 == 0 && ctx.Err() != nil {
			break
		}
		next := d.clone()
		for range 1 + r.rng.IntN(3) {
			if c := next.clone(); r.step(c) {
				next = c
			}
		}
		if r.value(next); next.price < d.price*(1+threshold*(1-float64(n)/float64(prices))) {
			d = next
			if d.price < best.price {
				best = d
			}
		}
	}
	return best
}

// step changes a draft at random; false: the change is impossible, and the draft may be broken.
func (r *refiner) step(d *draft) bool {
	i := r.rng.IntN(len(d.stages))
	switch r.rng.IntN(10) {
	case 0:
		return r.hand(d, i)
	case 1, 2:
		return r.transfer(d, i)
	case 3:
		s := d.own(i)
		g := &s.groups[r.rng.IntN(len(s.groups))]
		n, t := g.replicas*g.tensor, pick(r, r.tensors[g.class])
		g.replicas, g.tensor = n/t, t
		return n%t == 0
	case 4, 5:
		return r.restrategise(d, i)
	case 6:
		at, _ := slices.BinarySearch(r.micros, d.micro)
		if at += []int{-2, -1, 1, 2}[r.rng.IntN(4)]; at < 0 || at >= len(r.micros) {
			return false
		}
		d.micro = r.micros[at]
		return true
	case 7:
		all := r.splits(d, i)
		return len(all) > 0 && pick(r, all)(d)
	case 8:
		return i+1 < len(d.stages) && r.merge(d, i)
	default: // two stages swap their devices
		if i+1 == len(d.stages) {
			return false
		}
		a, b := d.own(i), d.own(i+1)
		a.groups, b.groups = b.groups, a.groups
		r.tidy(a)
		r.tidy(b)
		return true
	}
}

func pick[T any](r *refiner, all []T) T { return all[r.rng.IntN(len(all))] }

// hand moves some layers over the boundary after a stage, with their strategies or with those of their new neighbours.
func (r *refiner) hand(d *draft, i int) bool {
	if i+1 == len(d.stages) {
		return false
	}
	n := 1 + r.rng.IntN(3)
	if r.rng.IntN(2) == 0 {
		n = -n
	}
	if r.rng.IntN(2) == 0 {
		return d.shift(i, n)
	}
	a, b := d.own(i), d.own(i+1)
	k := len(a.strategies) + n
	all := slices.Concat(a.strategies, b.strategies)
	if k < 1 || k >= len(all) {
		return false
	}
	a.strategies, b.strategies = slices.Clone(all[:k]), all[k:]
	a.to += n
	r.tidy(a)
	r.tidy(b)
	return true
}

// transfer moves devices of a class between two stages, or between a stage and the unused devices.
func (r *refiner) transfer(d *draft, to int) bool {
	class := r.rng.IntN(len(r.pool))
	left := r.pool[class]
	var holders []int
	for i, s := range d.stages {
		for _, g := range s.groups {
			if g.class == class {
				left -= g.replicas * g.tensor
				holders = append(holders, i)
			}
		}
	}
	if len(r.tensors[class]) == 0 {
		return false
	}
	t := pick(r, r.tensors[class])
	if g := d.stages[to].of(class); g != nil {
		t = g.tensor
	}
	n, from := max(t, 1<<r.rng.IntN(4)), r.rng.IntN(len(holders)+1)
	if from == len(holders) {
		return left >= n && r.give(d.own(to), class, n, t)
	}
	other := d.own(holders[from])
	g := other.of(class)
	n = min(n, g.replicas*g.tensor)
	if !r.drop(other, class, n) {
		return false
	}
	return holders[from] == to || r.give(d.own(to), class, n, t)
}

// of is the group of a class in a stage; nil: the stage has none.
func (s *part) of(class int) *team {
	if i := slices.IndexFunc(s.groups, func(g team) bool { return g.class == class }); i >= 0 {
		return &s.groups[i]
	}
	return nil
}

// restrategise changes a part of the strategies of some layers of a stage.
func (r *refiner) restrategise(d *draft, i int) bool {
	s, o := d.own(i), r.model.Choices()
	from := r.rng.IntN(len(s.strategies))
	to := from + 1 + r.rng.IntN(len(s.strategies)-from)
	y := s.strategies[from]
	switch r.rng.IntN(3) {
	case 0:
		way := pick(r, r.model.Recomputations())
		y.Checkpoint, y.Selective = way.Checkpoint, way.Selective
	case 1:
		y.Sharding = pick(r, o.Shardings)
	default:
		y.Tensor = pick(r, append(r.degrees(s), 0))
	}
	for l := from; l < to; l++ {
		s.strategies[l] = y
	}
	return true
}

// hurried is the number of plans of 32 layers that are priced after a search was interrupted.
const hurried = 24000

// hurry refines by successive halving (Jamieson and Talwalkar, 2016), with this number of prices in all: the same number for each
// plan, then twice as many for each plan of the quicker half, until one is left. The plan that wins often has another number of
// stages than the one that leads at first. With so few prices, walks find more than descents.
func hurry(ctx context.Context, all []*refinement, prices int) {
	rounds := bits.Len(uint(len(all)))
	portion := prices / max(1, rounds*len(all))
	for ; len(all) > 0; all, portion = all[:len(all)/2], 2*portion {
		each(len(all), func(r *refiner, i int) {
			f := all[i]
			r.take(f)
			f.best = r.wander(ctx, f.best, portion*3/4)
			r.left = portion / 4
			f.best = r.descend(ctx, f.best)
		})
		byPrice(all)
	}
}
