package samples_test

import (
	"fmt"

	"github.com/evenkeel/evenkeel/cluster/samples"
)

// Two nodes are handed more than either may manage until the deadline. The second is late
// in the first round; what the first did not use comes first in the next.
func ExampleEpoch() {
	epoch := samples.New(100)
	epoch.Deal([]int{30, 30})
	_ = epoch.Settle([]int{24, samples.Pending})
	dealt := epoch.Deal([]int{30, 30})
	fmt.Println(dealt[0], epoch.Left(), "left")

	used := []int{24, 16}
	_ = epoch.Settle(used)
	fmt.Println(samples.Weights(used), epoch.Left(), "left")
	// Output:
	// [{24 30} {60 84}] 76 left
	// [0.6 0.4] 36 left
}
