package peers

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
)

// Piper is an input of msr-fiddle/piper (algo.cpp at d7fc8cf9), with its cost function: a plan costs what its slowest
// stage takes for a sample, compute and communication one after the other.
type Piper struct {
	Devices   int     // at most so many are used
	Memory    float64 // bytes of a device
	Bandwidth float64 // bytes per second
	Batch     int     // micro-batches of a batch; every data-parallel degree divides it

	nodes []piperNode
}

type piperNode struct {
	id    int
	name  string
	ways  map[int][]piperWay // by tensor degree
	in    map[int]float64    // bytes of the edge from each node
	out   map[int]float64    // bytes of the edge to each node
	index int                // position in Piper.nodes
}

// piperWay is what Piper calls a TMPC: how a node runs at a tensor degree, with or without activation recomputation.
type piperWay struct {
	ID     string             `json:"id"`
	Time   float64            `json:"timePerSample"`
	Size   float64            `json:"parameterSize"`
	A      float64            `json:"memoryUsageA"`
	B      float64            `json:"memoryUsageB"`
	SyncFw map[string]float64 `json:"syncTimeFw"`
	SyncBw map[string]float64 `json:"syncTimeBw"`
	before map[int]float64    // SyncFw by node
	after  map[int]float64    // SyncBw by node
}

// maxPiperNodes bounds an input.
const maxPiperNodes = 4096

// ReadPiper reads one of Piper's input files. Errors wrap ErrInput.
func ReadPiper(r io.Reader) (*Piper, error) {
	var file struct {
		MaxDevices         int
		MaxMemoryPerDevice float64
		Bandwidth          float64
		MbsInBatch         int
		Nodes              []struct {
			ID    int
			Name  string
			TMPCs map[string][]piperWay
		}
		Edges []struct {
			SourceID, DestID  int
			CommunicationCost float64
		}
	}
	if err := json.NewDecoder(io.LimitReader(r, 64<<20)).Decode(&file); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	p := &Piper{Devices: file.MaxDevices, Memory: file.MaxMemoryPerDevice, Bandwidth: file.Bandwidth, Batch: file.MbsInBatch}
	if p.Devices < 1 || !(p.Memory > 0) || !(p.Bandwidth > 0) || p.Batch < 1 || len(file.Nodes) == 0 || len(file.Nodes) > maxPiperNodes {
		return nil, fmt.Errorf("%w: maxDevices, maxMemoryPerDevice, bandwidth, mbsInBatch must be above 0, nodes 1 to %d", ErrInput, maxPiperNodes)
	}
	at := map[int]int{}
	for i, n := range file.Nodes {
		node := piperNode{id: n.ID, name: n.Name, ways: map[int][]piperWay{}, in: map[int]float64{}, out: map[int]float64{}, index: i}
		if _, twice := at[n.ID]; twice {
			return nil, fmt.Errorf("%w: nodes[%d].id: %d is given twice", ErrInput, i, n.ID)
		}
		at[n.ID] = i
		for key, ways := range n.TMPCs {
			t, err := strconv.Atoi(key)
			if err != nil || t < 1 {
				return nil, fmt.Errorf("%w: nodes[%d].TMPCs: %q is not a number of devices", ErrInput, i, key)
			}
			for j := range ways {
				if err := ways[j].resolve(); err != nil {
					return nil, fmt.Errorf("nodes[%d].TMPCs[%d][%d]: %w", i, t, j, err)
				}
			}
			node.ways[t] = ways
		}
		p.nodes = append(p.nodes, node)
	}
	for i, e := range file.Edges {
		from, ok := at[e.SourceID]
		to, ok2 := at[e.DestID]
		if !ok || !ok2 || !(e.CommunicationCost >= 0) {
			return nil, fmt.Errorf("%w: edges[%d]: joins unknown nodes or has a negative cost", ErrInput, i)
		}
		p.nodes[from].out[e.DestID] = e.CommunicationCost
		p.nodes[to].in[e.SourceID] = e.CommunicationCost
	}
	return p, p.order()
}

func (w *piperWay) resolve() error {
	if !(w.Time >= 0) || !(w.Size >= 0) || !(w.A >= 0) || !(w.B >= 0) {
		return fmt.Errorf("%w: timePerSample, parameterSize, memoryUsageA and B must be at least 0", ErrInput)
	}
	w.before, w.after = map[int]float64{}, map[int]float64{}
	for from, to := range map[*map[string]float64]map[int]float64{&w.SyncFw: w.before, &w.SyncBw: w.after} {
		for key, bytes := range *from {
			n, err := strconv.Atoi(key)
			if err != nil || !(bytes >= 0) {
				return fmt.Errorf("%w: syncTime of %q: want a node and at least 0 bytes", ErrInput, key)
			}
			to[n] = bytes
		}
	}
	return nil
}

// order sorts the nodes so that edges point forwards.
func (p *Piper) order() error {
	done := map[int]bool{}
	var sorted []piperNode
	for range p.nodes {
		for _, n := range p.nodes {
			ready := !done[n.id]
			for from := range n.in {
				ready = ready && done[from]
			}
			if ready {
				done[n.id] = true
				n.index = len(sorted)
				sorted = append(sorted, n)
			}
		}
	}
	if len(sorted) < len(p.nodes) {
		return fmt.Errorf("%w: edges: they form a circle", ErrInput)
	}
	p.nodes = sorted
	return nil
}

const piperLayer = "ParallelTransformerLayer"

// Repeat inserts copies of the last transformer layer but one until there are count of them, as Piper makes BERT-96 of
// BERT-32: copies are joined to the layers beside them alone, not to the mask.
func (p *Piper) Repeat(count int) error {
	var layers []*piperNode
	top := 0
	for i := range p.nodes {
		top = max(top, p.nodes[i].id)
		if p.nodes[i].name == piperLayer {
			layers = append(layers, &p.nodes[i])
		}
	}
	if len(layers) < 3 {
		return fmt.Errorf("%w: %d transformer layers; repeating takes 3", ErrInput, len(layers))
	}
	before, v, next := *layers[len(layers)-3], *layers[len(layers)-2], layers[len(layers)-1].id
	for n := len(layers); n < count; n++ {
		top++
		copied := piperNode{id: top, name: piperLayer, ways: map[int][]piperWay{}, in: map[int]float64{v.id: v.out[next]}, out: map[int]float64{next: v.out[next]}}
		for t, ways := range v.ways {
			for _, w := range ways {
				w.before, w.after = map[int]float64{v.id: w.before[before.id]}, map[int]float64{next: w.after[next]}
				copied.ways[t] = append(copied.ways[t], w)
			}
		}
		p.rename(v.id, next, top)
		i := slices.IndexFunc(p.nodes, func(n piperNode) bool { return n.id == next })
		p.nodes = slices.Insert(p.nodes, i, copied)
		before, v = p.nodes[i-1], copied
	}
	return p.order()
}

// rename leads the edge from a to b through the node between them.
func (p *Piper) rename(a, b, between int) {
	move := func(m map[int]float64, from int) {
		if value, ok := m[from]; ok {
			delete(m, from)
			m[between] = value
		}
	}
	for i := range p.nodes {
		switch n := &p.nodes[i]; n.id {
		case a:
			move(n.out, b)
			for _, ways := range n.ways {
				for _, w := range ways {
					move(w.after, b)
				}
			}
		case b:
			move(n.in, a)
			for _, ways := range n.ways {
				for _, w := range ways {
					move(w.before, a)
				}
			}
		}
	}
}

// PiperStage is nodes of a plan, by their ids, with the chosen way of each.
type PiperStage struct {
	Nodes        []int
	Ways         []int // index of the way of each node
	Data, Tensor int
}

// Score is what Piper's getTPSForResult says of a plan: seconds per sample, +Inf where a device's memory is not enough.
// An error tells of a plan that is none.
func (p *Piper) Score(stages []PiperStage) (float64, error) {
	of, replicas, devices := map[int]int{}, 0, 0
	for s, stage := range stages {
		if stage.Data < 1 || p.Batch%stage.Data != 0 || len(stage.Nodes) == 0 || len(stage.Nodes) != len(stage.Ways) {
			return 0, fmt.Errorf("%w: stage %d: %d nodes, data-parallel degree %d", ErrInput, s, len(stage.Nodes), stage.Data)
		}
		for _, id := range stage.Nodes {
			if _, twice := of[id]; twice {
				return 0, fmt.Errorf("%w: node %d is given twice", ErrInput, id)
			}
			of[id] = s
		}
		replicas += stage.Data
		devices += stage.Data * stage.Tensor
	}
	if len(of) != len(p.nodes) || devices > p.Devices || replicas > p.Batch {
		return 0, fmt.Errorf("%w: %d of %d nodes, %d of %d devices", ErrInput, len(of), len(p.nodes), devices, p.Devices)
	}
	node := map[int]*piperNode{}
	for i := range p.nodes {
		n := &p.nodes[i]
		node[n.id] = n
		for to := range n.out {
			if of[to] < of[n.id] {
				return 0, fmt.Errorf("%w: the edge from node %d to %d points backwards", ErrInput, n.id, to)
			}
		}
	}
	worst := 0.0
	for s, stage := range stages {
		d := float64(stage.Data)
		inFlight := math.Ceil(float64(replicas) / d)
		replicas -= stage.Data
		compute, edges, sync, memory := 0.0, 0.0, 0.0, 0.0
		for i, id := range stage.Nodes {
			ways := node[id].ways[stage.Tensor]
			if stage.Ways[i] < 0 || stage.Ways[i] >= len(ways) {
				return 0, fmt.Errorf("%w: stage %d: node %d has no way %d at tensor degree %d", ErrInput, s, id, stage.Ways[i], stage.Tensor)
			}
			w := ways[stage.Ways[i]]
			compute += w.Time
			memory += w.A*inFlight + w.B
			sync += 4 * (d - 1) * w.Size / d / float64(p.Batch)
			for from, bytes := range node[id].in {
				if of[from] != s {
					edges += 2 * (bytes + w.before[from])
				}
			}
			for to, bytes := range node[id].out {
				if of[to] != s {
					edges += 2 * (bytes + w.after[to])
				}
			}
		}
		if memory > p.Memory {
			return math.Inf(1), nil
		}
		worst = max(worst, (edges/d+sync)/p.Bandwidth+compute/d)
	}
	return worst, nil
}
