package planner_test

// The twin is the planner's cost model a second time. It was written from docs/reference/cost-model.md and the pages of the
// plan, layer profile and cluster files alone, and shares no code with the planner: what the two do not agree in is a fault
// of the planner or of the page.

// twinPrediction has the names of `predicted` in the plan file.
type twinPrediction struct {
	Seconds   float64     `json:"seconds"`
	Simulated float64     `json:"simulated"`
	Idle      float64     `json:"idle"`
	Stages    []twinPrice `json:"stages"`
}

type twinPrice struct {
	Forward  float64      `json:"forward"`
	Backward float64      `json:"backward"`
	Again    float64      `json:"again"`
	Gather   float64      `json:"gather"`
	Convert  float64      `json:"convert"`
	Send     float64      `json:"send"`
	Sync     float64      `json:"sync"`
	Update   float64      `json:"update"`
	Memory   []twinMemory `json:"memory"`

	gatherForward, gatherBackward float64
	devices                       int
}

// add adds what a layer takes to what those before it take.
func (p *twinPrice) add(layer *twinPrice) {
	p.Forward += layer.Forward
	p.Backward += layer.Backward
	p.Again += layer.Again
	p.gatherForward += layer.gatherForward
	p.gatherBackward += layer.gatherBackward
	p.Gather += layer.Gather
	p.Sync += layer.Sync
	p.Update += layer.Update
}

type twinMemory struct {
	Device      string  `json:"device"`
	States      float64 `json:"states"`
	Activations float64 `json:"activations"`
	Working     float64 `json:"working"`
	Limit       float64 `json:"limit"`

	kept, whole float64 // activations of a micro-batch
}

// together is the time of x of compute and y of communication that begin together.
func (c *twinCase) together(x, y float64) float64 {
	o := &c.Options
	if o.Off {
		return x + y
	}
	compute, communication := o.Compute*x, o.Communication*y
	if compute > communication {
		c.seen["compute lasts longer"]++
		return communication + x - communication/o.Compute
	}
	c.seen["communication lasts longer"]++
	return compute + y - compute/o.Communication
}

// replicas are those of a layer, and its tensor degree and largest share on a group.
func (c *twinCase) replicas(s *twinStage, g *twinGroup, st twinStrategy) (n, t, k int) {
	if st.Tensor > 0 {
		n = g.Count / st.Tensor
		return n, st.Tensor, (c.Plan.MicroBatch + n - 1) / n
	}
	for _, o := range s.Groups {
		n += o.Count / o.Tensor
	}
	for _, share := range g.Shares {
		k = max(k, share)
	}
	return n, g.Tensor, k
}

func (p *twinPrice) pass() float64 { return p.Forward + p.Backward + p.Again + p.Gather }
func (p *twinPrice) step() float64 { return p.pass() + p.Convert }
func (p *twinPrice) once() float64 { return p.Sync + p.Update }

// stage prices a stage; false where a layer has no price.
func (c *twinCase) stage(i int) (twinPrice, bool) {
	s := &c.Plan.Stages[i]
	s.alone = len(c.Plan.Stages) == 1
	slowestGroup, onceGroup := 0, 0
	var slowest, once twinPrice
	var memory []twinMemory
	flight := float64(min(len(c.Plan.Stages)-i, c.Plan.GlobalBatch/c.Plan.MicroBatch))
	devices := 0
	for j := range s.Groups {
		g := &s.Groups[j]
		class := &c.Cluster.Classes[g.Class]
		var sum twinPrice
		use := twinMemory{Device: class.Device, Limit: c.Options.Memory * class.Memory / (1 + c.Options.Margin)}
		for layer := s.From; layer < s.To; layer++ {
			p, ok := c.layer(s, g, layer)
			if !ok {
				return twinPrice{}, false
			}
			sum.add(&p.twinPrice)
			use.States += p.states
			use.Activations += flight * p.kept
			use.kept += p.kept
			use.whole += p.whole
			use.Working = max(use.Working, p.working)
		}
		use.Working += c.Options.Reserve + c.Options.beside(class.Memory)
		memory = append(memory, use)
		devices += g.Count
		if j == 0 || sum.pass() > slowest.pass() {
			slowest, slowestGroup = sum, j
		}
		if j == 0 || sum.once() > once.once() {
			once, onceGroup = sum, j
		}
	}
	if slowestGroup != onceGroup {
		c.seen["one group steps slowest, another exchanges slowest"]++
	}
	slowest.Sync, slowest.Update, slowest.Memory, slowest.devices = once.Sync, once.Update, memory, devices
	slowest.Convert, slowest.Send = c.convert(s), c.send(i)
	slowest.Sync += c.tie(i)
	return slowest, true
}

// tie is the time in which a stage sums the gradients of tied parameters up with the stage at the other end.
func (c *twinCase) tie(i int) float64 {
	end := len(c.Plan.Stages) - 1
	q := c.Layers[len(c.Layers)-1].Tied
	if q == 0 || end == 0 || i > 0 && i < end {
		return 0
	}
	c.see("tied")
	bytes := q * c.Options.G
	machines, degree, longest := map[[2]int]bool{}, 0, 0.0
	for _, ends := range [][2]int{{0, end}, {end, 0}} {
		for _, g := range c.Plan.Stages[ends[0]].Groups {
			per := c.Cluster.Classes[g.Class].PerMachine
			for d := g.First; d < g.First+g.Count; d++ {
				machines[[2]int{g.Class, d / per}] = true
			}
			if degree == 0 || g.Tensor < degree {
				degree = g.Tensor
			}
			_, most := c.Cluster.place(&g)
			replicas := float64(most) / float64(g.Tensor)
			for _, o := range c.Plan.Stages[ends[1]].Groups {
				path := c.Cluster.between(g.Class, o.Class)
				longest = max(longest, 2*c.time(path, bytes*replicas/2*c.context())+c.start(path))
			}
		}
	}
	if len(machines) == 1 {
		c.see("tied in a machine")
		inside := c.Cluster.inside(c.Plan.Stages[0].Groups[0].Class)
		return 2*c.time(inside, bytes/float64(degree)/2) + c.start(inside)
	}
	return longest
}

// convert is the time of redistributing activations between layers of other tensor degrees.
func (c *twinCase) convert(s *twinStage) float64 {
	g := &s.Groups[0]
	path := c.Cluster.inside(g.Class)
	if machines, _ := c.Cluster.place(g); machines > 1 {
		path = c.Cluster.between(g.Class, g.Class)
	}
	sum := 0.0
	for layer := s.From + 1; layer < s.To; layer++ {
		before, after := s.Strategies[layer-1-s.From], s.Strategies[layer-s.From]
		if before.Tensor == after.Tensor {
			continue
		}
		_, t1, k1 := c.replicas(s, g, before)
		_, t2, k2 := c.replicas(s, g, after)
		v := float64(max(t1, t2))
		c.see("convert")
		sum += 2*c.time(path, c.Layers[layer-1].Output*float64(max(k1, k2))/c.context()*(v-1)/v) + 2*c.start(path)
	}
	return sum
}

// parts is into how many parts the devices of a replica divide what it sends.
func (c *twinCase) parts(g *twinGroup) float64 {
	if c.Options.Sequence || c.Options.DeepSpeed {
		return float64(g.Tensor)
	}
	return 1
}

// send is the time of passing a micro-batch on to the next stage, and its gradient back.
func (c *twinCase) send(i int) float64 {
	if i == len(c.Plan.Stages)-1 {
		return 0
	}
	s, next := &c.Plan.Stages[i], &c.Plan.Stages[i+1]
	out := c.Layers[s.To-1].Output
	if len(s.Groups) == 1 && len(next.Groups) == 1 && s.Groups[0].Class == next.Groups[0].Class {
		a, b := &s.Groups[0], &next.Groups[0]
		per := c.Cluster.Classes[a.Class].PerMachine
		machine := a.First / per
		if (a.First+a.Count-1)/per == machine && b.First/per == machine && (b.First+b.Count-1)/per == machine {
			c.see("send in a machine")
			_, _, k := c.replicas(s, a, twinStrategy{})
			return 2 * c.time(c.Cluster.inside(a.Class), out*float64(k)/c.context()/c.parts(a))
		}
	}
	c.see("send between machines")
	longest := 0.0
	for j := range s.Groups {
		g := &s.Groups[j]
		_, _, k := c.replicas(s, g, twinStrategy{})
		_, most := c.Cluster.place(g)
		devices := float64(most)
		for _, to := range next.Groups {
			longest = max(longest, 2*c.time(c.Cluster.between(g.Class, to.Class), out*float64(k)/c.parts(g)*devices))
		}
	}
	return longest
}

// fits says whether every device holds its part.
func (p *twinPrediction) fits() bool {
	for i := range p.Stages {
		for _, m := range p.Stages[i].Memory {
			if m.States+m.Activations+m.Working > m.Limit {
				return false
			}
		}
	}
	return true
}

// predict prices the plan; false where it has no price.
func (c *twinCase) predict() (*twinPrediction, bool) {
	c = c.inUnits()
	p := &twinPrediction{}
	for i := range c.Plan.Stages {
		price, ok := c.stage(i)
		if !ok {
			return nil, false
		}
		p.Stages = append(p.Stages, price)
	}
	micro := float64(c.Plan.GlobalBatch / c.Plan.MicroBatch)
	longest, once, busy, devices, before := 0.0, 0.0, 0.0, 0, 0.0
	for i := range p.Stages {
		s := &p.Stages[i]
		p.Seconds += s.step() + s.Send
		longest = max(longest, s.step()+s.Send+before)
		once = max(once, s.once())
		busy += float64(s.devices) * (micro*s.step() + s.once())
		if c.Plan.Chunks == 0 || i < len(p.Stages)/c.Plan.Chunks {
			devices += s.devices
		}
		before = s.Send
	}
	p.Seconds += (micro-1)*longest + once
	p.Simulated = p.Seconds
	if c.Plan.Schedule != "" {
		p.Simulated = c.scheduled(p.Stages)
		p.Seconds = p.Simulated
	} else if passes := len(p.Stages) * int(micro); passes <= 1<<20 {
		p.Simulated = twinSimulate(p.Stages, int(micro))
	}
	p.Idle = max(0, 1-busy/(float64(devices)*p.Simulated))
	return p, true
}
