package matrix

import "math"

// longK needs more than one block of the products.
const longK = 2 * blockK

// wrongProduct returns the index of the first element whose bits are not what they must be, or -1.
func wrongProduct(got, want []float32) int {
	for i := range got {
		// Which of several NaN patterns comes out is the processor's choice.
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) && !(got[i] != got[i] && want[i] != want[i]) {
			return i
		}
	}
	return -1
}
