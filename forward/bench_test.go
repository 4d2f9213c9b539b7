package forward

import (
	"fmt"
	"testing"
)

func BenchmarkSweep(b *testing.B) {
	for _, kind := range []Kind{Rademacher, Gaussian} {
		b.Run(fmt.Sprint(kind), func(b *testing.B) {
			w := make([]int32, 1<<22)
			b.SetBytes(4 * int64(len(w)))
			for i := range b.N {
				kind.add(w, 1, 0, 0, []term{{step: uint32(i), plus: 1000}})
			}
		})
	}
}
