package main

import "math"

// plan is a strategy for every layer, under a condition.
type plan struct {
	chunks     int
	vocabulary strategy
	division   []int
	layers     []strategy
	seconds    float64
}

// score is Galvatron's final cost of a plan (pipeline_costmodel).
func (m *model) score(p *plan) float64 {
	_, ends := m.endsTime(p.vocabulary, p.chunks)
	stages := len(p.division)
	sync, plain := make([]float64, stages), make([]float64, stages)
	next := 0
	for i, n := range p.division {
		for _, s := range p.layers[next : next+n] {
			a, b := m.layer(s, p.chunks)
			sync[i] += a
			plain[i] += b
		}
		plain[i] += ends[i]
		next += n
	}
	sum := 0.0
	for _, v := range plain {
		sum += v
	}
	total := sum + plain[stages-1]*float64(p.chunks-1)
	fill := float64(min(stages-1, p.chunks-1)) * plain[0]
	total = max(total, max(fill, sum-plain[0])+plain[0]*float64(max(0, p.chunks+1-stages)))
	late, done := 0.0, 0.0
	for i := range sync {
		done += plain[i]
		late = max(late, sync[i]-done)
	}
	return total + late
}

// peer is Galvatron's own search: for each condition and each stage the least cost of one micro-batch with gradients
// reduced and with conversion, by dynamic programming over MB of memory.
func (m *model) peer(chunks, stages, limit int, mode string) *plan {
	var ways []strategy
	for _, s := range m.strategies(stages, chunks) {
		if s.tensor > limit && mode != "sp" || mode == "tp" && s.sequence > 1 || mode == "sp" && s.tensor > 1 || s.sequence > limit && mode != "sp" {
			continue
		}
		ways = append(ways, s)
	}
	if len(ways) == 0 {
		return nil
	}
	division := make([]int, stages)
	for i := range division {
		division[i] = m.layers / stages
	}
	division[stages-1] = m.layers - m.layers/stages*(stages-1)
	room := m.room()
	var tables []*table
	for i, n := range division {
		tables = append(tables, m.table(ways, chunks, i, n, room))
	}
	buffer := 0
	if mode != "sp" {
		buffer = m.gatherMemory(stages, chunks, limit)
	}
	var best *plan
next:
	for _, v := range ways {
		if v.checkpoint {
			continue
		}
		p := &plan{chunks: chunks, vocabulary: v, division: division}
		for i, more := range m.endsMemory(v, chunks) {
			chosen := tables[i].trace(room - more - buffer)
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

type table struct {
	ways, memory []int
	layers, room int
	f            []float64
	mark         [][]int8
}

func (m *model) table(ways []strategy, chunks, stage, layers, room int) *table {
	n := len(ways)
	t := &table{layers: layers, room: room, f: make([]float64, (room+1)*n), memory: make([]int, n)}
	cost := make([]float64, n)
	convert := make([]float64, n*n)
	for i, s := range ways {
		cost[i], _ = m.layer(s, chunks)
		t.memory[i] = m.layerMemory(s, chunks, stage)
		for k, to := range ways {
			if s.split() != to.split() {
				g := max(s.split(), to.split())
				data := m.devices / s.stages / g
				bytes := float64(g-1) / float64(g) * float64(m.batch) / float64(chunks) / float64(data) * float64(m.sequence*m.hidden) * 2
				convert[i*n+k] = bytes * m.reduce[keyOf(g)] * 1e-7
			}
		}
	}
	for i := range layers {
		mark := make([]int8, (room+1)*n)
		for v := room; v >= 0; v-- {
			for s := range n {
				if v < t.memory[s] {
					t.f[v*n+s] = math.Inf(1)
					mark[v*n+s] = -1
					continue
				}
				row := t.f[(v-t.memory[s])*n : (v-t.memory[s]+1)*n]
				least, from := math.Inf(1), 0
				for k, f := range row {
					c := f
					if i > 0 {
						c += convert[k*n+s]
					}
					if c < least {
						least, from = c, k
					}
				}
				t.f[v*n+s] = least + cost[s]
				mark[v*n+s] = int8(from)
			}
		}
		t.mark = append(t.mark, mark)
	}
	return t
}

func keyOf(n int) string { return string(rune('0'+n)) + "_1" }

func (t *table) trace(v int) []int {
	n := len(t.memory)
	if v < 0 {
		return nil
	}
	best := 0
	for s := range n {
		if t.f[v*n+s] < t.f[v*n+best] {
			best = s
		}
	}
	if math.IsInf(t.f[v*n+best], 1) {
		return nil
	}
	chosen := make([]int, t.layers)
	for i := t.layers - 1; i >= 0; i-- {
		chosen[i] = best
		before := int(t.mark[i][v*n+best])
		v -= t.memory[best]
		best = before
	}
	return chosen
}
