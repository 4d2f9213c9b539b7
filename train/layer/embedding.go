package layer

// Embedding turns each of Positions tokens into Size floats: the token's plus the position's. It is the first layer;
// tokens are whole numbers from 0 to Tokens-1, exact in float32 up to 2^24.
type Embedding struct{ Positions, Tokens, Size int }

// Params are a table of tokens and one of positions.
func (e Embedding) Params() []Param {
	return []Param{
		{Name: "token", Shape: []int{e.Tokens, e.Size}, Std: 0.02},
		{Name: "position", Shape: []int{e.Positions, e.Size}, Std: 0.02},
	}
}

// Sizes is Layer's.
func (e Embedding) Sizes() (in, out int) { return e.Positions, e.Positions * e.Size }

// Memory is Layer's.
func (Embedding) Memory(int) (kept, scratch int) { return 0, 0 }

// Forward is Layer's.
func (e Embedding) Forward(w *Call) {
	for i, token := range w.X {
		t := w.W[0][int(token)*e.Size:][:e.Size]
		p := w.W[1][i%e.Positions*e.Size:][:e.Size]
		y := w.Y[i*e.Size:][:e.Size]
		for j := range y {
			y[j] = t[j] + p[j]
		}
	}
}

// Backward is Layer's. Tokens have no gradient: DX is left alone.
func (e Embedding) Backward(w *Call) {
	clear(w.DW[0])
	clear(w.DW[1])
	for i, token := range w.X {
		t := w.DW[0][int(token)*e.Size:][:e.Size]
		p := w.DW[1][i%e.Positions*e.Size:][:e.Size]
		for j, g := range w.DY[i*e.Size:][:e.Size] {
			t[j] += g
			p[j] += g
		}
	}
}
