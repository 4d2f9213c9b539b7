package main

import "math"

// sharded is the share of the model states that a device holds.
func sharded(shard, among, chunks int) float64 {
	if shard == 0 {
		return 1
	}
	part := 1/float64(among) + 0.003
	stays := 3 - float64(shard) // eighths that stay whole
	if chunks > 1 {
		stays++
	}
	return (8-stays)/8*part + stays/8
}

// inFlight is of how many micro-batches a stage holds activations. Galvatron asks for as many micro-batches as stages.
func inFlight(stage, stages int) float64 { return float64(stages - stage) }

// layerMemory is the whole MB of a layer in a stage.
func (m *model) layerMemory(s strategy, chunks, stage int) int {
	states := 4 * m.parameters / float64(s.tensor) * sharded(s.shard, s.sharing(), chunks)
	active := m.activation[s.split()]
	if s.checkpoint {
		active = m.activation[0] / float64(s.split())
	}
	return int(math.Ceil(states + active*m.samples(s, chunks)*inFlight(stage, s.stages)))
}

// framework is the MB that the framework takes.
const framework = 1024

// endsMemory is the whole MB of the vocabulary layers, and of the framework, in each stage.
func (m *model) endsMemory(s strategy, chunks int) []int {
	all := make([]float64, s.stages)
	share, samples := sharded(s.shard, s.sharing(), chunks), m.samples(s, chunks)
	part := func(e ends, held float64) float64 {
		return e.ModelStates[s.tensor]*share + e.Activation[s.split()]*samples*held
	}
	if s.stages == 1 {
		all[0] = part(m.whole, 1)
	} else {
		all[0] = part(m.first, inFlight(0, s.stages))
		all[s.stages-1] = part(m.last, 1)
	}
	whole := make([]int, s.stages)
	for i, v := range all {
		whole[i] = int(math.Ceil(v + framework))
	}
	return whole
}

// room is the MB that plans may use: of more than 20 GB a fifth is kept back.
func (t *setting) room() int {
	if t.limit/1024 > 20 {
		return t.limit - t.limit/5
	}
	return t.limit
}
