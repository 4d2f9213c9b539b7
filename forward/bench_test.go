package forward

import (
	"fmt"
	"testing"

	"evenkeel/train"
)

// Moves along one direction and along many.
func BenchmarkSweep(b *testing.B) {
	for _, directions := range []int{1, 4, 64} {
		b.Run(fmt.Sprint(directions), func(b *testing.B) {
			w := make([]int32, 1<<22)
			b.SetBytes(4 * int64(len(w)))
			for i := range b.N {
				var terms []term
				for d := range directions {
					terms = append(terms, term{step: uint32(i), direction: uint32(d), plus: int64(1000 + d)})
				}
				addTerms(w, 1, 0, 0, terms)
			}
		})
	}
}

// A forward pass of two inputs of 16 examples, from fixed point and from floats.
func BenchmarkForward(b *testing.B) {
	net, err := train.MLP(1024, 1600, 1600, 10)
	if err != nil {
		b.Fatal(err)
	}
	w, batch := NewWeights(net, 1), train.Batch{Inputs: make([]float32, 32*1024), Targets: make([]int32, 32)}
	for i := range batch.Inputs {
		batch.Inputs[i] = float32(i%17) / 17
	}
	b.Run("fixed point", func(b *testing.B) {
		m := NewModel(net)
		for range b.N {
			if _, err := m.Losses(w, batch); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("float", func(b *testing.B) {
		v := w.Values(net)
		pass, err := net.NewPass(32, false)
		if err != nil {
			b.Fatal(err)
		}
		for range b.N {
			if _, err := pass.Loss(v, batch); err != nil {
				b.Fatal(err)
			}
		}
	})
}
