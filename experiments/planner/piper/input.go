package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
)

// way is how a node runs under a tensor degree (what Piper calls a TMPC): vanilla or with its activations recomputed.
type way struct {
	Name     string             `json:"id"`
	Seconds  float64            `json:"timePerSample"`
	Bytes    float64            `json:"parameterSize"`
	PerMicro float64            `json:"memoryUsageA"` // bytes for each micro-batch in flight
	Fixed    float64            `json:"memoryUsageB"` // bytes
	Forward  map[string]float64 `json:"syncTimeFw"`   // bytes, by the node before
	Back     map[string]float64 `json:"syncTimeBw"`   // bytes, by the node behind
}

// node is a layer.
type node struct {
	Number int              `json:"id"`
	Name   string           `json:"name"`
	Ways   map[string][]way `json:"TMPCs"` // by tensor degree
}

// edge is data between nodes.
type edge struct {
	From  int     `json:"sourceId"`
	To    int     `json:"destId"`
	Bytes float64 `json:"communicationCost"`
}

// graph is a model in the order of a pipeline: no edge points backwards.
type graph struct {
	Nodes     []node  `json:"nodes"`
	Edges     []edge  `json:"edges"`
	Batch     int     `json:"mbsInBatch"`         // micro-batches
	Limit     float64 `json:"maxMemoryPerDevice"` // bytes
	Bandwidth float64 `json:"bandwidth"`          // bytes/s
}

// transformer is the name of the layers of which a longer model has more.
const transformer = "ParallelTransformerLayer"

// readGraph reads an input of Piper and makes the model longer, to so many transformer layers, as Piper's experiments do:
// copies of the last but one behind it, without the edges that others have from the attention mask.
func readGraph(path string, layers int) (*graph, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("piper: %w", err)
	}
	g := &graph{}
	if err := json.Unmarshal(data, g); err != nil {
		return nil, fmt.Errorf("piper: %s: %w", path, err)
	}
	has, fresh := 0, 0
	for _, n := range g.Nodes {
		if n.Name == transformer {
			has++
		}
		fresh = max(fresh, n.Number+1)
	}
	for ; has < layers; has++ {
		if err := g.lengthen(fresh); err != nil {
			return nil, fmt.Errorf("piper: %s: %w", path, err)
		}
		fresh++
	}
	if err := g.sort(); err != nil {
		return nil, fmt.Errorf("piper: %s: %w", path, err)
	}
	return g, nil
}

// lengthen puts a copy between the last transformer layer and the one before.
func (g *graph) lengthen(fresh int) error {
	of := map[int]*node{}
	for i := range g.Nodes {
		of[g.Nodes[i].Number] = &g.Nodes[i]
	}
	followed := map[int]bool{}
	for _, e := range g.Edges {
		followed[e.From] = followed[e.From] || of[e.From].Name == transformer && of[e.To].Name == transformer
	}
	link := -1
	for i, e := range g.Edges {
		if of[e.From].Name == transformer && of[e.To].Name == transformer && !followed[e.To] {
			link = i
		}
	}
	if link < 0 {
		return fmt.Errorf("no transformer layer follows another")
	}
	from, to := of[g.Edges[link].From], of[g.Edges[link].To]
	before := -1
	for _, e := range g.Edges {
		if e.To == from.Number && of[e.From].Name == transformer {
			before = e.From
		}
	}
	if before < 0 {
		return fmt.Errorf("fewer than three transformer layers")
	}
	more := node{Number: fresh, Name: transformer, Ways: map[string][]way{}}
	key := strconv.Itoa
	for degree, ways := range from.Ways {
		for i := range ways {
			w := ways[i]
			w.Forward = map[string]float64{key(from.Number): w.Forward[key(before)]}
			w.Back = map[string]float64{key(to.Number): w.Back[key(to.Number)]}
			more.Ways[degree] = append(more.Ways[degree], w)
			ways[i].Back[key(fresh)] = ways[i].Back[key(to.Number)]
		}
	}
	for _, ways := range to.Ways {
		for i := range ways {
			ways[i].Forward[key(fresh)] = ways[i].Forward[key(from.Number)]
		}
	}
	g.Edges = append(g.Edges, edge{fresh, to.Number, g.Edges[link].Bytes})
	g.Edges[link].To = fresh
	g.Nodes = append(g.Nodes, more)
	return nil
}

// sort orders and numbers the nodes so that no edge points backwards, each as late as it may come.
func (g *graph) sort() error {
	at := map[int]int{}
	for i, n := range g.Nodes {
		at[n.Number] = i
	}
	behind := make([]int, len(g.Nodes)) // edges to nodes not placed yet
	for _, e := range g.Edges {
		behind[at[e.From]]++
	}
	var order []int
	for len(order) < len(g.Nodes) {
		next := -1
		for i := range g.Nodes {
			if behind[i] == 0 {
				next = i
			}
		}
		if next < 0 {
			return fmt.Errorf("the edges have a cycle")
		}
		behind[next] = -1
		order = append(order, next)
		for _, e := range g.Edges {
			if at[e.To] == next {
				behind[at[e.From]]--
			}
		}
	}
	nodes := make([]node, 0, len(order))
	place := map[int]int{}
	for i := len(order) - 1; i >= 0; i-- {
		place[g.Nodes[order[i]].Number] = len(nodes)
		nodes = append(nodes, g.Nodes[order[i]])
	}
	g.Nodes = nodes
	for i := range g.Nodes {
		n := &g.Nodes[i]
		n.Number = place[n.Number]
		for _, ways := range n.Ways {
			for k := range ways {
				ways[k].Forward, ways[k].Back = renumber(ways[k].Forward, place), renumber(ways[k].Back, place)
			}
		}
	}
	for i, e := range g.Edges {
		g.Edges[i].From, g.Edges[i].To = place[e.From], place[e.To]
	}
	return nil
}

func renumber(bytes map[string]float64, place map[int]int) map[string]float64 {
	all := map[string]float64{}
	for key, v := range bytes {
		n, _ := strconv.Atoi(key)
		all[strconv.Itoa(place[n])] = v
	}
	return all
}
