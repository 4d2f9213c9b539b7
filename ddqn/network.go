package ddqn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Network holds the weights of a dueling Q-network as flat float32 slices. It computes nothing itself: an Actor
// scores rows with a copy of it, a Learner trains it in place. Not safe for concurrent use while it is trained.
type Network struct {
	spec    Spec
	weights []float32 // all weights; the layers are windows of this slice
	layers  []Layer   // the Dense-ReLU layers, then the joint linear head
}

// Layer is y = x W + b with W row-major, In x Out.
type Layer struct {
	In, Out int
	W, B    []float32
}

// headGain keeps the first Q-values small against the rewards, so that no action starts with a large advantage.
const headGain = 0.1

// NewNetwork returns a network with He-uniform hidden layers (He et al. 2015: bound sqrt(6/inputs)), a head drawn
// from a tenth of the LeCun-uniform bound, and zero biases, all from rng. The error names every field of the spec that is wrong.
func NewNetwork(spec Spec, rng *rand.Rand) (*Network, error) {
	if err := spec.validate(); err != nil {
		return nil, fmt.Errorf("ddqn: new network: %w", err)
	}
	n := emptyNetwork(spec)
	for i, l := range n.layers {
		bound := math.Sqrt(6 / float64(l.In))
		if i == len(n.layers)-1 {
			bound = headGain * math.Sqrt(3/float64(l.In))
		}
		for j := range l.W {
			l.W[j] = float32((float64(2*rng.Float64()) - 1) * bound)
		}
	}
	return n, nil
}

// emptyNetwork lays out zero weights for a valid spec.
func emptyNetwork(spec Spec) *Network {
	n := &Network{spec: spec.clone(), weights: make([]float32, spec.parameters())}
	n.layers = layersOver(spec.widths(), n.weights)
	return n
}

// Layers cuts a slice of as many values as the network has weights into layers: the Dense-ReLU layers, then the joint
// linear head, whose outputs are V[R] and then A[Actions x R].
func (s Spec) Layers(flat []float32) []Layer { return layersOver(s.widths(), flat) }

// layersOver cuts a flat slice into the weights and biases of consecutive layers.
func layersOver(widths []int, flat []float32) []Layer {
	layers := make([]Layer, 0, len(widths)-1)
	for i := 1; i < len(widths); i++ {
		in, out := widths[i-1], widths[i]
		l := Layer{In: in, Out: out, W: flat[: in*out : in*out], B: flat[in*out : in*out+out : in*out+out]}
		flat = flat[in*out+out:]
		layers = append(layers, l)
	}
	return layers
}

// Spec returns the shape of the network.
func (n *Network) Spec() Spec { return n.spec.clone() }

// Weights returns all weights, in the order of Spec.Layers. The slice is the network's own: changing it changes the network.
func (n *Network) Weights() []float32 { return n.weights }

// Clone returns a network with the same shape and its own copy of the weights.
func (n *Network) Clone() *Network {
	c := emptyNetwork(n.spec)
	copy(c.weights, n.weights)
	return c
}

// copyFrom overwrites the weights with those of src. The shapes must be equal, else ErrMismatch.
func (n *Network) copyFrom(src *Network) error {
	if !n.spec.equal(src.spec) {
		return fmt.Errorf("ddqn: copy weights of a network (%v) into another (%v): %w", src.spec, n.spec, ErrMismatch)
	}
	copy(n.weights, src.weights)
	return nil
}

// Equal reports whether both networks have the same shape and the same weights, bit for bit.
func (n *Network) Equal(o *Network) bool {
	return n.spec.equal(o.spec) && slices.EqualFunc(n.weights, o.weights, func(a, b float32) bool {
		return math.Float32bits(a) == math.Float32bits(b)
	})
}

// head returns the joint dueling layer.
func (n *Network) head() Layer { return n.layers[len(n.layers)-1] }
