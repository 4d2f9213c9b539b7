package layer

// Layer is one step of a network: n samples in, n samples out. A layer holds sizes only; weights, activations and
// gradients are in the Call it is given, so that many replicas share one.
type Layer interface {
	// Params describes the parameters, names without the layer's.
	Params() []Param
	// Sizes are the floats of a sample, in and out.
	Sizes() (in, out int)
	// Memory is what n samples need beside that: floats that Forward leaves for Backward, and floats that are free
	// again when either returns.
	Memory(n int) (kept, scratch int)
	// Forward sets Y from W and X.
	Forward(w *Call)
	// Backward sets DW, and DX unless it is nil, from W, X, Y, DY and what Forward kept.
	Backward(w *Call)
}

// Param describes a parameter.
type Param struct {
	Name  string
	Shape []int
	Std   float64 // standard deviation of the initial values
	Mean  float64 // of the initial values
}

// Len is the number of elements.
func (p Param) Len() int {
	n := 1
	for _, d := range p.Shape {
		n *= d
	}
	return n
}

// Call is one call of a layer. All matrices are row-major, a sample after the other.
type Call struct {
	N             int         // samples
	W, DW         [][]float32 // parameters and the loss's gradient with respect to them, in the order of Params
	X, Y          []float32   // input, output
	DX, DY        []float32   // the loss's gradient with respect to them
	Kept, Scratch []float32
}
