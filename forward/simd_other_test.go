//go:build !amd64

package forward

import "testing"

// eachPath runs a test with the portable code, the only one.
func eachPath(t *testing.T, f func(t *testing.T)) { t.Run("portable", f) }
