package train

import (
	"errors"
	"fmt"
)

// ErrOutOfMemory is returned instead of allocating beyond an Arena's budget.
var ErrOutOfMemory = errors.New("train: out of memory")

// maxFloats is the most that is allocated at a time.
const maxFloats = 1 << 40

// Arena counts what a training step allocates: weights, gradients, moments and activations. It stands in for a
// device's memory. A nil Arena counts nothing and refuses nothing.
type Arena struct {
	Budget int64 // bytes; 0: no limit
	used   int64
}

// Used is the bytes allocated so far; nothing is given back, so it is also the peak.
func (a *Arena) Used() int64 { return a.used }

// floats allocates n zeros.
func (a *Arena) floats(n int) ([]float32, error) {
	if n < 0 || n > maxFloats { // of sizes whose product is none
		return nil, fmt.Errorf("%w: %d floats at a time", ErrOutOfMemory, n)
	}
	if a != nil {
		bytes := 4 * int64(n)
		if a.Budget > 0 && bytes > a.Budget-a.used {
			return nil, fmt.Errorf("%w: %d bytes more than the %d in use pass the budget of %d", ErrOutOfMemory, bytes, a.used, a.Budget)
		}
		a.used += bytes
	}
	return make([]float32, n), nil
}
