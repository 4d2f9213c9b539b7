package planner_test

import "slices"

// context is how many devices a unit has.
func (c *twinCase) context() float64 { return float64(max(1, c.Plan.Context)) }

// inUnits is the case with units for devices.
func (c *twinCase) inUnits() *twinCase {
	of := max(1, c.Plan.Context)
	u := *c
	u.Cluster.Classes = slices.Clone(c.Cluster.Classes)
	for i := range u.Cluster.Classes {
		k := &u.Cluster.Classes[i]
		k.Count, k.PerMachine = k.Count/of, k.PerMachine/of
	}
	u.Plan.Stages = slices.Clone(c.Plan.Stages)
	for i := range u.Plan.Stages {
		s := &u.Plan.Stages[i]
		s.Groups = slices.Clone(s.Groups)
		for k := range s.Groups {
			s.Groups[k].First /= of
			s.Groups[k].Count /= of
		}
	}
	return &u
}

// around is once around a unit.
func (c *twinCase) around(g *twinGroup, l *twinLayer, t, k int) float64 {
	if c.Plan.Context <= 1 || l.Context == 0 {
		return 0
	}
	c.seen["ring of a context"]++
	return (c.context() - 1) * c.time(c.Cluster.inside(g.Class), l.Context*float64(k)/float64(t)/c.context())
}

// divides says whether replicas divide the layer's experts.
func (c *twinCase) divides(l *twinLayer) bool { return c.Plan.Experts > 1 && l.Experts > 0 }

// pieces are the layer's parts that are held by as many devices each.
func (c *twinCase) pieces(s *twinStage, g *twinGroup, layer, n, t int) []twinPiece {
	l := &c.Layers[layer]
	p, once := l.Parameters, 1.0
	if l.Tied > 0 && s.alone { // held once
		p -= l.Tied
		once = p / l.Parameters
	}
	holders := float64(n) * c.context()
	whole := func(x float64) float64 { return c.gather(s, g, n, t, x) }
	if !c.divides(l) {
		return []twinPiece{{p / float64(t), once, holders, whole}}
	}
	q, e := l.ExpertParameters, float64(c.Plan.Experts)
	experts := func(x float64) float64 { return c.gatherExperts(g, n, t, x) }
	return []twinPiece{
		{(p - q) / float64(t), once * (p - q) / p, holders, whole},
		{q / e / float64(t), once * q / p / e, holders / e, experts},
	}
}

// gatherExperts is the time of an all-gather or a reduce-scatter of x bytes among those that have the same experts.
func (c *twinCase) gatherExperts(g *twinGroup, n, t int, x float64) float64 {
	e := c.Plan.Experts
	same := float64(n / e)
	machines, most := c.Cluster.place(g)
	switch {
	case same == 1:
		c.seen["experts, one block"]++
		return 0
	case machines == 1:
		c.seen["experts, blocks in a machine"]++
		return (same - 1) * c.time(c.Cluster.inside(g.Class), x/same)
	}
	a := most / t // replicas in a machine
	h, m := 1.0, same
	whole := x * float64(t) * float64(min(e, a))
	if a >= e {
		h, m = float64(a/e), float64(machines)
		c.seen["experts, blocks within machines"]++
	} else {
		c.seen["experts, blocks of whole machines"]++
	}
	out := c.Cluster.between(g.Class, g.Class)
	ring := (same - 1) * c.time(out, whole/same)
	hierarchy := (h-1)*c.time(c.Cluster.inside(g.Class), x/h) + (m-1)*c.time(out, whole/m)
	if ring < hierarchy {
		c.seen["experts, ring"]++
	} else if h > 1 {
		c.seen["experts, hierarchy"]++
	}
	return min(ring, hierarchy)
}

// toAll is the time in which samples get to their experts, or come back.
func (c *twinCase) toAll(g *twinGroup, l *twinLayer, t, k int) float64 {
	e, per := c.Plan.Experts, c.Cluster.Classes[g.Class].PerMachine
	inside, z := c.Cluster.inside(g.Class), l.ExpertBytes*float64(k)/float64(t)/float64(e)
	if machines, _ := c.Cluster.place(g); machines == 1 || e*t <= per {
		c.seen["experts, sent in a machine"]++
		return float64(e-1)*c.time(inside, z) + c.start(inside)
	}
	c.seen["experts, sent over machines"]++
	replicas := float64(per) / float64(t) // of a machine
	out := c.Cluster.between(g.Class, g.Class)
	return (replicas-1)*c.time(inside, z) + (float64(e*t)/float64(per)-1)*c.time(out, float64(per)*replicas*z) + c.start(out)
}

// legal says whether the devices of the plan can work together.
func (c *twinCase) legal() bool { return c.fault() == "" }

// fault is why the devices of the plan cannot work together; "": they can.
func (c *twinCase) fault() string {
	of, e := max(1, c.Plan.Context), max(1, c.Plan.Experts)
	if of > 1 && e > 1 {
		return "context with experts"
	}
	if of > 1 && !slices.ContainsFunc(c.Layers, func(l twinLayer) bool { return l.Context > 0 }) {
		return "context of nothing"
	}
	if e > 1 {
		most := slices.MaxFunc(c.Cluster.Classes, func(a, b twinClass) int { return a.Count - b.Count }).Count
		if e > most || !slices.ContainsFunc(c.Layers, func(l twinLayer) bool { return l.Experts > 0 }) {
			return "experts of nothing"
		}
		if slices.ContainsFunc(c.Layers, func(l twinLayer) bool { return l.Experts%e != 0 }) {
			return "experts not divided"
		}
	}
	for _, s := range c.Plan.Stages {
		for _, g := range s.Groups {
			if g.First%of != 0 || g.Count%of != 0 {
				return "units of parts"
			}
			if c.Cluster.Classes[g.Class].PerMachine%of != 0 {
				return "machines not of units"
			}
		}
	}
	u := c.inUnits()
	for i := range u.Plan.Stages {
		s := &u.Plan.Stages[i]
		for k := range s.Groups {
			g := &s.Groups[k]
			if why := u.placed(s, g, g.Tensor); why != "" {
				return why
			}
			per := u.Cluster.Classes[g.Class].PerMachine
			if g.Tensor > per && !slices.ContainsFunc(c.Layers, func(l twinLayer) bool { return len(l.Runs[twinKey{g.Class, g.Tensor, g.Tensor / per}]) > 0 }) {
				return "a degree over machines that no layer was measured at"
			}
			for _, st := range s.Strategies {
				if st.Tensor > 0 && st.Tensor <= per && per%st.Tensor != 0 {
					return "a degree that does not divide a machine"
				}
				if why := u.placed(s, g, max(1, st.Tensor)); why != "" {
					return why
				}
			}
		}
		for layer := s.From; layer < s.To; layer++ {
			if u.divides(&u.Layers[layer]) {
				if why := u.blocks(s, s.Strategies[layer-s.From]); why != "" {
					return why
				}
			}
		}
	}
	return ""
}

// placed is why replicas of a degree cannot lie on the group.
func (c *twinCase) placed(s *twinStage, g *twinGroup, t int) string {
	per := c.Cluster.Classes[g.Class].PerMachine
	if t > per {
		switch {
		case c.Plan.Context > 1:
			return "context over machines"
		case len(s.Groups) > 1:
			return "a degree over machines beside another group"
		case t%per != 0 || g.First%per != 0:
			return "a degree over parts of machines"
		}
		return ""
	}
	for first := g.First; first < g.First+g.Count; first += t {
		if first/per != (first+t-1)/per {
			return "replicas across machines"
		}
	}
	return ""
}

// blocks is why replicas of the stage cannot divide the experts of a layer.
func (c *twinCase) blocks(s *twinStage, st twinStrategy) string {
	g := &s.Groups[0]
	n, t, _ := c.replicas(s, g, st)
	per, e := c.Cluster.Classes[g.Class].PerMachine, c.Plan.Experts
	machines, _ := c.Cluster.place(g)
	switch {
	case len(s.Groups) > 1:
		return "experts over groups"
	case t > per:
		return "experts of a degree over machines"
	case n%e != 0:
		return "experts over other replicas"
	case machines == 1:
		return ""
	case per%t != 0:
		return "experts of a degree that does not divide a machine"
	}
	for first := g.First; first < g.First+g.Count; first += e * t {
		last := first + e*t - 1
		if whole := first%per == 0 && (last+1)%per == 0; !whole && first/per != last/per {
			return "experts across machines"
		}
	}
	return ""
}
