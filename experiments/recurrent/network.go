package main

import (
	"math"
	"math/rand/v2"

	"github.com/evenkeel/evenkeel/env"
)

// Sizes of the networks. Those of the hidden layers are the embedded policy's (agent.TrainConfig).
const (
	fleet  = 8                // nodes of every cluster here, so that pooling is a product with a constant
	window = 16               // rounds that the summary reads
	state  = 16               // numbers of a node's summary
	hidden = 64               // of both hidden layers
	wide   = env.Features + 1 // a row and a one, which stands for the biases
)

// network holds weights; one that is not recurrent is the deployed kind: two hidden layers and a dueling head on the newest row. A recurrent one
// adds to the row the last state of a GRU (Cho et al., arXiv 1406.1078) over the node's last rounds, and the mean of the nodes' last states:
//
//	z = sigmoid(x Wz + h Uz), r = sigmoid(x Wr + h Ur), n = tanh(x Wn + (r h) Un), h' = n + z (h - n)
//
// Rounds before the first are rows of zeros, without the one: they leave the state at zero.
type network struct {
	recurrent bool
	weights   []float32 // all of them; the layers are windows of it
	gates     [3]gate   // z, r, n; of a recurrent one

	first, own, pooled layer // of the row, the node's state and the fleet's
	second, head       layer
	secondBias, value  layer // biases, one row each
}

// layer is a matrix, inputs x outputs.
type layer struct {
	name    string
	in, out int
	w       []float32
}

type gate struct{ input, state layer }

// outputs of the head: the value of the state and an advantage of every action.
var outputs = 1 + len(env.Actions)

// newNetwork draws weights. Of one seed both kinds have the same ones where they have the same layers.
func newNetwork(recurrent bool, seed uint64) *network {
	n := emptyNetwork(recurrent)
	rng := rand.New(rand.NewPCG(seed, 2))
	draw := func(l layer, rows int, bound float64) { // the last row of a layer on the row of features holds its biases
		for k := range l.w[:rows*l.out] {
			l.w[k] = float32((2*rng.Float64() - 1) * bound)
		}
	}
	draw(n.first, env.Features, math.Sqrt(6.0/env.Features))
	draw(n.second, hidden, math.Sqrt(6.0/hidden))
	draw(n.head, hidden, 0.1*math.Sqrt(3.0/hidden))
	if recurrent {
		for k, g := range n.gates {
			draw(g.input, env.Features, math.Sqrt(3.0/env.Features))
			draw(g.state, state, math.Sqrt(3.0/state))
			if k == 0 {
				for i := range state {
					g.input.w[env.Features*state+i] = 1 // it begins by remembering
				}
			}
		}
		draw(n.own, state, math.Sqrt(6.0/(env.Features+2*state)))
		draw(n.pooled, state, math.Sqrt(6.0/(env.Features+2*state)))
	}
	return n
}

// emptyNetwork lays out weights of zero.
func emptyNetwork(recurrent bool) *network {
	n := &network{recurrent: recurrent}
	layers := n.layers()
	total := 0
	for _, l := range layers {
		total += l.in * l.out
	}
	n.weights = make([]float32, total)
	for at, rest := 0, n.weights; at < len(layers); at++ {
		l := layers[at]
		l.w, rest = rest[:l.in*l.out], rest[l.in*l.out:]
	}
	return n
}

// layers are those that are trained, in the order of their weights; it sets their sizes.
func (n *network) layers() []*layer {
	var all []*layer
	add := func(l *layer, name string, in, out int) {
		l.name, l.in, l.out = name, in, out
		all = append(all, l)
	}
	add(&n.first, "first", wide, hidden)
	add(&n.second, "second", hidden, hidden)
	add(&n.secondBias, "second.bias", 1, hidden)
	add(&n.head, "head", hidden, outputs)
	add(&n.value, "head.bias", 1, outputs)
	if n.recurrent {
		for k, name := range []string{"z", "r", "n"} {
			add(&n.gates[k].input, "input."+name, wide, state)
			add(&n.gates[k].state, "state."+name, state, state)
		}
		add(&n.own, "first.own", state, hidden)
		add(&n.pooled, "first.pooled", state, hidden)
	}
	return all
}

// dueling is the constant matrix that makes values of actions from the head's outputs: the value plus the advantage less the mean advantage.
func dueling() []float32 {
	actions := len(env.Actions)
	m := make([]float32, outputs*actions)
	for a := range actions {
		m[a] = 1
		for b := range actions {
			m[(1+b)*actions+a] = -1 / float32(actions)
		}
		m[(1+a)*actions+a]++
	}
	return m
}

// pooling is the constant matrix that gives each of rows the mean over its fleet.
func pooling(rows int) []float32 {
	m := make([]float32, rows*rows)
	for i := range rows {
		for j := range fleet {
			m[i*rows+i/fleet*fleet+j] = 1.0 / fleet
		}
	}
	return m
}
