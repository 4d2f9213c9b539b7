package train

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"evenkeel/internal/badinput"
	"evenkeel/train/layer"
)

// ErrUsage marks sizes that do not fit together and values out of range.
var ErrUsage = badinput.New("train: wrong use")

// Network is layers one after the other, ending in logits of a softmax. It holds no numbers and does not change, so
// that goroutines may share it. MLP, Convnet and Transformer build the usual ones.
type Network struct {
	layers    []step
	params    []layer.Param // of all layers, names with the layer's before them
	positions int           // predictions per sample
	classes   int
	tokens    int // tokens the inputs may be, 0: any number
}

// step is a layer in a network.
type step struct {
	layer.Layer
	name  string
	from  int // if not negative: no layer, but the output is the input plus what went into this layer
	first int // number of its first parameter
	count int // of parameters
	in    int // floats of a sample
	out   int
}

// Named is a layer with its name in a network, or a residual connection.
type Named struct {
	Name  string
	Layer layer.Layer
	// Add, where Layer is nil, adds the input of the layer of this name to what flows.
	Add string
}

// NewNetwork joins layers. The last one's output is positions x classes logits of a sample.
func NewNetwork(positions, classes int, layers ...Named) (*Network, error) {
	n := &Network{positions: positions, classes: classes}
	flow := -1
	for i, l := range layers {
		s := step{Layer: l.Layer, name: l.Name, from: -1, first: len(n.params)}
		if slices.ContainsFunc(n.layers, func(other step) bool { return other.name == l.Name }) {
			return nil, fmt.Errorf("%w: two layers named %q", ErrUsage, l.Name)
		}
		switch {
		case l.Layer == nil:
			s.from = slices.IndexFunc(n.layers, func(other step) bool { return other.name == l.Add })
			s.in, s.out = flow, flow
			if s.from < 1 || n.layers[s.from].in != flow {
				return nil, fmt.Errorf("%w: layer %q cannot add the input of %q", ErrUsage, l.Name, l.Add)
			}
		default:
			s.in, s.out = l.Layer.Sizes()
			if flow >= 0 && s.in != flow || s.in < 1 || s.out < 1 {
				return nil, fmt.Errorf("%w: layer %q takes %d floats and is given %d", ErrUsage, l.Name, s.in, flow)
			}
			for _, p := range l.Layer.Params() {
				p.Name = l.Name + "." + p.Name
				n.params = append(n.params, p)
			}
			if e, ok := l.Layer.(layer.Embedding); ok && i == 0 {
				n.tokens = e.Tokens
			}
		}
		s.count = len(n.params) - s.first
		n.layers = append(n.layers, s)
		flow = s.out
	}
	if flow != positions*classes {
		return nil, fmt.Errorf("%w: the last layer gives %d floats, want %d positions x %d classes", ErrUsage, flow, positions, classes)
	}
	return n, nil
}

// Params describes all parameters, in the order of the layers.
func (n *Network) Params() []layer.Param { return slices.Clone(n.params) }

// Layers is the number of layers, those without parameters included.
func (n *Network) Layers() int { return len(n.layers) }

// LayerName is the name of a layer.
func (n *Network) LayerName(layer int) string { return n.layers[layer].name }

// LayerParams describes the parameters of a layer, none for residual connections.
func (n *Network) LayerParams(number int) []layer.Param {
	l := n.layers[number]
	return slices.Clone(n.params[l.first:][:l.count])
}

// Hash is xxh3-128 of the layers' names, kinds and sizes: networks of one hash compute the same function of weights.
func (n *Network) Hash() string {
	h := xxh3.New()
	fmt.Fprintf(h, "%d %d\n", n.positions, n.classes)
	for _, l := range n.layers {
		// Hashes are in files since the layers were types of package train.
		kind := strings.Replace(fmt.Sprintf("%T", l.Layer), "layer.", "train.", 1)
		fmt.Fprintf(h, "%q %d %s%+v\n", l.name, l.from, kind, l.Layer)
	}
	sum := h.Sum128().Bytes()
	return hex.EncodeToString(sum[:])
}

// InputSize is the floats of a sample.
func (n *Network) InputSize() int { return n.layers[0].in }

// Positions is the predictions per sample, and so its targets.
func (n *Network) Positions() int { return n.positions }

// Classes is the number of classes of a prediction.
func (n *Network) Classes() int { return n.classes }

// Values is a float for each element of each parameter: weights, gradients or a moment of the optimizer.
type Values struct {
	Params [][]float32 // in the order of Network.Params
	Layers [][]float32 // the same memory, a layer's parameters in a row; nil for layers without
}

// NewValues makes zeros.
func (n *Network) NewValues() *Values {
	v := &Values{}
	for _, l := range n.layers {
		size := 0
		for _, p := range n.params[l.first:][:l.count] {
			size += p.Len()
		}
		var flat []float32
		if size > 0 {
			flat = make([]float32, size)
		}
		v.Layers = append(v.Layers, flat)
		for _, p := range n.params[l.first:][:l.count] {
			v.Params = append(v.Params, flat[:p.Len():p.Len()])
			flat = flat[p.Len():]
		}
	}
	return v
}

// Copy sets v to other's numbers.
func (v *Values) Copy(other *Values) {
	for i, p := range other.Params {
		copy(v.Params[i], p)
	}
}

// Initialize sets weights to their first values, normally distributed.
func (n *Network) Initialize(w *Values, rng *rand.Rand) {
	for i, p := range n.params {
		initialize(w.Params[i], p, rng)
	}
}

func initialize(w []float32, p layer.Param, rng *rand.Rand) {
	for j := range w {
		w[j] = float32(p.Mean)
		if p.Std > 0 {
			w[j] += float32(p.Std * rng.NormFloat64())
		}
	}
}

// Batch is samples with their targets.
type Batch struct {
	Inputs  []float32 // samples x InputSize
	Targets []int32   // samples x Positions, each a class
}

// Check reports whether a batch fits this network: whole samples, targets that are classes, inputs that are tokens
// where the network embeds tokens. The error wraps ErrUsage.
func (n *Network) Check(b Batch) error {
	_, err := n.check(b)
	return err
}

// check counts the samples.
func (n *Network) check(b Batch) (samples int, err error) {
	samples = len(b.Targets) / n.positions
	if samples < 1 || len(b.Targets) != samples*n.positions || len(b.Inputs) != samples*n.InputSize() {
		return 0, fmt.Errorf("%w: a batch of %d inputs and %d targets; want %d and %d per sample", ErrUsage, len(b.Inputs), len(b.Targets), n.InputSize(), n.positions)
	}
	if err := n.checkTargets(b.Targets); err != nil {
		return 0, err
	}
	if n.tokens == 0 {
		return samples, nil
	}
	for i, x := range b.Inputs {
		if !(x >= 0 && x < float32(n.tokens)) || x != float32(math.Trunc(float64(x))) {
			return 0, fmt.Errorf("%w: input %d is %v; want a token from 0 to %d", ErrUsage, i, x, n.tokens-1)
		}
	}
	return samples, nil
}

func (n *Network) checkTargets(targets []int32) error {
	for i, t := range targets {
		if t < 0 || int(t) >= n.classes {
			return fmt.Errorf("%w: target %d is class %d; there are %d", ErrUsage, i, t, n.classes)
		}
	}
	return nil
}
