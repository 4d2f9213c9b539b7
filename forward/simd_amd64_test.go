package forward

import "testing"

// eachPath runs a test with the assembly, where the processor has AVX2, and with the portable code.
func eachPath(t *testing.T, f func(t *testing.T)) {
	if hasAVX2 {
		t.Run("avx2", f)
	}
	t.Run("portable", func(t *testing.T) {
		defer func(was bool) { hasAVX2 = was }(hasAVX2)
		hasAVX2 = false
		f(t)
	})
}
