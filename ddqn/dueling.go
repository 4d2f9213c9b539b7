package ddqn

import "gorgonia.org/gorgonia"

// duel turns rows of [V[R], A[actions x R]] into rows of Q[a][r] = V[r] + A[a][r] - mean over a of A[a][r]
// (Wang et al. 2016, equation 9, one per objective).
//
// Deviation: because that map is linear, it is applied to the weights and to the bias of the joint head instead of
// to its outputs, row by row of the matrix. The Q-values and the gradients are the same up to rounding, and the
// work does not grow with the batch. The forward pass gets the head already in this form.
func duel(dst, src []float32, actions, objectives int) {
	in, out := objectives*(1+actions), objectives*actions
	for ; len(src) >= in; src, dst = src[in:], dst[out:] {
		v, a := src[:objectives], src[objectives:in]
		for r := range objectives {
			base := v[r] - strideMean(a[r:], actions, objectives)
			for i := r; i < out; i += objectives {
				dst[i] = base + a[i]
			}
		}
	}
}

// duelGrad is the transpose of duel: gradients of Q into gradients of V and A.
func duelGrad(dst, src []float32, actions, objectives int) {
	in, out := objectives*(1+actions), objectives*actions
	for ; len(src) >= out; src, dst = src[out:], dst[in:] {
		v, a := dst[:objectives], dst[objectives:in]
		for r := range objectives {
			mean := strideMean(src[r:], actions, objectives)
			v[r] = float32(float32(actions) * mean)
			for i := r; i < out; i += objectives {
				a[i] = src[i] - mean
			}
		}
	}
}

// strideMean is the mean of n values, step apart.
func strideMean(values []float32, n, step int) float32 {
	var sum float32
	for i := range n {
		sum += values[i*step]
	}
	return sum / float32(n)
}

// dueling is duel as an operation on a matrix (the weights) or a vector (the bias).
type dueling struct {
	fused
	result
	actions, objectives int
	grad                []float32 // where the gradient goes, see dense
}

// newDueling makes the operation for a matrix of that many rows, or for a vector where rows is 0.
func newDueling(rows, actions, objectives int, grad []float32) *dueling {
	f := fusedVector("ddqn.dueling", 1, actions*objectives)
	if rows > 0 {
		f = fusedMatrix("ddqn.dueling", 1, rows, actions*objectives)
	}
	return &dueling{f, f.result(nil), actions, objectives, grad}
}

func (d *dueling) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	duel(d.buf, floats(in[0]), d.actions, d.objectives)
	return d.out, nil
}

func (d *dueling) DiffWRT(int) []bool { return []bool{true} }

func (d *dueling) SymDiff(_ gorgonia.Nodes, _, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	f := d.fused
	f.name = "ddqn.dueling'"
	f.shape = d.shape.Clone()
	f.shape[len(f.shape)-1] = d.objectives * (1 + d.actions)
	n, err := gorgonia.ApplyOp(&duelingGrad{f, f.result(d.grad), d.actions, d.objectives}, grad)
	return gorgonia.Nodes{n}, err
}

type duelingGrad struct {
	fused
	result
	actions, objectives int
}

func (d *duelingGrad) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	duelGrad(d.buf, floats(in[0]), d.actions, d.objectives)
	return d.out, nil
}
