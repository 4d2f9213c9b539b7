package main

import "math"

// peer is Galvatron's own search (DpOnModel and dp_core.cpp): for each number of micro-batches and of stages, stages of as
// many layers each; in a stage, by dynamic programming over MB of memory, the least cost of one micro-batch with gradients
// reduced and layers converted into one another; of the plans for all strategies of the vocabulary layers the one with
// the least final cost, in which conversions have no part.
func (m *model) peer(progress func(chunks int)) *plan {
	var best *plan
	for chunks := 1; chunks <= m.batch; chunks *= 2 {
		for stages := 1; stages <= min(m.devices, chunks, m.layers); stages *= 2 {
			if p := m.peerUnder(chunks, stages); p != nil && (best == nil || p.seconds < best.seconds) {
				best = p
			}
		}
		progress(chunks)
	}
	return best
}

func (m *model) peerUnder(chunks, stages int) *plan {
	ways := m.strategies(stages, chunks)
	division := make([]int, stages)
	for i := range division {
		division[i] = m.layers / stages
	}
	division[stages-1] += m.layers % stages
	room := m.room()
	tables := make([]*table, stages)
	for i, n := range division {
		tables[i] = m.table(ways, chunks, i, n, room)
	}
	var best *plan
next:
	for _, v := range ways {
		if v.checkpoint {
			continue
		}
		p := &plan{chunks: chunks, vocabulary: v, division: division}
		for i, taken := range m.endsMemory(v, chunks) {
			chosen := tables[i].trace(room - taken)
			if chosen == nil {
				continue next
			}
			for _, w := range chosen {
				p.layers = append(p.layers, ways[w])
			}
		}
		if p.seconds = m.score(p); best == nil || p.seconds < best.seconds {
			best = p
		}
	}
	return best
}

// table is the dynamic programming of a stage: cost[v*ways+s] of all layers in v MB, the last of them in way s.
type table struct {
	memory []int
	cost   []float64
	before [][]int8 // the way of the layer before, by layer
}

func (m *model) table(ways []strategy, chunks, stage, layers, room int) *table {
	n := len(ways)
	t := &table{cost: make([]float64, (room+1)*n), memory: make([]int, n)}
	seconds, convert := make([]float64, n), make([]float64, n*n)
	for i, s := range ways {
		seconds[i], _ = m.layer(s, chunks)
		t.memory[i] = m.layerMemory(s, chunks, stage)
		for k, to := range ways {
			convert[i*n+k] = m.convert(s, to, chunks)
		}
	}
	for layer := range layers {
		before := make([]int8, (room+1)*n)
		for v := room; v >= 0; v-- {
			for s := range n {
				if v < t.memory[s] {
					t.cost[v*n+s] = math.Inf(1)
					continue
				}
				least, from := math.Inf(1), 0
				for k, c := range t.cost[(v-t.memory[s])*n : (v-t.memory[s]+1)*n] {
					if layer > 0 {
						c += convert[k*n+s]
					}
					if c < least {
						least, from = c, k
					}
				}
				t.cost[v*n+s], before[v*n+s] = least+seconds[s], int8(from)
			}
		}
		t.before = append(t.before, before)
	}
	return t
}

// convert is Galvatron's price of a layer after another one with a different degree. It leaves out that between layers of
// one degree 1e-9 seconds order what is equal otherwise.
func (m *model) convert(from, to strategy, chunks int) float64 {
	if from.split() == to.split() {
		return 0
	}
	g := max(from.split(), to.split())
	samples := float64(m.batch) / float64(chunks) / float64(m.devices/from.stages/g)
	return float64(g-1) / float64(g) * samples * float64(m.sequence*m.hidden) * 2 * m.reduce[group{g, 1}] * 1e-7
}

// trace is the ways of the layers that cost least in v MB, nil where they do not fit.
func (t *table) trace(v int) []int {
	if v < 0 {
		return nil
	}
	n, way := len(t.memory), 0
	for s := range n {
		if t.cost[v*n+s] < t.cost[v*n+way] {
			way = s
		}
	}
	if math.IsInf(t.cost[v*n+way], 1) {
		return nil
	}
	chosen := make([]int, len(t.before))
	for i := len(chosen) - 1; i >= 0; i-- {
		chosen[i] = way
		before := int(t.before[i][v*n+way])
		v, way = v-t.memory[way], before
	}
	return chosen
}
