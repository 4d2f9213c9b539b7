package wire

import (
	"testing"

	"evenkeel/forward"
)

// Who makes runs can end one, from outside: all processors end with the same step and weights, and so does one that comes when it is over. A rank's token is
// not enough for another rank's, but is for its own processor.
func TestStopFromOutside(t *testing.T) {
	s := serve(t)
	conn := connect(t, s)
	w := newWorld(t, 1<<20) // far more than there is time for
	if err := Create(t.Context(), conn, "stopped", w.header); err != nil {
		t.Fatal(err)
	}
	run, err := Open(t.Context(), conn, "stopped")
	if err != nil {
		t.Fatal(err)
	}
	var all []*forward.Processor
	for rank := range w.config.Processors {
		p := w.join(s, "stopped", rank)
		p.OnBlock = func(b *forward.Block, _ []byte) error {
			if p.Rank == 3 && b.Number == 1 {
				return run.Stop(t.Context())
			}
			return nil
		}
		all = append(all, p)
	}
	hash := w.run(all...)
	steps := all[0].Steps()
	for _, p := range all {
		if p.Steps() != steps || !p.Done() {
			t.Errorf("rank %d: %d steps, rank 0 %d", p.Rank, p.Steps(), steps)
		}
	}
	if steps != 192 { // rank 3 sends its losses of the third block behind it
		t.Errorf("%d steps", steps)
	}
	late := w.join(s, "stopped", 2)
	if again := w.run(late); again != hash || late.Steps() != steps {
		t.Errorf("who comes late has %d steps, weights %s, want %s", late.Steps(), again, hash)
	}
}
