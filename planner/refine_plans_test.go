package planner

import (
	"math/rand/v2"
	"slices"

	"evenkeel/planner/costmodel"
)

// randomPlan cuts layers, devices and samples at random; it may not fit memory.
func randomPlan(rng *rand.Rand, j *Job, batch int) *Plan {
	micro := 1 + rng.IntN(batch)
	for batch%micro != 0 {
		micro--
	}
	p := &Plan{Version: Version, GlobalBatch: batch, MicroBatch: micro}
	layers := len(j.Profile.Layers)
	free := make([]int, len(j.classes)) // first device not taken
	for from := 0; from < layers; {
		s := Stage{From: from, To: from + 1 + rng.IntN(layers-from)}
		left := micro
		for class, k := range j.classes {
			n := k.Count - free[class]
			if n > 0 {
				n = rng.IntN(n + 1)
			}
			t := []int{1, 2, 4}[rng.IntN(3)]
			if n = min(n/t, left) * t; n == 0 || len(s.Groups) > 0 && rng.IntN(2) == 0 {
				continue
			}
			first := (free[class] + t - 1) / t * t
			if first+n > k.Count {
				continue
			}
			free[class] = first + n
			g := Group{Devices{j.devices[class], first, n}, t, slices.Repeat([]int{1}, n/t)}
			left -= n / t
			s.Groups = append(s.Groups, g)
		}
		if len(s.Groups) == 0 {
			return p // not a plan
		}
		for left > 0 {
			g := s.Groups[rng.IntN(len(s.Groups))]
			n := 1 + rng.IntN(left)
			g.MicroBatches[rng.IntN(len(g.MicroBatches))] += n
			left -= n
		}
		for l := s.From; l < s.To; l++ {
			y := Strategy{From: l, To: l + 1, Sharding: costmodel.Shardings()[rng.IntN(4)]}
			recomputed := rng.IntN(3)
			y.Checkpoint, y.Selective = recomputed == 0, recomputed == 1 && j.model.Selects()
			if t := []int{0, 1, 2, 4}[rng.IntN(4)]; len(s.Groups) == 1 && t > 0 && s.Groups[0].Count%t == 0 && rng.IntN(2) == 0 {
				y.Tensor = t
			}
			s.Strategies = append(s.Strategies, y)
		}
		p.Stages = append(p.Stages, s)
		from = s.To
	}
	return p
}

// edited is a plan with a few edits, which may spoil it.
func edited(rng *rand.Rand, j *Job, p *Plan) *Plan {
	q := *p
	q.Predicted, q.Unused = nil, nil
	q.Stages = nil
	for _, s := range p.Stages {
		s.Groups = slices.Clone(s.Groups)
		for i := range s.Groups {
			s.Groups[i].MicroBatches = slices.Clone(s.Groups[i].MicroBatches)
		}
		var each []Strategy // a layer at a time
		for _, y := range s.Strategies {
			for l := y.From; l < y.To; l++ {
				one := y
				one.From, one.To = l, l+1
				each = append(each, one)
			}
		}
		s.Strategies = each
		q.Stages = append(q.Stages, s)
	}
	for range 1 + rng.IntN(3) {
		s := &q.Stages[rng.IntN(len(q.Stages))]
		y := &s.Strategies[rng.IntN(len(s.Strategies))]
		g := &s.Groups[rng.IntN(len(s.Groups))]
		switch rng.IntN(6) {
		case 0:
			if o := j.options.Shardings; len(o) == 0 {
				y.Sharding = costmodel.Shardings()[rng.IntN(4)]
			}
		case 1:
			if j.options.Checkpoint == "" || j.options.Checkpoint == "auto" {
				y.Checkpoint, y.Selective = !y.Checkpoint && !y.Selective, y.Checkpoint && j.model.Selects()
			}
		case 2:
			y.Tensor = []int{0, 1, 2, 4}[rng.IntN(4)]
		case 3: // a layer to the neighbour
			if i := rng.IntN(len(q.Stages)); i+1 < len(q.Stages) {
				a, b := &q.Stages[i], &q.Stages[i+1]
				if len(b.Strategies) > 1 && rng.IntN(2) == 0 {
					a.To, b.From = a.To+1, b.From+1
					a.Strategies, b.Strategies = append(a.Strategies, b.Strategies[0]), b.Strategies[1:]
				} else if n := len(a.Strategies); n > 1 {
					a.To, b.From = a.To-1, b.From-1
					b.Strategies = append([]Strategy{a.Strategies[n-1]}, b.Strategies...)
					a.Strategies = a.Strategies[:n-1]
				}
			}
		case 4: // a sample to another replica
			other := &s.Groups[rng.IntN(len(s.Groups))]
			g.MicroBatches[rng.IntN(len(g.MicroBatches))]--
			other.MicroBatches[rng.IntN(len(other.MicroBatches))]++
		case 5: // another tensor degree, shares joined or halved
			switch n := len(g.MicroBatches); {
			case rng.IntN(2) == 0 && n%2 == 0:
				g.Tensor *= 2
				for i := range n / 2 {
					g.MicroBatches[i] = g.MicroBatches[2*i] + g.MicroBatches[2*i+1]
				}
				g.MicroBatches = g.MicroBatches[:n/2]
			case g.Tensor > 1:
				g.Tensor /= 2
				var halves []int
				for _, b := range g.MicroBatches {
					halves = append(halves, b-b/2, b/2)
				}
				g.MicroBatches = halves
			}
		}
	}
	return &q
}
