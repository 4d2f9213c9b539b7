package main

import (
	"fmt"
	"math"
)

// setting is what a search runs under.
type setting struct {
	layers, hidden, sequence, batch, devices int
	limit                                    int // MB per device
	// Options of Galvatron.
	zero2     bool // sharded gradients and optimizer where Galvatron's default is plain data parallelism
	flush     bool // one forward, one backward; otherwise all forward, then all backward
	async     bool // gradients are reduced once per iteration
	buffer    bool // memory of the buffer that sequence parallelism gathers into
	lookup    bool // times of collectives that were measured at a size are taken as they are
	halfVocab bool
	tpComms   float64
}

// strategy is how a layer runs on the devices of a stage.
type strategy struct {
	stages, tensor, sequence, data int
	shard                          int // 0: replicated, 2: gradients and optimizer sharded, 3: parameters too
	checkpoint                     bool
}

func (s strategy) String() string {
	text := fmt.Sprintf("tp%d sp%d dp%d", s.tensor, s.sequence, s.data)
	if s.shard > 0 {
		text += fmt.Sprintf(" zero%d", s.shard)
	}
	if s.checkpoint {
		text += " checkpoint"
	}
	return text
}

func (s strategy) split() int   { return max(s.tensor, s.sequence) }
func (s strategy) sharing() int { return s.data * s.sequence }

// strategies are all of a pipeline degree under a number of micro-batches and a largest degree of tensor parallelism;
// those of the vocabulary layers are the ones without checkpoint.
func (t *setting) strategies(stages, chunks int) []strategy {
	var all []strategy
	within := t.devices / stages
	add := func(tensor, sequence int) {
		data := within / (tensor * sequence)
		if data > t.batch/chunks {
			return
		}
		shards := []int{0}
		if data > 1 {
			shards = []int{0, 3}
			if t.zero2 {
				shards[0] = 2
			}
		}
		for _, shard := range shards {
			all = append(all, strategy{stages, tensor, sequence, data, shard, false}, strategy{stages, tensor, sequence, data, shard, true})
		}
	}
	for n := 1; n <= within; n *= 2 {
		add(n, 1)
	}
	for n := 2; n <= within; n *= 2 {
		add(1, n)
	}
	return all
}

// model prices strategies by Galvatron's formulas (PKU-DAIR/Hetu-Galvatron, core/cost_model: layer_cost,
// embedding_lmhead_cost, cost_model_handler).
type model struct {
	*profile
	*setting
}

// reduceAt is the ms per MB of an all-reduce among the data-parallel devices of a strategy.
func (m *model) reduceAt(s strategy) float64 {
	consecutive := 1
	if s.tensor != 1 {
		consecutive = 0
	}
	v, ok := m.reduce[fmt.Sprintf("%d_%d", s.sharing(), consecutive)]
	if !ok {
		v = m.reduce[fmt.Sprintf("%d_%d", s.sharing(), 1)]
	}
	return v
}

func (m *model) samples(s strategy, chunks int) float64 { return float64(m.batch / chunks / s.data) }

// message is the MB of the activations of a micro-batch between layers.
func (m *model) message(s strategy, chunks int) float64 {
	return m.samples(s, chunks) * float64(m.sequence) * float64(m.hidden) * 2 / 1024 / 1024
}

func (m *model) collective(lines map[int]line, points map[int]map[float64]float64, devices int, size float64) float64 {
	if v, ok := points[devices][size]; ok && m.lookup {
		return v
	}
	return lines[devices].at(size)
}

// layer is the seconds of a layer and micro-batch, forward and backward, with and without gradients reduced.
func (m *model) layer(s strategy, chunks int) (sync, plain float64) {
	forward := m.forward.at(m.samples(s, chunks) / float64(s.split()))
	backward := 2 * forward
	again := 1.0
	if s.checkpoint {
		backward += forward
		again = 1.5
	}
	n := float64(s.sharing())
	gradients := (n - 1) / n * m.parameters / float64(s.tensor)
	rate := m.reduceAt(s)
	collectives := 0.0
	if s.tensor > 1 {
		collectives = m.tpComms * again * m.collective(m.gather, m.gatherAt, s.tensor, m.message(s, chunks))
	} else if s.sequence > 1 {
		collectives = 4 * again * m.collective(m.exchange, m.exchangeAt, s.sequence, m.message(s, chunks))
	}
	plain = forward + backward + collectives
	sync = plain
	if s.data > 1 {
		sync += m.overlap(gradients*rate, backward) - backward
	}
	extra := 0.0
	if s.shard == 3 {
		extra = gradients / 2 * rate
	}
	if s.stages > 1 {
		extra += float64(s.stages) * 2 * m.message(s, chunks) * m.p2p[s.stages] / float64(m.layers)
	}
	return (sync + extra) / 1000, (plain + extra) / 1000
}

// overlap is the time of communication and computation at once, each slowed by the other.
func (m *model) overlap(communication, computation float64) float64 {
	k := m.slowdown
	return min(k*communication, k*computation) + math.Abs(k*communication-k*computation)/k
}

// sharded is the share of the model states that a device holds.
func (m *model) sharded(shard, among, chunks int) float64 {
	part := 1/float64(among) + 0.003
	switch {
	case shard == 0:
		return 1
	case chunks == 1 && shard == 2:
		return 7.0/8*part + 1.0/8
	case chunks == 1:
		return part
	case m.async && shard == 2:
		return 6.0/8*part + 2.0/8
	case m.async:
		return 7.0/8*part + 1.0/8
	case shard == 2:
		return (7.0/8*part + 1.0/8) * 5 / 4
	default:
		return part * 5 / 4
	}
}

// inFlight is how many micro-batches' activations a stage holds.
func (m *model) inFlight(stage, stages, chunks int) float64 {
	switch {
	case stages == 1:
		return 1
	case m.flush:
		return float64(stages - stage)
	default:
		return float64(chunks)
	}
}

// layerMemory is the whole MB of a layer in a stage.
func (m *model) layerMemory(s strategy, chunks, stage int) int {
	states := 4 * m.parameters / float64(s.tensor) * m.sharded(s.shard, s.sharing(), chunks)
	active := m.activation[s.split()]
	if s.checkpoint {
		active = m.activation[0] / float64(s.split())
	}
	return int(math.Ceil(states + active*m.samples(s, chunks)*m.inFlight(stage, s.stages, chunks)))
}

// context is the MB that the framework takes.
const framework = 1024

// ends is the whole MB of the vocabulary layers, and of the framework, in each stage.
func (m *model) endsMemory(s strategy, chunks int) []int {
	all := make([]float64, s.stages)
	share, samples := m.sharded(s.shard, s.sharing(), chunks), m.samples(s, chunks)
	part := func(e ends, inFlight float64) float64 {
		return e.ModelStates[s.tensor]*share + e.Activation[s.split()]*samples*inFlight
	}
	if s.stages == 1 {
		all[0] = part(m.whole, 1)
	} else {
		all[0] = part(m.first, m.inFlight(0, s.stages, chunks))
		all[s.stages-1] = part(m.last, m.inFlight(s.stages-1, s.stages, chunks))
	}
	whole := make([]int, s.stages)
	for i, v := range all {
		whole[i] = int(math.Ceil(v + framework))
	}
	return whole
}

// gatherMemory is the whole MB of the buffer that sequence parallelism of at most a tensor degree gathers into.
func (m *model) gatherMemory(stages, chunks, tensor int) int {
	if !m.buffer {
		return 0
	}
	s := strategy{stages: stages, tensor: tensor, sequence: 1, data: m.devices / stages / tensor}
	return int(float64(m.batch) / float64(chunks) / float64(s.data) * float64(m.hidden) * float64(m.sequence) * 2 / 1024 / 1024)
}

// endsTime is the seconds of the vocabulary layers in each stage, with and without gradients reduced.
func (m *model) endsTime(s strategy, chunks int) (sync, plain []float64) {
	sync, plain = make([]float64, s.stages), make([]float64, s.stages)
	n := float64(s.sharing())
	rate := m.reduceAt(s) * (n - 1) / n
	forward := m.vocabulary.at(m.samples(s, chunks) / float64(s.split()))
	gather := 0.0
	if s.tensor > 1 {
		gather = m.collective(m.gather, m.gatherAt, s.tensor, m.message(s, chunks))
	}
	part := func(stage int, forward, states, gather float64) {
		message := states / 4 * rate
		if m.halfVocab {
			message /= 2
		}
		ahead, back := 0.0, 0.5
		if s.shard == 3 {
			ahead, back = 0.5, 1
		}
		sync[stage] = (m.hidden2(message*ahead, forward) + m.hidden2(message*back, 2*forward) + gather) / 1000
		plain[stage] = (m.hidden2(message*ahead, forward) + m.hidden2(message*(back-0.5), 2*forward) + gather) / 1000
	}
	if s.stages == 1 {
		part(0, forward, m.whole.ModelStates[s.tensor], 2*gather)
	} else {
		part(0, forward/2, m.first.ModelStates[s.tensor], gather)
		part(s.stages-1, forward/2, m.last.ModelStates[s.tensor], gather)
	}
	return sync, plain
}

// hidden2 is the time of communication that only slows the computation beside it.
func (m *model) hidden2(communication, computation float64) float64 {
	k := m.slowdown
	if k*computation > communication {
		return communication + (k*computation-communication)/k
	}
	return communication
}

// room is the MB that plans may use: of more than 20 GB a fifth is kept back.
func (t *setting) room() int {
	if t.limit/1024 > 20 {
		return t.limit - t.limit/5
	}
	return t.limit
}
