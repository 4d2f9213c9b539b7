package env

import "testing"

// action is the index of an update with the middle margin.
func action(t testing.TB, trust Trust, drift float64) int {
	t.Helper()
	for i, a := range Actions {
		if a.Trust == trust && a.Drift == drift && a.Margin == margins[1] {
			return i
		}
	}
	t.Fatalf("no action %v with drift %v", trust, drift)
	return 0
}
