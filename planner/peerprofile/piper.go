package peerprofile

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/evenkeel/evenkeel/planner/layerprofile"
)

// piperFile is an input of Piper.
type piperFile struct {
	Batch int `json:"mbsInBatch"`
	Nodes []struct {
		ID    int                    `json:"id"`
		Name  string                 `json:"name"`
		Costs map[string][]piperCost `json:"TMPCs"`
	} `json:"nodes"`
	Edges []struct {
		From  int     `json:"sourceId"`
		To    int     `json:"destId"`
		Bytes float64 `json:"communicationCost"`
	} `json:"edges"`
}

type piperCost struct {
	ID         string  `json:"id"`
	Seconds    float64 `json:"timePerSample"`
	Parameters float64 `json:"parameterSize"`
	Activation float64 `json:"memoryUsageA"`
}

// Piper reads an input of Piper (github.com/msr-fiddle/piper) as a profile of one device. Its graph is laid out in
// topological order; what passes a boundary is all that an earlier node gives to a later one, once for each giver. Its
// times are of forward and backward pass together, for a sample, in seconds for inputs of BERT; a third is taken as
// forward. Parameters are of 4 bytes.
func Piper(path, device string) (*layerprofile.Profile, error) {
	var f piperFile
	if err := load(path, &f); err != nil {
		return nil, err
	}
	order, err := f.order(path)
	if err != nil {
		return nil, err
	}
	place := map[int]int{}
	for i, n := range order {
		place[f.Nodes[n].ID] = i
	}
	p := &layerprofile.Profile{Model: strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))}
	for i, n := range order {
		node := f.Nodes[n]
		l := layerprofile.Layer{Name: fmt.Sprintf("%s%d", node.Name, node.ID)}
		givers := map[int]float64{}
		for _, e := range f.Edges {
			if place[e.From] <= i && place[e.To] > i {
				givers[e.From] = max(givers[e.From], e.Bytes)
			}
		}
		for _, m := range order {
			l.Output += givers[f.Nodes[m].ID]
		}
		for key, costs := range node.Costs {
			t, err := strconv.Atoi(key)
			plain := slices.IndexFunc(costs, func(c piperCost) bool { return c.ID == "vanilla" })
			if err != nil || plain < 0 {
				return nil, bad(path, "nodes[%d].TMPCs[%q]: want a number, and a cost vanilla", n, key)
			}
			c := costs[plain]
			if t == 1 {
				l.Parameters = c.Parameters / 4
			}
			for _, b := range []int{1, max(2, f.Batch)} {
				s := c.Seconds * float64(b)
				l.Runs = append(l.Runs, layerprofile.Run{Device: device, Tensor: t, MicroBatch: b, Forward: s / 3, Backward: s * 2 / 3, Activation: c.Activation})
			}
		}
		p.Layers = append(p.Layers, l)
	}
	return p, p.Finish(path)
}

// order is the nodes' indices, each after all it depends on; of several the first in the file.
func (f *piperFile) order(path string) ([]int, error) {
	at := map[int]int{}
	for i, n := range f.Nodes {
		if _, again := at[n.ID]; again {
			return nil, bad(path, "nodes[%d]: id %d is given twice", i, n.ID)
		}
		at[n.ID] = i
	}
	waits := make([]int, len(f.Nodes))
	for i, e := range f.Edges {
		_, ok1 := at[e.From]
		to, ok2 := at[e.To]
		if !ok1 || !ok2 {
			return nil, bad(path, "edges[%d]: from %d to %d; no such node", i, e.From, e.To)
		}
		waits[to]++
	}
	var order []int
	done := make([]bool, len(f.Nodes))
	for range f.Nodes {
		next := -1
		for i := range f.Nodes {
			if !done[i] && waits[i] == 0 {
				next = i
				break
			}
		}
		if next < 0 {
			return nil, bad(path, "edges: some lead in a circle")
		}
		done[next] = true
		order = append(order, next)
		for _, e := range f.Edges {
			if at[e.From] == next {
				waits[at[e.To]]--
			}
		}
	}
	return order, nil
}
