package learn

import (
	"fmt"
	"hash"
	"hash/fnv"
	"io"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// op is an operation of the training graph. Each is one node of the Gorgonia graph where the stock operations would
// take several, and owns the buffer of its result, which Gorgonia would allocate anew in every run. Gorgonia
// differentiates the graph (through back) and runs it.
type op struct {
	name   string
	inputs int
	shape  tensor.Shape // of the result; nil: a number
	buf    []float32    // the result, row-major
	out    gorgonia.Value
	run    func(in []gorgonia.Value) error // fills buf
	wrt    []bool                          // inputs that have a gradient; nil: none has
	back   func(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error)
}

// newOp returns an operation with that many inputs, whose result is a matrix or a vector in buf, or in a new buffer
// where buf is nil.
func newOp(name string, inputs int, buf []float32, shape ...int) *op {
	o := &op{name: name, inputs: inputs, shape: shape}
	if o.buf = buf; buf == nil {
		o.buf = make([]float32, o.shape.TotalSize())
	}
	o.out = wrap(o.buf, shape...)
	return o
}

func (o *op) Arity() int                                            { return o.inputs }
func (o *op) ReturnsPtr() bool                                      { return true }
func (o *op) CallsExtern() bool                                     { return false }
func (o *op) OverwritesInput() int                                  { return -1 }
func (o *op) String() string                                        { return o.name }
func (o *op) WriteHash(h hash.Hash)                                 { _, _ = io.WriteString(h, o.name) }
func (o *op) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) { return o.shape.Clone(), nil }
func (o *op) Do(in ...gorgonia.Value) (gorgonia.Value, error)       { return o.out, o.run(in) }

func (o *op) DiffWRT(inputs int) []bool {
	if o.wrt == nil {
		return make([]bool, inputs)
	}
	return o.wrt
}

func (o *op) SymDiff(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	if o.back == nil {
		return nil, fmt.Errorf("ddqn/learn: %s has no derivative", o.name)
	}
	return o.back(in, out, grad)
}

func (o *op) Hashcode() uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}

// Type is the operation's signature: from any tensors to float32 of the result's rank. Gorgonia itself uses the type
// variable b for the result and does not rename it.
func (o *op) Type() hm.Type {
	types := make([]hm.Type, 0, o.inputs+1)
	for i := range o.inputs {
		types = append(types, hm.TypeVariable(rune('m'+i)))
	}
	if len(o.shape) == 0 {
		return hm.NewFnType(append(types, tensor.Float32)...)
	}
	return hm.NewFnType(append(types, gorgonia.TensorType{Dims: len(o.shape), Of: tensor.Float32})...)
}

// wrap makes a tensor over a slice without copying it.
func wrap(data []float32, shape ...int) *tensor.Dense {
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))
}

// floats returns the float32 values of an input.
func floats(v gorgonia.Value) []float32 { return v.(*tensor.Dense).Float32s() }
