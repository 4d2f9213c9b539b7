package main

import (
	"fmt"
	"math"
)

// setting is what a search runs under. The rest is fixed: Galvatron's default_dp_type zero2, pipeline_type pipedream_flush,
// mixed_precision bf16, async_grad_reduce, and no global memory buffer.
type setting struct {
	layers, hidden, sequence, batch, devices int
	limit                                    int // MB per device
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

// strategies are all of a pipeline degree under a number of micro-batches; those of the
// vocabulary layers are the ones without checkpoint.
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
			shards = []int{2, 3}
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
	setting
}

// reduceAt is the ms per MB of an all-reduce among the data-parallel devices of a strategy.
func (m *model) reduceAt(s strategy) float64 {
	consecutive := 1
	if s.tensor != 1 {
		consecutive = 0
	}
	return m.reduce[group{s.sharing(), consecutive}]
}

func (m *model) samples(s strategy, chunks int) float64 { return float64(m.batch / chunks / s.data) }

// message is the MB of the activations of a micro-batch between layers.
func (m *model) message(s strategy, chunks int) float64 {
	return m.samples(s, chunks) * float64(m.sequence) * float64(m.hidden) * 2 / 1024 / 1024
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
		collectives = 6 * again * m.gather[s.tensor].at(m.message(s, chunks))
	} else if s.sequence > 1 {
		collectives = 4 * again * m.exchange[s.sequence].at(m.message(s, chunks))
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

// endsTime is the seconds of the vocabulary layers in each stage, without gradients reduced.
func (m *model) endsTime(s strategy, chunks int) []float64 {
	all := make([]float64, s.stages)
	n := float64(s.sharing())
	rate := m.reduceAt(s) * (n - 1) / n
	forward := m.vocabulary.at(m.samples(s, chunks) / float64(s.split()))
	gather := 0.0
	if s.tensor > 1 {
		gather = m.gather[s.tensor].at(m.message(s, chunks))
	}
	part := func(forward, states, gather float64) float64 {
		parameters := 0.0 // half of a collective, where they are sharded; a quarter of the states, in half precision
		if s.shard == 3 {
			parameters = states / 8 * rate / 2
		}
		return (m.beside(parameters, forward) + m.beside(parameters, 2*forward) + gather) / 1000
	}
	if s.stages == 1 {
		all[0] = part(forward, m.whole.ModelStates[s.tensor], 2*gather)
	} else {
		all[0] = part(forward/2, m.first.ModelStates[s.tensor], gather)
		all[s.stages-1] = part(forward/2, m.last.ModelStates[s.tensor], gather)
	}
	return all
}

// beside is the time of communication that only slows the computation beside it.
func (m *model) beside(communication, computation float64) float64 {
	k := m.slowdown
	if k*computation > communication {
		return communication + (k*computation-communication)/k
	}
	return communication
}
