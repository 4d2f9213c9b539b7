// Package dueling computes the dueling head (Wang et al., ICML 2016) of several objectives.
package dueling

// Fold turns rows of [V[R], A[actions x R]] into rows of Q[a][r] = V[r] + A[a][r] - mean over a of A[a][r]
// (equation 9 of the paper, one per objective).
//
// Deviation: because that map is linear, it is applied to the weights and to the bias of the joint head instead of
// to its outputs, row by row of the matrix. The Q-values and the gradients are the same up to rounding, and the
// work does not grow with the batch.
func Fold(dst, src []float32, actions, objectives int) {
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

// Gradient is the transpose of Fold: gradients of Q into gradients of V and A.
func Gradient(dst, src []float32, actions, objectives int) {
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
