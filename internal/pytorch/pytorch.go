// Package pytorch finds the Python in which tests run PyTorch.
package pytorch

import (
	"os"
	"path/filepath"
	"testing"
)

// Python is the interpreter of the environment that .ci/python makes, or the one that EVENKEEL_PYTHON names. Without one
// the test is skipped.
func Python(t testing.TB) string {
	t.Helper()
	python := os.Getenv("EVENKEEL_PYTHON")
	if python == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			t.Skip(err)
		}
		python = filepath.Join(home, ".cache/evenkeel/venv/bin/python")
	}
	if _, err := os.Stat(python); err != nil {
		t.Skipf("no Python with PyTorch: run .ci/python, or set EVENKEEL_PYTHON (%v)", err)
	}
	return python
}
