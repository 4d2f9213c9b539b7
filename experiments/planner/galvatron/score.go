package main

import (
	"fmt"
	"slices"
	"strings"
)

// plan is a strategy for every layer, under a condition.
type plan struct {
	chunks     int // micro-batches
	vocabulary strategy
	division   []int // layers of each stage
	layers     []strategy
	seconds    float64 // by Galvatron's formula
}

// stages are the seconds of a micro-batch in each stage: of the layers with gradients reduced, and of all without.
func (m *model) stages(p *plan) (sync, plain []float64) {
	sync = make([]float64, len(p.division))
	plain = m.endsTime(p.vocabulary, p.chunks)
	next := 0
	for i, n := range p.division {
		for _, s := range p.layers[next : next+n] {
			a, b := m.layer(s, p.chunks)
			sync[i] += a
			plain[i] += b
		}
		next += n
	}
	return sync, plain
}

// score is Galvatron's final cost of a plan (pipeline_costmodel). A stage between the first and the last counts once,
// however slow it is.
func (m *model) score(p *plan) float64 {
	sync, plain := m.stages(p)
	last, chunks := len(plain)-1, p.chunks
	sum := 0.0
	for _, v := range plain {
		sum += v
	}
	fill := max(float64(min(last, chunks-1))*plain[0], sum-plain[0])
	total := max(sum+plain[last]*float64(chunks-1), fill+plain[0]*float64(max(0, chunks-last)))
	late, done := 0.0, 0.0
	for i := range sync {
		done += plain[i]
		late = max(late, sync[i]-done)
	}
	return total + late
}

// counted is the cost with every stage counted: the micro-batches pass the slowest one by one.
func (m *model) counted(p *plan) float64 {
	sync, plain := m.stages(p)
	sum, late := 0.0, 0.0
	for i, v := range plain {
		sum += v
		late = max(late, sync[i]-v)
	}
	return sum + slices.Max(plain)*float64(p.chunks-1) + late
}

// over is the fullest device's MB beyond what plans may use; none: it fits.
func (m *model) over(p *plan) int {
	over, next := 0, 0
	for i, taken := range m.endsMemory(p.vocabulary, p.chunks) {
		for _, s := range p.layers[next : next+p.division[i]] {
			taken += m.layerMemory(s, p.chunks, i)
		}
		next += p.division[i]
		over = max(over, taken-m.room())
	}
	return over
}

// String is the plan in a line: layers of a stage with equal strategies together.
func (p *plan) String() string {
	var stages []string
	next := 0
	for _, n := range p.division {
		var runs []string
		layers := p.layers[next : next+n]
		next += n
		for from := 0; from < n; {
			to := from
			for to < n && layers[to] == layers[from] {
				to++
			}
			runs = append(runs, fmt.Sprintf("%d x %s", to-from, layers[from]))
			from = to
		}
		stages = append(stages, strings.Join(runs, ", "))
	}
	return fmt.Sprintf("micro-batches %d; %s; vocabulary %s", p.chunks, strings.Join(stages, " / "), p.vocabulary)
}
