// Package peers prices plans as other planners do, so that plans can be compared under a peer's own cost function and
// input. Each file says whose formulas it follows; code that scores a finished plan stands apart from the search.
package peers

import "errors"

// ErrInput is wrapped by errors about a peer's input files.
var ErrInput = errors.New("invalid input")
