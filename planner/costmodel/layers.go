package costmodel

import (
	"fmt"
	"slices"

	"evenkeel/planner/layerprofile"
)

// layers are the model's layers, numbered by what they cost, so that costs of equal layers, and of equal runs of layers, are computed once.
type layers struct {
	profile   *layerprofile.Profile
	kinds     int       // how many: layers of a kind cost the same
	selective bool      // the profile says of some layer what selective recomputation saves
	kindOf    []int32   // of each layer
	counts    [][]int   // layers of each kind before layer i
	runOf     [][]int32 // by first layer and number of layers less 1
}

// newLayers numbers the layers of a profile.
func newLayers(p *layerprofile.Profile) layers {
	m := layers{profile: p}
	m.selective = m.some(func(r *layerprofile.Run) bool { return r.Selective > 0 || r.Freed > 0 })
	kinds := map[string]int32{}
	for i, l := range p.Layers {
		k := fmt.Sprint(l.Parameters, l.Output, m.input(i), l.Context, l.Experts, l.ExpertParameters, l.ExpertBytes, l.Runs)
		if _, ok := kinds[k]; !ok {
			kinds[k] = int32(len(kinds))
		}
		m.kindOf = append(m.kindOf, kinds[k])
	}
	m.kinds = len(kinds)
	m.counts = [][]int{make([]int, m.kinds)}
	for i, k := range m.kindOf {
		next := slices.Clone(m.counts[i])
		next[k]++
		m.counts = append(m.counts, next)
	}
	n := len(p.Layers)
	m.runOf = make([][]int32, n)
	runs := map[[2]int32]int32{} // by the kind of the first layer and the number of the rest
	for from := n - 1; from >= 0; from-- {
		m.runOf[from] = make([]int32, n-from)
		for to := from + 1; to <= n; to++ {
			k := [2]int32{m.kindOf[from], -1}
			if to > from+1 {
				k[1] = m.runOf[from+1][to-from-2]
			}
			if _, ok := runs[k]; !ok {
				runs[k] = int32(len(runs))
			}
			m.runOf[from][to-from-1] = runs[k]
		}
	}
	return m
}

// Layers are the layers that the model prices. They are those of the profile, but in the model of plans of one stage the last layer is without
// the parameters that it shares with the first.
func (m *layers) Layers() []layerprofile.Layer { return m.profile.Layers }

// Kinds is the kind of each layer, numbered from 0 in the order of the layers. Layers of a kind cost the same.
func (m *layers) Kinds() []int32 { return m.kindOf }

// Run is the number of the run of layers from..to-1: runs of the same kinds in the same order share it.
func (m *layers) Run(from, to int) int32 { return m.runOf[from][to-from-1] }

// input is the bytes of a sample that a layer gets from the one before; 0 for the first.
func (m *layers) input(l int) float64 {
	if l == 0 {
		return 0
	}
	return m.profile.Layers[l-1].Output
}

// Selects says whether the profile says of some layer what selective recomputation saves.
func (m *layers) Selects() bool { return m.selective }

func (m *layers) some(has func(*layerprofile.Run) bool) bool {
	return slices.ContainsFunc(m.profile.Layers, func(l layerprofile.Layer) bool {
		return slices.ContainsFunc(l.Runs, func(r layerprofile.Run) bool { return has(&r) })
	})
}
