package planner_test

// start is what a collective takes beside its messages.
func (c *twinCase) start(path []twinLevel) (s float64) {
	for _, l := range path {
		s = max(s, l.Start)
	}
	return c.Options.Links * s
}

// startOf is that of a collective within a stage.
func (c *twinCase) startOf(s *twinStage) (longest float64) {
	if machines, _ := c.Cluster.place(&s.Groups[0]); len(s.Groups) == 1 && machines == 1 {
		return c.start(c.Cluster.inside(s.Groups[0].Class))
	}
	for _, a := range s.Groups {
		for _, b := range s.Groups {
			longest = max(longest, c.start(c.Cluster.between(a.Class, b.Class)))
		}
	}
	if longest > 0 {
		c.see("start")
	}
	return longest
}

// gather is the time of an all-gather or a reduce-scatter of x bytes among n replicas.
func (c *twinCase) gather(s *twinStage, g *twinGroup, n, t int, x float64) float64 {
	holders := float64(n) * c.context()
	if holders == 1 || x == 0 {
		return 0
	}
	if machines, _ := c.Cluster.place(g); len(s.Groups) == 1 && machines == 1 {
		c.see("gather in a machine")
		return (holders - 1) * c.time(c.Cluster.inside(g.Class), x/holders)
	}
	whole := x * float64(min(t, c.Cluster.Classes[g.Class].PerMachine))
	var out []twinLevel
	m, in := 0.0, 0.0
	for i, a := range s.Groups {
		for _, b := range s.Groups[i:] {
			if path := c.Cluster.between(a.Class, b.Class); out == nil || c.time(path, whole) > c.time(out, whole) {
				out = path
			}
		}
		tj := a.Tensor
		if len(s.Groups) == 1 {
			tj = t
		}
		machines, most := c.Cluster.place(&s.Groups[i])
		if per := c.Cluster.Classes[a.Class].PerMachine; tj > per {
			m += float64(machines) / float64(tj/per) // and nobody else in a machine has the same
			c.seen["gather of replicas over machines"]++
			continue
		}
		m += float64(machines)
		h := c.context() * float64(most) / float64(tj)
		in = max(in, (h-1)*c.time(c.Cluster.inside(a.Class), whole/float64(tj)/h))
	}
	ring := (holders - 1) * c.time(out, whole/holders)
	hierarchy := in + (m-1)*c.time(out, whole/m)
	way := "hierarchy"
	if ring < hierarchy {
		way = "ring"
	}
	c.see(way)
	if len(s.Groups) > 1 {
		c.see("several groups")
	}
	return min(ring, hierarchy)
}

type twinLayerPrice struct {
	twinPrice
	states, kept, whole, working float64
}

// layer prices a layer on a group.
func (c *twinCase) layer(s *twinStage, g *twinGroup, layer int) (twinLayerPrice, bool) {
	st, l, class := s.Strategies[layer-s.From], &c.Layers[layer], &c.Cluster.Classes[g.Class]
	n, t, k := c.replicas(s, g, st)
	key := twinKey{g.Class, t, max(1, t/class.PerMachine)}
	run, ok := l.run(key, k)
	if !ok {
		return twinLayerPrice{}, false
	}
	o, in := &c.Options, 0.0
	if layer > 0 {
		in = c.Layers[layer-1].Output
	}
	activation, kept, samples := o.Activations*run.Activation, in, float64(k)/c.context()
	if o.Sequence && t > 1 {
		activation -= o.Activations * run.Sequence
		kept /= float64(t)
		c.count("sequence", st)
	}
	var p twinLayerPrice
	slow := class.Slow * o.compute(class.Device)
	p.Forward, p.Backward = run.Forward*slow/c.context(), run.Backward*slow/c.context()
	p.kept, p.working = activation*samples, o.Working*(in+l.Output)*samples
	p.whole, p.states = p.kept, run.Fixed
	if st.Checkpoint {
		p.Again = p.Forward
		p.working += p.kept
		p.kept = kept * samples
	}
	if st.Selective {
		freed := o.Activations * run.Freed * samples
		p.Again, p.kept, p.working = run.Core*slow/c.context(), p.kept-freed, p.working+freed
		c.seen["selective"]++
	}
	pieces := c.pieces(s, g, layer, n, t)
	for _, x := range pieces {
		held, share := o.Gradients*o.G, x.share
		states := o.W + held + o.O
		switch st.Sharding {
		case "optimizer":
			states = o.W + held + o.O/x.holders
		case "gradients":
			states = o.W + (held+o.O)/x.holders
			p.working += x.parameters * o.G
		case "full":
			states /= x.holders
			p.working += x.parameters * (o.W + o.G)
		}
		if st.Sharding != "none" {
			share /= x.holders
		}
		p.states += x.parameters * states
		p.Update += run.Update * slow * share
	}
	c.exchange(&p, s, st, pieces, c.around(g, l, t, k))
	if c.divides(l) {
		all := 2 * c.toAll(g, l, t, k) // with their starts
		p.gatherForward += all
		p.gatherBackward += all
		if st.Checkpoint {
			p.gatherBackward += all
		}
		c.count("experts", st)
	}
	p.Gather = p.gatherForward + p.gatherBackward
	if key.Machines > 1 {
		c.count("tensor over machines", st)
	}
	return p, true
}

// twinPiece is a part of a layer: the parameters that a device has of it, its share of the update, and how many devices have the same.
type twinPiece struct {
	parameters, share, holders float64
	gather                     func(x float64) float64
}

// exchange adds what replicas tell each other, and what goes around in units: once takes so long.
func (c *twinCase) exchange(p *twinLayerPrice, s *twinStage, st twinStrategy, pieces []twinPiece, ring float64) {
	o := &c.Options
	start := 0.0
	for _, x := range pieces {
		if x.holders > 1 && x.parameters > 0 {
			start += c.startOf(s)
		}
	}
	gather := func(bytes float64) (sum float64) {
		for _, x := range pieces {
			sum += x.gather(x.parameters * bytes)
		}
		return sum + start
	}
	back, rings := p.Backward+p.Again, 2*ring
	if st.Checkpoint || st.Selective {
		rings += ring
	}
	if c.Plan.Context > 1 {
		c.count("context", st)
	}
	ahead, behind := ring, rings // what goes beside the passes
	switch st.Sharding {
	case "gradients":
		behind += gather(o.G)
		p.Sync = gather(o.W)
	case "full":
		ahead += gather(o.W)
		behind += gather(o.W) + gather(o.G)
	default:
		all := 2 * gather(o.G)
		if st.Sharding == "none" {
			all -= start // one all-reduce
		}
		p.Sync = c.together(back, all) - back
		if o.DeepSpeed && (!s.alone || st.Sharding == "none") {
			p.Sync = all
			c.seen["late"]++
		}
	}
	p.gatherForward = c.together(p.Forward, ahead) - p.Forward
	p.gatherBackward = c.together(back, behind) - back
}

// see counts a way that the case is priced, and how often under a spread.
func (c *twinCase) see(what string) {
	c.seen[what]++
	if c.Plan.Context > 1 {
		c.seen[what+", context"]++
	}
	if c.Plan.Experts > 1 {
		c.seen[what+", experts"]++
	}
	for _, s := range c.Plan.Stages {
		if g := &s.Groups[0]; g.Tensor > c.Cluster.Classes[g.Class].PerMachine {
			c.seen[what+", tensor over machines"]++
			break
		}
	}
}

// count counts a way that a layer is trained, by its strategy.
func (c *twinCase) count(what string, st twinStrategy) {
	how := "none"
	if st.Checkpoint {
		how = "checkpoint"
	} else if st.Selective {
		how = "selective"
	}
	c.seen[what+", "+st.Sharding]++
	c.seen[what+", recomputed "+how]++
	if st.Tensor > 0 {
		c.seen[what+", a degree of its own"]++
	}
}
