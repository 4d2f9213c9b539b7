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

// The operations of this package are fused: each is one node of the Gorgonia graph where the stock operations
// would take several, and each owns the buffer of its result, which Gorgonia would allocate anew in every run.
// Gorgonia differentiates the training graph (through SymDiff) and runs it; the forward pass alone calls dense itself.

// fused is what all of them share; it is most of gorgonia.Op.
type fused struct {
	name  string
	rank  int // of the result
	arity int
	shape tensor.Shape
}

func (f fused) Arity() int                  { return f.arity }
func (f fused) ReturnsPtr() bool            { return true }
func (f fused) CallsExtern() bool           { return false }
func (f fused) OverwritesInput() int        { return -1 }
func (f fused) String() string              { return f.name }
func (f fused) WriteHash(h hash.Hash)       { _, _ = io.WriteString(h, f.name) }
func (f fused) DiffWRT(inputs int) []bool   { return make([]bool, inputs) }
func (f fused) result(buf []float32) result { return newResult(f.shape, buf) }

func (f fused) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) { return f.shape.Clone(), nil }

// SymDiff is for the operations that are gradients themselves: they are not differentiated again.
func (f fused) SymDiff(gorgonia.Nodes, *gorgonia.Node, *gorgonia.Node) (gorgonia.Nodes, error) {
	return nil, fmt.Errorf("ddqn/learn: %s has no derivative", f.name)
}

func (f fused) Hashcode() uint32 {
	h := fnv.New32a()
	f.WriteHash(h)
	return h.Sum32()
}

// Type says: from any tensors to float32 of the result's rank. Gorgonia itself uses the variable b for the result,
// and does not rename.
func (f fused) Type() hm.Type {
	types := make([]hm.Type, 0, f.arity+1)
	for i := range f.arity {
		types = append(types, hm.TypeVariable(rune('m'+i)))
	}
	if f.rank == 0 {
		return hm.NewFnType(append(types, tensor.Float32)...)
	}
	return hm.NewFnType(append(types, gorgonia.TensorType{Dims: f.rank, Of: tensor.Float32})...)
}

func fusedMatrix(name string, arity, rows, cols int) fused {
	return fused{name: name, arity: arity, rank: 2, shape: tensor.Shape{rows, cols}}
}

func fusedVector(name string, arity, n int) fused {
	return fused{name: name, arity: arity, rank: 1, shape: tensor.Shape{n}}
}

// result is the buffer that an operation owns, and the tensor over it that it returns.
type result struct {
	buf []float32
	out *tensor.Dense
}

// newResult wraps buf, or a new buffer where that is nil.
func newResult(shape tensor.Shape, buf []float32) result {
	if buf == nil {
		buf = make([]float32, shape.TotalSize())
	}
	return result{buf: buf, out: wrap(buf, shape...)}
}

// wrap makes a tensor over a slice without copying it.
func wrap(data []float32, shape ...int) *tensor.Dense {
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))
}

// floats returns the float32 values of an input.
func floats(v gorgonia.Value) []float32 { return v.(*tensor.Dense).Float32s() }
