package planner_test

import (
	"math/rand/v2"
	"slices"
)

// reschedule makes the case one of another schedule: its stages by zb-h1 or h-1f1b, or with more stages on the same devices.
func (c *twinCase) reschedule(rng *rand.Rand, interleaved bool) {
	p := &c.Plan
	devices := len(p.Stages)
	if devices < 2 {
		return
	}
	own := rand.New(rand.NewPCG(rng.Uint64(), 9))
	p.Overlap = twinChance(own, 0.5)
	if !interleaved && twinChance(own, 0.5) {
		p.Schedule, p.Overlap = "h-1f1b", true
		for least := 1; len(p.Warmup) < devices; least = p.Warmup[0] {
			p.Warmup = append([]int{min(p.GlobalBatch/p.MicroBatch, least+own.IntN(3))}, p.Warmup...)
		}
		return
	}
	if !interleaved {
		p.Schedule = "zb-h1"
		return
	}
	p.Schedule, p.Chunks = "interleaved", 2+rng.IntN(2)
	layer := p.Stages[devices-1].To
	for k := devices; k < devices*p.Chunks; k++ {
		s := twinStage{From: layer, To: layer + 1 + rng.IntN(3), Groups: p.Stages[k%devices].Groups}
		layer = s.To
		twinStrategies(rng, &c.Cluster, &s)
		p.Stages = append(p.Stages, s)
	}
	p.GlobalBatch = p.MicroBatch * devices * (1 + rng.IntN(4))
	c.Layers = twinRandomLayers(rng, &c.Cluster, layer, p.MicroBatch)
}

// twinPass is a pass of a stage: 'F', 'B', or 'W' for the gradients of weights.
type twinPass struct {
	kind         byte
	stage, micro int
}

// passes are those of a device, in their order.
func (p *twinPlan) passes(device, devices int) []twinPass {
	micro := p.GlobalBatch / p.MicroBatch
	var forward, backward []twinPass // all of the device
	if p.Schedule != "interleaved" {
		for m := range micro {
			forward, backward = append(forward, twinPass{'F', device, m}), append(backward, twinPass{'B', device, m})
		}
	} else {
		for group := 0; group < micro; group += devices {
			for chunk := range p.Chunks {
				for m := group; m < group+devices; m++ {
					forward = append(forward, twinPass{'F', chunk*devices + device, m})
					backward = append(backward, twinPass{'B', (p.Chunks-1-chunk)*devices + device, m})
				}
			}
		}
	}
	behind := devices - 1 - device
	ahead := behind
	if p.Schedule == "interleaved" {
		ahead = 2*behind + (p.Chunks-1)*devices
	}
	ahead = min(ahead, len(forward))
	if p.Schedule == "h-1f1b" {
		return p.sentAhead(forward, backward, p.Warmup[device])
	}
	all := slices.Clone(forward[:ahead])
	var late []twinPass // weights' gradients to come
	for i, b := range backward {
		if ahead+i < len(forward) {
			all = append(all, forward[ahead+i])
		}
		all = append(all, b)
		if p.Schedule == "zb-h1" {
			if late = append(late, twinPass{'W', b.stage, b.micro}); len(late) > device {
				all, late = append(all, late[0]), late[1:]
			}
		}
	}
	return append(all, late...)
}

// sentAhead begins with so many forward passes, and then takes a backward and a forward pass in turns.
func (p *twinPlan) sentAhead(forward, backward []twinPass, ahead int) (all []twinPass) {
	for len(backward) > 0 {
		if ahead > 0 && len(forward) > 0 {
			all, forward, ahead = append(all, forward[0]), forward[1:], ahead-1
			continue
		}
		all, backward, ahead = append(all, backward[0]), backward[1:], 1
	}
	return all
}

// scheduled is the length of an iteration under another schedule than 1F1B, and sets the memory of the stages.
func (c *twinCase) scheduled(stages []twinPrice) float64 {
	p := &c.Plan
	devices := len(stages)
	if p.Chunks > 0 {
		devices /= p.Chunks
	}
	c.see(p.Schedule)
	ends := map[twinPass]float64{}
	links, done := map[[2]int]float64{}, make([]float64, devices) // when what goes one way over a boundary has arrived; end of a device's last pass
	half := func(boundary int) float64 {
		if boundary < 0 || boundary == len(stages)-1 {
			return 0
		}
		return stages[boundary].Send / 2
	}
	orders, at, free := make([][]twinPass, devices), make([]int, devices), make([]float64, devices)
	for d := range devices {
		orders[d] = p.passes(d, devices)
		c.hold(stages, orders[d], d, devices)
	}
	for moved := true; moved; { // one pass of each device at a time
		moved = false
		for d := range devices {
			if at[d] == len(orders[d]) {
				continue
			}
			x := orders[d][at[d]]
			s := &stages[x.stage]
			begin, receive, length, send := free[d], 0.0, s.Backward/2, 0.0
			var input twinPass
			switch x.kind {
			case 'F':
				input, receive, length, send = twinPass{'F', x.stage - 1, x.micro}, half(x.stage-1), s.Forward+s.gatherForward+s.Convert/2, half(x.stage)
			case 'B':
				input, receive, length, send = twinPass{'B', x.stage + 1, x.micro}, half(x.stage), s.Backward+s.Again+s.gatherBackward+s.Convert/2, half(x.stage-1)
				if p.Schedule == "zb-h1" {
					length -= s.Backward / 2
				}
			}
			if x.kind != 'W' && input.stage >= 0 && input.stage < len(stages) {
				end, ok := ends[input]
				if !ok {
					continue
				}
				begin = max(begin, end)
			}
			if p.Overlap { // ends are when the output arrives
				free[d] = begin + length
				way := [2]int{int(x.kind), x.stage}
				links[way] = max(links[way], free[d]) + send
				ends[x], done[d] = links[way], free[d]
			} else {
				ends[x] = begin + receive + length
				free[d], done[d] = ends[x]+send, ends[x]
			}
			at[d]++
			moved = true
		}
	}
	longest := 0.0
	for d := range devices {
		end := done[d]
		for k := d; k < len(stages); k += devices {
			end += stages[k].once()
		}
		longest = max(longest, end)
	}
	return longest
}

// hold sets the memory of a device: all its stages' states, the largest of their working buffers, and the most that its micro-batches
// hold at a time.
func (c *twinCase) hold(stages []twinPrice, order []twinPass, device, devices int) {
	for g := range stages[device].Memory {
		all := twinMemory{}
		for k := device; k < len(stages); k += devices {
			all.States += stages[k].Memory[g].States
			all.Working = max(all.Working, stages[k].Memory[g].Working)
		}
		state := map[twinPass]float64{} // of a micro-batch in a stage
		for _, x := range order {
			of := twinPass{stage: x.stage, micro: x.micro}
			m := &stages[x.stage].Memory[g]
			switch {
			case x.kind == 'F':
				state[of] = m.kept
			case x.kind == 'B' && c.Plan.Schedule == "zb-h1":
				state[of] = m.whole
			default:
				delete(state, of)
			}
			sum := 0.0
			for _, v := range state {
				sum += v
			}
			all.Activations = max(all.Activations, sum)
		}
		for k := device; k < len(stages); k += devices {
			m := &stages[k].Memory[g]
			m.States, m.Activations, m.Working = all.States, all.Activations, all.Working
		}
	}
}
