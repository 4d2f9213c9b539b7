// Package slow marks tests that take more than a few seconds: go test ./... skips them, .ci/run does not.
package slow

import (
	"os"
	"testing"
)

// Enabled says whether slow tests run: the environment variable EVENKEEL_SLOW is set.
func Enabled() bool { return os.Getenv("EVENKEEL_SLOW") != "" }

// Skip skips a test unless slow tests run.
func Skip(t testing.TB) {
	t.Helper()
	if !Enabled() {
		t.Skip("slow: set EVENKEEL_SLOW=1 to run it, as .ci/run does")
	}
}
