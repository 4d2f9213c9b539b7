package matrix

import "testing"

// eachPath runs a test with the assembly, where the processor has AVX, and with the portable code.
func eachPath(t *testing.T, f func(t *testing.T)) {
	if hasAVX {
		t.Run("avx", f)
	}
	t.Run("portable", func(t *testing.T) {
		defer func(was bool) { hasAVX = was }(hasAVX)
		hasAVX = false
		f(t)
	})
}
