package planner_test

import (
	"math"
	"math/rand/v2"
	"slices"
)

// twinRandom draws a case: up to three classes, eight layers and four stages.
func twinRandom(rng *rand.Rand) *twinCase {
	c := &twinCase{}
	c.Cluster = twinRandomCluster(rng)
	stages := 1 + rng.IntN(4)
	most := 1 + rng.IntN(12) // samples of a micro-batch above the least
	c.Plan, c.Options = twinRandomPlan(rng, &c.Cluster, stages, most), twinRandomOptions(rng)
	c.Layers = twinRandomLayers(rng, &c.Cluster, c.Plan.Stages[len(c.Plan.Stages)-1].To, c.Plan.MicroBatch)
	return c
}

func twinChance(rng *rand.Rand, p float64) bool { return rng.Float64() < p }

// twinScale is a number between two, even in its logarithm.
func twinScale(rng *rand.Rand, least, most float64) float64 {
	return least * math.Pow(most/least, rng.Float64())
}

func twinPick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

func twinRandomLevel(rng *rand.Rand) twinLevel {
	var l twinLevel
	if twinChance(rng, 0.7) {
		l.Latency = math.Round(twinScale(rng, 1e3, 5e6)) * 1e-9
	}
	sizes := twinPick(rng, 0, 1, 1, 2, 3)
	size := twinScale(rng, 100, 1e7)
	for range sizes {
		l.Rates = append(l.Rates, twinRate{math.Round(size), 1e6 * math.Round(twinScale(rng, 10, 1e5))})
		size *= twinScale(rng, 3, 100)
	}
	l.Secure = twinChance(rng, 0.2)
	return l
}

// twinRandomLink is a machine's link, which has no more than one bandwidth.
func twinRandomLink(rng *rand.Rand) twinLevel {
	l := twinRandomLevel(rng)
	l.Rates, l.Secure = l.Rates[:min(1, len(l.Rates))], false
	return l
}

func twinRandomCluster(rng *rand.Rand) twinCluster {
	var c twinCluster
	devices := []string{"a100", "h200", "l4"}
	rng.Shuffle(len(devices), func(i, j int) { devices[i], devices[j] = devices[j], devices[i] })
	for _, device := range devices[:1+rng.IntN(3)] {
		per := twinPick(rng, 1, 2, 3, 4, 4, 6, 8)
		class := twinClass{
			Device: device, PerMachine: per, Count: per * (1 + rng.IntN(5)), Memory: math.Round(twinScale(rng, 1e9, 1e12)),
			Slow: 1, Inside: twinRandomLevel(rng), Link: twinRandomLink(rng), Switch: -1,
		}
		if twinChance(rng, 0.5) {
			class.Slow = math.Round(twinScale(rng, 0.5, 4)*1000) / 1000
		}
		c.Classes = append(c.Classes, class)
	}
	if twinChance(rng, 0.6) { // a tree of switches, the first on top
		for i := range 1 + rng.IntN(5) {
			c.Switches = append(c.Switches, twinSwitch{twinRandomLevel(rng), rng.IntN(i+1) - 1})
			if i > 0 {
				c.Switches[i].Up = rng.IntN(i)
			}
		}
		for i := range c.Classes {
			c.Classes[i].Switch = rng.IntN(len(c.Switches))
		}
	}
	return c
}

// twinRandomPlan cuts layers and devices into stages.
func twinRandomPlan(rng *rand.Rand, c *twinCluster, stages, most int) twinPlan {
	var p twinPlan
	free := make([]int, len(c.Classes)) // first device of a class that no stage has
	least, layer := 1, 0
	for i := range stages {
		s := twinStage{From: layer, To: layer + 1 + rng.IntN(3)}
		layer = s.To
		classes := rng.Perm(len(c.Classes))
		for _, class := range classes[:1+rng.IntN(len(classes))] {
			left := c.Classes[class].Count - free[class]
			if left == 0 || (left < stages-i && len(s.Groups) > 0) {
				continue
			}
			if twinChance(rng, 0.15) && left > stages { // a device without work
				free[class]++
				left--
			}
			count := 1 + rng.IntN(left)
			if twinChance(rng, 0.5) {
				count = 1 + rng.IntN(min(left, c.Classes[class].PerMachine))
			}
			g := twinGroup{Class: class, First: free[class], Count: count, Tensor: twinDegree(rng, free[class], count, c.Classes[class].PerMachine)}
			free[class] += count
			s.Groups = append(s.Groups, g)
		}
		if len(s.Groups) == 0 {
			break // no devices are left
		}
		p.Stages = append(p.Stages, s)
		replicas := 0
		for _, g := range s.Groups {
			replicas += g.Count / g.Tensor
		}
		least = max(least, replicas)
	}
	if len(p.Stages) == 0 {
		panic("no stage")
	}
	p.MicroBatch = least + rng.IntN(most)
	p.GlobalBatch = p.MicroBatch * (1 + rng.IntN(10))
	for i := range p.Stages {
		twinShares(rng, &p.Stages[i], p.MicroBatch)
		twinStrategies(rng, c, &p.Stages[i])
	}
	return p
}

// twinDegree is a tensor degree for devices from first on, now and then one whose replicas do not lie within machines.
func twinDegree(rng *rand.Rand, first, count, perMachine int) int {
	all := []int{1}
	careless := twinChance(rng, 0.02)
	for t := 2; t <= min(count, perMachine); t++ {
		if count%t == 0 && (perMachine%t == 0 && first%t == 0 || count <= perMachine-first%perMachine || careless) {
			all = append(all, t)
		}
	}
	return twinPick(rng, all...)
}

func twinShares(rng *rand.Rand, s *twinStage, samples int) {
	var of []*int
	for i := range s.Groups {
		g := &s.Groups[i]
		g.Shares = make([]int, g.Count/g.Tensor)
		for j := range g.Shares {
			g.Shares[j] = 1
			of = append(of, &g.Shares[j])
			samples--
		}
	}
	for ; samples > 0; samples-- {
		*twinPick(rng, of...)++
	}
}

func twinStrategies(rng *rand.Rand, c *twinCluster, s *twinStage) {
	var st twinStrategy
	own := len(s.Groups) == 1 && twinChance(rng, 0.6)
	for range s.To - s.From {
		if st.Sharding == "" || twinChance(rng, 0.7) {
			st = twinStrategy{Sharding: twinPick(rng, "none", "optimizer", "gradients", "full"), Checkpoint: twinChance(rng, 0.4)}
			if g := &s.Groups[0]; own && twinChance(rng, 0.7) {
				st.Tensor = twinDegree(rng, g.First, g.Count, c.Classes[g.Class].PerMachine)
			}
		}
		s.Strategies = append(s.Strategies, st)
	}
}

func twinRandomOptions(rng *rand.Rand) twinOptions {
	o := twinOptions{Memory: 1, Compute: 1.1256, Communication: 1.1256, W: 2, G: 4, O: 12}
	if twinChance(rng, 0.5) {
		o.W, o.G, o.O = 4, 4, 8
	}
	if twinChance(rng, 0.5) {
		o.Memory = 0.1 + 0.9*rng.Float64()
	}
	if twinChance(rng, 0.5) {
		o.Reserve = math.Round(twinScale(rng, 1e6, 4e9))
	}
	if twinChance(rng, 0.5) {
		o.Compute, o.Communication = 1+rng.Float64(), 1+rng.Float64()
		if twinChance(rng, 0.5) { // as the command has it
			o.Communication = o.Compute
		}
	}
	o.Off = twinChance(rng, 0.15)
	return o
}

func twinRandomLayers(rng *rand.Rand, c *twinCluster, layers, samples int) []twinLayer {
	all := make([]twinLayer, layers)
	faults := twinChance(rng, 0.3) // measurements that fall while the micro-batch rises
	for i := range all {
		if i > 0 && twinChance(rng, 0.2) {
			all[i] = all[i-1]
			continue
		}
		l := &all[i]
		l.Runs = map[twinKey][]twinRun{}
		l.Parameters, l.Output = math.Round(twinScale(rng, 1e3, 1e9)), math.Round(twinScale(rng, 1e2, 1e8))
		if twinChance(rng, 0.1) {
			l.Parameters = 0
		}
		if twinChance(rng, 0.1) {
			l.Output = 0
		}
		for class := range c.Classes {
			for t := 1; t <= c.Classes[class].PerMachine; t++ {
				if t == 1 || !twinChance(rng, 0.02) {
					l.Runs[twinKey{class, t, 1}] = twinRandomRuns(rng, samples, faults)
				}
			}
		}
	}
	return all
}

func twinRandomRuns(rng *rand.Rand, samples int, faults bool) []twinRun {
	micros := []int{samples + rng.IntN(3)}
	if twinChance(rng, 0.02) {
		micros[0] = max(1, samples/2) // perhaps too few
	}
	for range rng.IntN(5) {
		micros = append(micros, 1+rng.IntN(micros[0]))
	}
	slices.Sort(micros)
	var runs []twinRun
	base, before := twinScale(rng, 1e-4, 1e-1), 0
	r := twinRun{Forward: base * rng.Float64(), Backward: base * rng.Float64(), Update: base * rng.Float64()}
	without := twinChance(rng, 0.2)
	for _, m := range slices.Compact(micros) {
		step := float64(m - before)
		r.MicroBatch, before = m, m
		r.Forward += base * step * rng.Float64()
		r.Backward += 2 * base * step * rng.Float64()
		r.Update += base * rng.Float64()
		r.Activation = math.Round(twinScale(rng, 1e3, 1e8))
		run := r
		if without && twinChance(rng, 0.7) {
			run.Backward = twinPick(rng, -1.0, -1, 0)
		}
		if faults && twinChance(rng, 0.3) {
			run.Forward *= 1 + 3*rng.Float64()
			if run.Backward > 0 {
				run.Backward *= 1 + 3*rng.Float64()
			}
			run.Update *= 1 + rng.Float64()
		}
		runs = append(runs, run)
	}
	return runs
}
