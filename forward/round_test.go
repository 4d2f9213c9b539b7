package forward

import (
	"testing"

	"github.com/evenkeel/evenkeel/train"
)

// However steep the losses, no step moves a weight so far that a check could miss it.
func TestStepsAreBounded(t *testing.T) {
	for _, kind := range []Kind{Rademacher, Gaussian} {
		c := testConfig(8, 4, 10)
		c.Kind, c.Momentum, c.LearningRate = kind, 0.9, 100
		var r round
		r.begin(c, 0, 15)
		for rank := range 8 {
			r.take(Frame{Rank: uint16(rank), Losses: [2]float32{float32(1e6 * float64(1-2*(rank%2))), 0}})
		}
		w := &Weights{params: []train.Param{{Name: "w", Shape: []int{4096}}}, data: [][]int32{make([]int32, 4096)}, shift: []uint{0}}
		s := &state{config: c, w: w}
		for step := range uint32(checkEvery) {
			s.apply(step, r.decide(15).Increments, nil)
		}
		for _, x := range w.data[0] {
			if x > checkEvery*maxMove || x < -checkEvery*maxMove {
				t.Fatalf("%s: an entry moved by %d in %d steps", kind, x, checkEvery)
			}
		}
	}
}
