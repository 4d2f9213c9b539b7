package plain_test

import (
	"fmt"

	"evenkeel/bucket"
	"evenkeel/bucket/plain"
)

// flat is a cost of one's own: no table is needed where a formula is known.
type flat struct{}

func (flat) Seconds(length, batch int) float64 { return 0.1 + 1e-3*float64(length*batch) }
func (flat) Cap(length int) int                { return 100 / length }
func (flat) Breaks(int) []int                  { return nil } // Seconds is a straight line in the batch

// A cost of one's own, and what mixing costs.
func ExampleMake() {
	var lengths bucket.Lengths
	for i := range uint32(4000) {
		lengths = append(lengths, 1+i%50)
	}
	for _, mixing := range []float64{0, bucket.DefaultMixing, 1} {
		plan, err := plain.Make(lengths, flat{}, bucket.Config{Ranks: 4, Mixing: &mixing, Overlong: bucket.Refuse})
		if err != nil {
			fmt.Println(err)
			return
		}
		again, _ := bucket.Recurrence(plan, lengths, 1, 0)
		fmt.Printf("mixing %.1f: %.2f of the lower bound, %.0f%% of the pairs in a step meet again\n", mixing, plan.EpochSeconds/plan.LowerBoundSeconds, 100*again)
	}
	// Output:
	// mixing 0.0: 1.01 of the lower bound, 17% of the pairs in a step meet again
	// mixing 0.2: 1.01 of the lower bound, 8% of the pairs in a step meet again
	// mixing 1.0: 1.81 of the lower bound, 0% of the pairs in a step meet again
}
