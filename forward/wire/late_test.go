package wire

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"evenkeel/forward"
)

// A server whose answers come late changes how long a run takes, and nothing else.
func TestServerThatAnswersLate(t *testing.T) {
	s, w := serve(t), newWorld(t, 20)
	want := w.alone()
	if err := Create(t.Context(), connect(t, s), "r", w.header); err != nil {
		t.Fatal(err)
	}
	address, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	slow := newCable(t, address.Host, 50*time.Millisecond)
	three := w.joinAt("nats://"+slow.Addr().String(), s, "r", 3)
	begun := time.Now()
	if got := w.run(w.join(s, "r", 0), w.join(s, "r", 1), w.join(s, "r", 2), three); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if took := time.Since(begun); took < 20*slow.late {
		t.Errorf("20 steps took %v: nothing was late", took)
	}
}

// A server that stores no more, as its disk is full, ends a processor with that reason; it does not go on without.
func TestDiskThatIsFull(t *testing.T) {
	s, w := serve(t), newWorld(t, 2000)
	owner := connect(t, s)
	if err := Create(t.Context(), owner, "r", w.header); err != nil {
		t.Fatal(err)
	}
	p := w.join(s, "r", 0)
	bus := p.Bus.(*Bus)
	bus.run.refusedFor = 500 * time.Millisecond
	js, err := jetstream.New(owner)
	if err != nil {
		t.Fatal(err)
	}
	info, err := bus.run.stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	full := info.Config
	full.MaxBytes = int64(info.State.Bytes) + 10
	if _, err := js.UpdateStream(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	err = p.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "is its disk full? ") || !strings.Contains(err.Error(), "maximum bytes exceeded") || !strings.Contains(err.Error(), "processor 0, step 0") {
		t.Errorf("got %v", err)
	}
}

// A connection that ends without a word, as when a machine between loses power, is made anew: nobody waits for it for ever, and nothing is lost.
func TestConnectionThatFallsSilent(t *testing.T) {
	s, w := serve(t), newWorld(t, 100)
	want := w.alone()
	if err := Create(t.Context(), connect(t, s), "r", w.header); err != nil {
		t.Fatal(err)
	}
	address, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	weak := newCable(t, address.Host, 0)
	three := w.joinAt("nats://"+weak.Addr().String(), s, "r", 3)
	three.OnStep = func(step int, _ forward.Commit) error {
		if step == 50 {
			weak.hush()
		}
		return nil
	}
	if got := w.run(w.join(s, "r", 0), w.join(s, "r", 1), w.join(s, "r", 2), three); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
