package checkpoint

import (
	"testing"
	"time"
)

func TestInterval(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name                 string
		quiet, busy, persist time.Duration
		want                 int
	}{
		{"free", 500 * ms, 500 * ms, 200 * ms, 1},
		{"longer than three steps", 100 * ms, 100 * ms, 310 * ms, 4},
		{"10% of one step", 500 * ms, 550 * ms, 200 * ms, 3},
		{"stalls of a whole step", 100 * ms, 200 * ms, 90 * ms, 29},
	} {
		var i Interval
		if got := i.Steps(); got != 2 {
			t.Errorf("%s: %d steps before anything is known, want 2", c.name, got)
		}
		for range 5 {
			i.Step(c.quiet, false)
			i.Step(c.busy, true)
			i.Saved(c.persist)
		}
		if got := i.Steps(); got != c.want {
			t.Errorf("%s: %d steps, want %d", c.name, got, c.want)
		}
	}
}
