package refine

import (
	"math"
	"slices"

	"evenkeel/planner/costmodel"
)

// draft is a plan whose groups have a number of devices but no particular ones. Its shares follow from the rest.
type draft struct {
	micro  int
	upward bool // stages take devices of a class from its first on, not from its last
	stages []part
	over   float64 // by how much devices' memory is too small, in all, as a share
	price  float64 // seconds of an iteration, simulated; +Inf: it is not a plan
}

// part is a stage of a draft.
type part struct {
	to         int // the layer after its last
	groups     []team
	strategies []costmodel.Strategy // of its layers
}

// team is a device group of a part: replicas of tensor devices each. It takes so many samples more than would finish first.
type team struct{ class, replicas, tensor, more int }

func (g team) devices() int { return g.replicas * g.tensor }

// clone copies a draft, but shares the groups and strategies of its stages. Call own before changing those of a stage.
func (d *draft) clone() *draft {
	return &draft{d.micro, d.upward, slices.Clone(d.stages), d.over, d.price}
}

// own returns a stage after copying its groups and strategies.
func (d *draft) own(stage int) *part {
	s := &d.stages[stage]
	s.groups, s.strategies = slices.Clone(s.groups), slices.Clone(s.strategies)
	return s
}

func (d *draft) from(stage int) int {
	if stage == 0 {
		return 0
	}
	return d.stages[stage-1].to
}

// draft turns a plan into a draft and prices it. The price differs from that of the plan if shares or places of devices differ.
func (r *refiner) draft(p *Plan) *draft {
	d := &draft{micro: p.MicroBatch}
	for _, s := range p.Stages {
		stage := part{to: s.To, strategies: s.Strategies}
		for _, g := range s.Groups {
			stage.groups = append(stage.groups, team{g.Class, g.Replicas, g.Tensor, 0})
		}
		d.stages = append(d.stages, stage)
	}
	r.value(d)
	up := d.clone()
	up.upward = true
	if r.value(up); up.beats(d) {
		return up
	}
	return d
}

// beats says whether a draft is quicker than another or, if one does not fit memory, nearer to fitting.
func (d *draft) beats(o *draft) bool {
	if d.over != o.over {
		return d.over < o.over
	}
	return d.price < o.price*(1-1e-9)
}

func (r *refiner) value(d *draft) {
	d.price, d.over = math.Inf(1), math.Inf(1)
	stages, ok := r.place(d)
	if !ok {
		return
	}
	cost, err := r.pricer.Price(r.batch, d.micro, stages)
	if err != nil {
		return
	}
	d.over = 0
	for _, s := range cost.Stages {
		for _, u := range s.Memory {
			d.over += max(0, (u.Peak()-u.Limit)/u.Limit)
		}
	}
	if d.price = cost.Seconds; len(stages) > simulatedPasses/(r.batch/d.micro) {
		return
	}
	if r.model.IsBeside() {
		_, d.price = cost.Ahead(r.batch / d.micro)
	} else if seconds, err := cost.Simulated(r.batch / d.micro); err == nil {
		d.price = seconds
	}
}

// simulatedPasses bounds stages times micro-batches of drafts that are simulated; others have their price by formula.
const simulatedPasses = 1 << 16

// place gives every group its devices, in the order of the stages, and its shares; false: there are too few devices.
func (r *refiner) place(d *draft) ([]costmodel.Stage, bool) {
	stages := make([]costmodel.Stage, len(d.stages))
	free := slices.Clone(r.pool) // of each class: the devices before this number are free
	for n := range d.stages {
		i := n
		if !d.upward {
			i = len(d.stages) - 1 - n
		}
		s := &d.stages[i]
		stages[i] = costmodel.Stage{From: d.from(i), To: s.to, Strategies: s.strategies}
		for _, g := range s.groups {
			count := g.replicas * g.tensor
			first := free[g.class] - count
			if first < 0 {
				return nil, false
			}
			first -= first % s.align(g) // every replica lies within a machine
			free[g.class] = first
			stages[i].Groups = append(stages[i].Groups, costmodel.Group{Class: g.class, First: free[g.class], Replicas: g.replicas, Tensor: g.tensor})
		}
		if !r.deal(d, i, stages[i].Groups) {
			return nil, false
		}
	}
	return stages, true
}

// align is a multiple for the number of the group's first device, so that the replicas of every layer lie within machines.
func (s *part) align(g team) int {
	a := g.tensor
	for _, y := range s.strategies {
		if y.Tensor > 0 && a%y.Tensor != 0 {
			a *= y.Tensor // a common multiple
		}
	}
	return a
}

// deal divides the micro-batch over the replicas of a stage. Each sample goes to the group that would finish it first. False: it
// is impossible.
func (r *refiner) deal(d *draft, stage int, groups []costmodel.Group) bool {
	replicas := 0
	for i := range groups {
		replicas += groups[i].Replicas
	}
	if replicas > d.micro {
		return false
	}
	if len(groups) == 1 {
		groups[0].Shares = costmodel.Even(d.micro, replicas)
		return true
	}
	s := &d.stages[stage]
	checkpointed := 0.0
	for _, y := range s.strategies {
		if y.Checkpoint {
			checkpointed += 1 / float64(len(s.strategies))
		}
	}
	given, next := make([]int, len(groups)), make([]float64, len(groups)) // samples, and seconds with one more
	raise := func(g int) {
		seconds, ok := r.times.Stage(groups[g].Class, groups[g].Tensor, given[g]/groups[g].Replicas+1, d.from(stage), s.to, checkpointed)
		if next[g] = seconds; !ok {
			next[g] = math.Inf(1)
		}
	}
	left := d.micro - replicas
	for g := range groups {
		given[g] = groups[g].Replicas
		raise(g)
	}
	for left > 0 {
		g := slices.Index(next, slices.Min(next))
		if math.IsInf(next[g], 1) {
			return false
		}
		level := min(left, groups[g].Replicas-given[g]%groups[g].Replicas) // one sample more on each replica costs the same
		given[g] += level
		left -= level
		raise(g)
	}
	for g := range groups {
		if given[g] += s.groups[g].more; given[g] < groups[g].Replicas {
			return false
		}
		groups[g].Shares = costmodel.Even(given[g], groups[g].Replicas)
	}
	return true
}
