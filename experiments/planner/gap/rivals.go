package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"evenkeel/planner"
)

// rival looks for a quicker plan by random local search through what plan check computes (planner.Job.Predict), written apart from the
// search: single random edits, and a threshold that falls with time (threshold accepting: Dueck and Scheuer, 1990).
type rival struct {
	job     *planner.Job
	rng     *rand.Rand
	classes []class
}

func newRival(j *planner.Job, seed uint64) *rival {
	r := &rival{job: j, rng: rand.New(rand.NewPCG(seed, 33))}
	for _, k := range j.Classes() {
		r.classes = append(r.classes, class{k.Device, k.Count, k.PerMachine})
	}
	return r
}

type class struct {
	device     string
	count, per int
}

// sketch is a plan whose groups take devices in the order of the stages.
type sketch struct {
	global, micro int
	stages        []sketchStage
}

type sketchStage struct {
	layers int
	groups []sketchGroup
	each   []planner.Strategy // of its layers; From and To are not used
}

type sketchGroup struct {
	class, count, tensor int
	samples              int // of a micro-batch
}

func (s *sketch) clone() *sketch {
	c := *s
	c.stages = slices.Clone(s.stages)
	for i := range c.stages {
		c.stages[i].groups, c.stages[i].each = slices.Clone(c.stages[i].groups), slices.Clone(c.stages[i].each)
	}
	return &c
}

// read is a plan as a sketch.
func (r *rival) read(p *planner.Plan) *sketch {
	s := &sketch{global: p.GlobalBatch, micro: p.MicroBatch}
	for _, stage := range p.Stages {
		x := sketchStage{layers: stage.To - stage.From}
		for _, g := range stage.Groups {
			k := slices.IndexFunc(r.classes, func(c class) bool { return c.device == g.Device })
			sum := 0
			for _, n := range g.MicroBatches {
				sum += n
			}
			x.groups = append(x.groups, sketchGroup{k, g.Count, g.Tensor, sum})
		}
		for _, y := range stage.Strategies {
			x.each = append(x.each, slices.Repeat([]planner.Strategy{y}, y.To-y.From)...)
		}
		s.stages = append(s.stages, x)
	}
	return s
}

// plan gives groups devices; nil: there are too few.
func (r *rival) plan(s *sketch) *planner.Plan {
	p := &planner.Plan{Version: planner.Version, GlobalBatch: s.global, MicroBatch: s.micro}
	free, layer := make([]int, len(r.classes)), 0
	for _, x := range s.stages {
		stage := planner.Stage{From: layer, To: layer + x.layers}
		for _, g := range x.groups {
			k := r.classes[g.class]
			align := g.tensor
			for _, y := range x.each {
				align = max(align, y.Tensor)
			}
			first := (free[g.class] + align - 1) / align * align
			if left := k.per - first%k.per; g.count <= k.per && g.count > left {
				first += left // within a machine
			}
			if first+g.count > k.count {
				return nil
			}
			free[g.class] = first + g.count
			n := g.count / g.tensor
			shares := make([]int, n)
			for i := range shares {
				shares[i] = (g.samples + n - 1 - i) / n
			}
			stage.Groups = append(stage.Groups, planner.Group{Devices: planner.Devices{Device: k.device, First: first, Count: g.count}, Tensor: g.tensor, MicroBatches: shares})
		}
		for _, y := range x.each {
			y.From, y.To = layer, layer+1
			stage.Strategies = append(stage.Strategies, y)
			layer++
		}
		p.Stages = append(p.Stages, stage)
	}
	return p
}

// price is the simulated time of a sketch; +Inf: it is refused.
func (r *rival) price(s *sketch) float64 {
	p := r.plan(s)
	if p == nil {
		return math.Inf(1)
	}
	got, err := r.job.Predict(p)
	if err != nil {
		return math.Inf(1)
	}
	return got.Simulated
}

// run is the quickest time found within a duration from plans on.
func (r *rival) run(from []*planner.Plan, within time.Duration) float64 {
	best := math.Inf(1)
	var starts []*sketch
	for _, p := range from {
		if p.GlobalBatch == from[0].GlobalBatch && len(starts) < 4 {
			starts = append(starts, r.read(p))
		}
	}
	begun := time.Now()
	for i, s := range starts {
		now := r.price(s)
		best = min(best, now)
		from, to := within*time.Duration(i)/time.Duration(len(starts)), within*time.Duration(i+1)/time.Duration(len(starts))
		for t := time.Since(begun); t < to; t = time.Since(begun) {
			threshold := 0.02 * (1 - float64(t-from)/float64(to-from))
			next := s.clone()
			for range 1 + r.rng.IntN(3) {
				r.edit(next)
			}
			if x := r.price(next); x < now*(1+threshold) {
				s, now = next, x
				best = min(best, x)
			}
		}
	}
	return best
}

// edit changes a sketch at one place.
func (r *rival) edit(s *sketch) {
	i := r.rng.IntN(len(s.stages))
	x := &s.stages[i]
	g := &x.groups[r.rng.IntN(len(x.groups))]
	switch r.rng.IntN(9) {
	case 0: // layers to a neighbour
		r.shift(s, i)
	case 1: // devices from a stage to another, or in or out of use
		r.devices(s, x, g)
	case 2:
		for _, n := range r.rng.Perm(4) {
			if t := 1 << n; t != g.tensor && g.count%t == 0 {
				g.tensor = t
				break
			}
		}
	case 3, 4:
		r.strategies(x)
	case 5: // another micro-batch
		n := []int{2, 3, 4}[r.rng.IntN(3)]
		if r.rng.IntN(2) == 0 && s.micro%n == 0 {
			s.micro /= n
		} else if s.global%(s.micro*n) == 0 {
			s.micro *= n
		}
		for k := range s.stages {
			s.stages[k].deal(s.micro)
		}
	case 6: // samples to another group
		o := &x.groups[r.rng.IntN(len(x.groups))]
		n := 1 + r.rng.IntN(1+g.samples/4)
		g.samples, o.samples = g.samples-n, o.samples+n
	case 7:
		r.split(s, i)
	default:
		s.join(i)
	}
}

// strategies changes a part of those of some layers.
func (r *rival) strategies(x *sketchStage) {
	from := r.rng.IntN(x.layers)
	to := from + 1 + r.rng.IntN(x.layers-from)
	y := x.each[from]
	switch r.rng.IntN(3) {
	case 0:
		y.Checkpoint = !y.Checkpoint
	case 1:
		y.Sharding = []planner.Sharding{planner.Replicated, planner.Optimizer, planner.Gradients, planner.Full}[r.rng.IntN(4)]
	default:
		y.Tensor = []int{0, 1, 2, 4, 8}[r.rng.IntN(5)]
	}
	for l := from; l < to; l++ {
		x.each[l] = y
	}
}

// split cuts a stage of one group in two.
func (r *rival) split(s *sketch, i int) {
	x := s.stages[i]
	g := x.groups[0]
	if x.layers == 1 || g.count == 1 || len(x.groups) > 1 {
		return
	}
	n, half := 1+r.rng.IntN(x.layers-1), 1+r.rng.IntN(g.count-1)
	a := sketchStage{n, []sketchGroup{{g.class, half, 1, 0}}, slices.Clone(x.each[:n])}
	b := sketchStage{x.layers - n, []sketchGroup{{g.class, g.count - half, 1, 0}}, slices.Clone(x.each[n:])}
	for _, y := range []*sketchStage{&a, &b} {
		for y.groups[0].count%(2*y.groups[0].tensor) == 0 && y.groups[0].tensor < g.tensor {
			y.groups[0].tensor *= 2
		}
		y.deal(s.micro)
	}
	s.stages = slices.Replace(s.stages, i, i+1, a, b)
}

// join makes one stage of two.
func (s *sketch) join(i int) {
	if i+1 == len(s.stages) {
		return
	}
	x, b := &s.stages[i], s.stages[i+1]
	x.layers += b.layers
	x.each = append(x.each, b.each...)
	for _, g := range b.groups {
		x.add(g.class, g.count, g.tensor)
	}
	x.deal(s.micro)
	s.stages = slices.Delete(s.stages, i+1, i+2)
}

// shift moves layers over the boundary after a stage.
func (r *rival) shift(s *sketch, i int) {
	if i+1 == len(s.stages) {
		return
	}
	a, b := &s.stages[i], &s.stages[i+1]
	if n := 1 + r.rng.IntN(3); r.rng.IntN(2) == 0 && b.layers > n {
		a.layers, b.layers = a.layers+n, b.layers-n
		a.each, b.each = append(a.each, b.each[:n]...), b.each[n:]
	} else if a.layers > n {
		a.layers, b.layers = a.layers-n, b.layers+n
		b.each = append(slices.Clone(a.each[a.layers:]), b.each...)
		a.each = a.each[:a.layers]
	}
}

// devices moves some of a group's to another stage, or of those unused to the group, or out of use.
func (r *rival) devices(s *sketch, x *sketchStage, g *sketchGroup) {
	n := min(g.count, 1<<r.rng.IntN(4))
	switch r.rng.IntN(4) {
	case 0:
		k := r.rng.IntN(len(r.classes))
		x.add(k, 1<<r.rng.IntN(4), 1)
	case 1:
		x.remove(g, n)
	default:
		to, c, t := &s.stages[r.rng.IntN(len(s.stages))], g.class, g.tensor
		x.remove(g, n)
		to.add(c, n, t)
		to.deal(s.micro)
	}
	x.deal(s.micro)
}

func (x *sketchStage) add(class, count, tensor int) {
	for i := range x.groups {
		if x.groups[i].class == class {
			x.groups[i].count += count
			x.groups[i].fit()
			return
		}
	}
	x.groups = append(x.groups, sketchGroup{class, count, tensor, 0})
	x.groups[len(x.groups)-1].fit()
}

// remove takes devices away, unless the stage would have none.
func (x *sketchStage) remove(g *sketchGroup, count int) {
	if g.count -= count; g.count > 0 {
		g.fit()
		return
	}
	if len(x.groups) == 1 {
		g.count += count
		return
	}
	x.groups = slices.DeleteFunc(x.groups, func(g sketchGroup) bool { return g.count == 0 })
}

func (g *sketchGroup) fit() {
	for g.count%g.tensor != 0 {
		g.tensor /= 2
	}
}

// deal divides a micro-batch by the devices of each group.
func (x *sketchStage) deal(micro int) {
	devices, left := 0, micro
	for _, g := range x.groups {
		devices += g.count
	}
	for i := range x.groups {
		g := &x.groups[i]
		g.samples = micro * g.count / devices
		left -= g.samples
	}
	x.groups[0].samples += left
}

// degrees is the quickest time that coordinate descent over the tensor degrees of layers finds from a plan on.
func (r *rival) degrees(p *planner.Plan) float64 {
	s := r.read(p)
	best := r.price(s)
	for helped := true; helped; {
		helped = false
		for i := range s.stages {
			for l := range s.stages[i].each {
				for _, t := range []int{0, 1, 2, 4, 8} {
					was := s.stages[i].each[l].Tensor
					s.stages[i].each[l].Tensor = t
					if x := r.price(s); x < best*(1-1e-9) {
						best, helped = x, true
					} else {
						s.stages[i].each[l].Tensor = was
					}
				}
			}
		}
	}
	return best
}
