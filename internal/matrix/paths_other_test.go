//go:build !amd64

package matrix

import "testing"

func eachPath(t *testing.T, f func(t *testing.T)) { t.Run("portable", f) }
