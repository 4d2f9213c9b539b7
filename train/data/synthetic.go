package data

import (
	"fmt"
	"math/rand/v2"
)

// Synthetic is made-up samples that can be learned, as many as asked for: normally distributed inputs around a centre
// for each class. A sample is made anew each time from the seed and its number, so it takes no memory.
type Synthetic struct {
	samples int
	seed    uint64
	centres [][]float32
}

// NewSynthetic chooses the centres.
func NewSynthetic(samples, inputs, classes int, seed uint64) (*Synthetic, error) {
	if samples < 1 || inputs < 1 || classes < 1 {
		return nil, fmt.Errorf("%w: %d synthetic samples of %d inputs and %d classes; want at least 1 of each", errFormat, samples, inputs, classes)
	}
	s := &Synthetic{samples: samples, seed: seed}
	rng := rand.New(rand.NewPCG(seed, 0))
	for range classes {
		centre := make([]float32, inputs)
		for i := range centre {
			centre[i] = float32(rng.NormFloat64() / 2)
		}
		s.centres = append(s.centres, centre)
	}
	return s, nil
}

// Len is Set's.
func (s *Synthetic) Len() int { return s.samples }

// Shape is Set's.
func (s *Synthetic) Shape() (inputs, targets, classes, tokens int) {
	return len(s.centres[0]), 1, len(s.centres), 0
}

// Sample is Set's.
func (s *Synthetic) Sample(i int, inputs []float32, targets []int32) {
	rng := rand.New(rand.NewPCG(s.seed, uint64(i)+1))
	class := rng.IntN(len(s.centres))
	for j, c := range s.centres[class] {
		inputs[j] = c + float32(rng.NormFloat64())
	}
	targets[0] = int32(class)
}
