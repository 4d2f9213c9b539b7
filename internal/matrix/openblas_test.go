//go:build openblas

package matrix

import "testing"

const longK = 512

// wrongProduct allows for another order of the sums and for fused multiply-adds.
func wrongProduct(got, want []float32) int {
	for i, w := range want {
		// Equal infinities have no difference, a NaN is near nothing.
		if g := got[i]; g != w && !(max(g-w, w-g) <= 1e-3*max(1, w, -w)) && !(g != g && w != w) {
			return i
		}
	}
	return -1
}

func eachPath(t *testing.T, f func(t *testing.T)) { t.Run("openblas", f) }
