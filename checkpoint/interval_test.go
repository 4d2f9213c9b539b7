package checkpoint

import (
	"testing"
	"time"
)

// simulate trains steps of this length, in which a save of step s adds stall to step s+after, and lasts persist.
func simulate(i *Interval, steps int, step, stall, persist time.Duration, after int) (share float64, saves int) {
	var total time.Duration
	last, until := -1<<20, time.Duration(-1)
	for s := range steps {
		begun := s-last >= i.Steps()
		if begun {
			last = s
			saves++
		}
		d := step
		if s == last+after {
			d += stall
		}
		saving := begun || total < until
		if begun {
			until = total + d + persist
			i.Saved(persist)
		}
		total += d
		i.Step(d, begun, saving)
	}
	return float64(total)/float64(time.Duration(steps)*step) - 1, saves
}

func TestInterval(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name                 string
		step, stall, persist time.Duration
		after, want          int
	}{
		{"free", 500 * ms, 0, 200 * ms, 0, 1},
		{"longer than three steps", 100 * ms, 0, 310 * ms, 0, 4},
		{"10% of one step", 500 * ms, 50 * ms, 200 * ms, 0, 3},
		{"stalls of a whole step", 100 * ms, 100 * ms, 90 * ms, 1, 29},
		{"steps far shorter than a save: the one after waits for all of it", ms, 6 * ms, 7 * ms, 1, 172},
	} {
		var i Interval
		if got := i.Steps(); got != 2 {
			t.Errorf("%s: %d steps before anything is known, want 2", c.name, got)
		}
		simulate(&i, 200, c.step, c.stall, c.persist, c.after) // finds out
		if got := i.Steps(); got != c.want {
			t.Errorf("%s: %d steps, want %d", c.name, got, c.want)
		}
		if share, saves := simulate(&i, 2000, c.step, c.stall, c.persist, c.after); share > 0.037 || saves < 2000/c.want-1 {
			t.Errorf("%s: %d saves take %.4f of the time", c.name, saves, share)
		}
	}
}

// Where saving becomes dear in the middle of a run the interval grows, and it shrinks again.
func TestIntervalAdapts(t *testing.T) {
	const ms = time.Millisecond
	var i Interval
	for _, c := range []struct {
		stall time.Duration
		want  int
	}{{0, 1}, {35 * ms, 10}, {7 * ms, 2}} {
		simulate(&i, 2000, 100*ms, c.stall, 20*ms, 0)
		if got := i.Steps(); got != c.want {
			t.Errorf("stall %v: %d steps, want %d", c.stall, got, c.want)
		}
	}
}
