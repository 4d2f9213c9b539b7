package env

import (
	"testing"

	"evenkeel/env/internal/envtest"
)

// A node is silent beyond three times what its measured speed predicts, whatever the belief
// is.
func TestSilent(t *testing.T) {
	c := envtest.Mixed(t, 4)
	tracker := NewTracker(c)
	expect := func(i int, slow float64) float64 {
		return c.Nodes[i].Finish(c.Nodes[i].Slowed(c.Nominal()[i], slow), 20)
	}
	set := func(i int, count, level, newest, busy float64) {
		n := &tracker.nodes[i]
		n.count, n.level, n.newest[0], n.slowdown, n.busy, n.busySize = count, level, newest, 50, busy, 20
	}
	set(0, 9, 1, 1, 3.1*expect(0, 1))
	set(1, 9, 1, 2, 3.1*expect(1, 1)) // it was slower just now
	set(2, 9, 2, 1, 3.1*expect(2, 2))
	set(3, 0, 1, 0, 3.1*expect(3, 1)) // not measured: the belief decides
	if got := tracker.Silent(nil); got != 2 {
		t.Errorf("%d are silent, want 2", got)
	}
	if got := tracker.Silent([]bool{false, true, true, true}); got != 1 {
		t.Errorf("%d of those present are silent, want 1", got)
	}
	tracker.nodes[3].slowdown = 1
	tracker.nodes[2].busySize = 0
	if got := tracker.Silent(nil); got != 2 {
		t.Errorf("%d are silent, want 2", got)
	}
}
