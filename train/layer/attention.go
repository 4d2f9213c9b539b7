package layer

import (
	"math"

	"evenkeel/internal/matrix"
)

// Attention is causal self-attention with several heads (Vaswani et al., "Attention Is All You Need", 2017): each
// position looks at itself and those before it. It has no parameters: the layer before it, a Dense, gives each
// position 3 x Size floats, which are query, key and value; the layer after it mixes the heads.
type Attention struct{ Positions, Size, Heads int }

// Params is Layer's: none.
func (Attention) Params() []Param { return nil }

// Sizes is Layer's.
func (a Attention) Sizes() (in, out int) { return a.Positions * 3 * a.Size, a.Positions * a.Size }

// Memory is Layer's: the attention of each position to each other is kept.
func (a Attention) Memory(n int) (kept, scratch int) {
	square := a.Positions * a.Positions
	return n * a.Heads * square, square
}

// head is the part of one head of one sample in a matrix of Positions rows, the which-th of its columns.
func (a Attention) head(data []float32, sample, which, head, stride int) matrix.Matrix {
	size := a.Size / a.Heads
	begin := sample*a.Positions*stride + which*a.Size + head*size
	return matrix.Matrix{Data: data[begin:], Rows: a.Positions, Cols: size, RowStep: stride, ColStep: 1}
}

func (a Attention) scale() float32 {
	return float32(1 / math.Sqrt(float64(a.Size/a.Heads)))
}

// Forward is Layer's.
func (a Attention) Forward(w *Call) {
	p := a.Positions
	for s := range w.N {
		for h := range a.Heads {
			query, key, value := a.head(w.X, s, 0, h, 3*a.Size), a.head(w.X, s, 1, h, 3*a.Size), a.head(w.X, s, 2, h, 3*a.Size)
			prob := matrix.Of(w.Kept[(s*a.Heads+h)*p*p:][:p*p], p, p)
			multiply(prob, query, key.T())
			for i := range p {
				row := prob.Data[i*p:][:p]
				scale(row[:i+1], a.scale())
				softmax(row[:i+1])
				clear(row[i+1:])
			}
			multiply(a.head(w.Y, s, 0, h, a.Size), prob, value)
		}
	}
}

// Backward is Layer's.
func (a Attention) Backward(w *Call) {
	if w.DX == nil {
		return
	}
	p := a.Positions
	d := matrix.Of(w.Scratch[:p*p], p, p) // gradient of prob, then of what the softmax was taken of
	for s := range w.N {
		for h := range a.Heads {
			query, key, value := a.head(w.X, s, 0, h, 3*a.Size), a.head(w.X, s, 1, h, 3*a.Size), a.head(w.X, s, 2, h, 3*a.Size)
			dquery, dkey, dvalue := a.head(w.DX, s, 0, h, 3*a.Size), a.head(w.DX, s, 1, h, 3*a.Size), a.head(w.DX, s, 2, h, 3*a.Size)
			prob := matrix.Of(w.Kept[(s*a.Heads+h)*p*p:][:p*p], p, p)
			dy := a.head(w.DY, s, 0, h, a.Size)
			multiply(dvalue, prob.T(), dy)
			multiply(d, dy, value.T())
			for i := range p {
				softmaxGradient(d.Data[i*p:][:p], prob.Data[i*p:][:p])
			}
			scale(d.Data, a.scale())
			multiply(dquery, d, key)
			multiply(dkey, d.T(), query)
		}
	}
}

func scale(values []float32, factor float32) {
	for i := range values {
		values[i] *= factor
	}
}

// softmax replaces the values by exp(value) over the sum of those.
func softmax(row []float32) {
	top := row[0]
	for _, v := range row {
		top = max(top, v)
	}
	var sum float32
	for i, v := range row {
		row[i] = float32(math.Exp(float64(v - top)))
		sum += row[i]
	}
	for i := range row {
		row[i] /= sum
	}
}

// softmaxGradient replaces the gradient at a softmax's result by that at its input.
func softmaxGradient(d, result []float32) {
	var dot float32
	for i, r := range result {
		dot += float32(d[i] * r)
	}
	for i, r := range result {
		d[i] = r * (d[i] - dot)
	}
}
