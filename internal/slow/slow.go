// Package slow marks tests that take more than a few seconds: go test ./... skips them, .ci/run does not.
package slow

import (
	"os"
	"testing"
)

// Skip skips a test unless the environment variable EVENKEEL_SLOW is set.
func Skip(t testing.TB) {
	t.Helper()
	if os.Getenv("EVENKEEL_SLOW") == "" {
		t.Skip("slow: set EVENKEEL_SLOW=1 to run it, as .ci/run does")
	}
}
