package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/evenkeel/evenkeel/forward"
	"github.com/evenkeel/evenkeel/train"
	"github.com/evenkeel/evenkeel/train/data"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T) *Server {
	t.Helper()
	s, err := Serve(ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Over the wire the weights are those of goroutines; one that comes late finds them too.
func TestOverTheWire(t *testing.T) {
	s := serve(t)
	net, err := train.MLP(64, 12, 10)
	if err != nil {
		t.Fatal(err)
	}
	digits, err := data.Digits()
	if err != nil {
		t.Fatal(err)
	}
	c := &forward.Config{Processors: 4, Directions: 2, Kind: forward.Rademacher, Key: 5, Steps: 40, Epsilon: 1e-3, LearningRate: 0.01, Schedule: "constant", Examples: []int{4, 4}}
	memory := forward.NewMemory()
	run := func(bus func(rank int) forward.Bus, ranks ...int) string {
		var wg sync.WaitGroup
		hashes, errs := make([]string, len(ranks)), make([]error, len(ranks))
		for i, rank := range ranks {
			p := &forward.Processor{Config: c, Rank: rank, Model: forward.NewModel(net), Data: digits, Weights: forward.NewWeights(net, c.Key), Bus: bus(rank)}
			wg.Go(func() {
				errs[i] = p.Run(t.Context())
				hashes[i] = p.Weights.Hash()
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		for _, h := range hashes {
			if h != hashes[0] {
				t.Fatal("weights differ")
			}
		}
		return hashes[0]
	}
	want := run(func(int) forward.Bus { return memory.Reader() }, 0, 1, 2, 3)

	owner, err := Connect(s.URL(), Options{Token: s.Token()})
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	if err := Create(t.Context(), owner, "a-run", []byte("what it is")); err != nil {
		t.Fatal(err)
	}
	if err := Create(t.Context(), owner, "a-run", nil); !errors.Is(err, ErrExists) {
		t.Errorf("a second of that name: %v", err)
	}
	var left []func()
	leave := func() {
		for _, f := range left {
			f()
		}
		left = nil
	}
	join := func(int) forward.Bus {
		conn, err := Connect(s.URL(), Options{Token: s.Token()})
		if err != nil {
			t.Fatal(err)
		}
		joined, err := Join(t.Context(), conn, "a-run")
		if err != nil {
			t.Fatal(err)
		}
		if string(joined.Header) != "what it is" {
			t.Errorf("header %q", joined.Header)
		}
		left = append(left, func() { joined.Bus.Close(); conn.Close() })
		return joined.Bus
	}
	if got := run(join, 0, 1, 2, 3); got != want {
		t.Errorf("over the wire %s, in one process %s", got, want)
	}
	if got := run(join, -1); got != want {
		t.Errorf("an observer afterwards has %s, want %s", got, want)
	}
	leave()
	if err := Remove(t.Context(), owner, "a-run"); err != nil {
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	s := serve(t)
	if c, err := Connect(s.URL(), Options{Token: "wrong"}); err == nil {
		c.Close()
		t.Error("a wrong token was let in")
	}
	c, err := Connect(s.URL(), Options{Token: s.Token()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := Join(ctx, c, "nothing"); !errors.Is(err, ErrNoRun) {
		t.Errorf("%v", err)
	}
	if _, err := Join(ctx, c, "no name!"); !errors.Is(err, ErrName) {
		t.Errorf("%v", err)
	}
	if err := Create(ctx, c, strings.Repeat("x", 65), nil); !errors.Is(err, ErrName) {
		t.Errorf("%v", err)
	}
	for _, o := range []ServerOptions{{Addr: "0.0.0.0:0"}, {Addr: "0.0.0.0:0", Token: "secret"}, {Addr: "example.org:1"}} {
		if s, err := Serve(o); !errors.Is(err, ErrOpen) {
			t.Errorf("%+v: %v", o, err)
			if err == nil {
				_ = s.Close()
			}
		}
	}
	for url, want := range map[string]error{"nats://10.0.0.1:4222": ErrOpen, "nats://example.org:4222": ErrOpen, "nothing": ErrURL, "": ErrURL} {
		if _, err := Connect(url, Options{}); !errors.Is(err, want) {
			t.Errorf("%q: %v", url, err)
		}
	}
	if _, err := Serve(ServerOptions{Addr: "127.0.0.1"}); err == nil {
		t.Error("an address without a port was taken")
	}
}

// Who comes late finds snapshots in the place of frames that are gone; who reads on where they are missing gets an error.
func TestSnapshotsAndGaps(t *testing.T) {
	s := serve(t)
	var traffic Traffic
	c, err := Connect(s.URL(), Options{Token: s.Token(), Traffic: &traffic})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := Create(ctx, c, "marked", []byte("header"), []byte("before")); err != nil {
		t.Fatal(err)
	}
	writer, err := Join(ctx, c, "marked")
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Bus.Close()
	next := func(b *Bus) (string, error) {
		for {
			if m, err := b.Next(ctx); len(m) > 0 || err != nil {
				return string(m), err
			}
		}
	}
	const snapshots = 2*keptSnapshots + 3
	for i := range snapshots {
		for k := range 3 {
			if err := writer.Bus.Publish(ctx, fmt.Appendf(nil, "frame %d.%d", i, k)); err != nil {
				t.Fatal(err)
			}
			if got, err := next(writer.Bus); err != nil || got != fmt.Sprintf("frame %d.%d", i, k) {
				t.Fatalf("%q, %v", got, err)
			}
		}
		if err := writer.Bus.PublishSnapshot(ctx, fmt.Appendf(nil, "snapshot %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Bus.Publish(ctx, []byte("the last")); err != nil {
		t.Fatal(err)
	}
	late, err := Join(ctx, c, "marked")
	if err != nil {
		t.Fatal(err)
	}
	defer late.Bus.Close()
	if n := len(late.Snapshots); n != snapshots+1 || string(late.Snapshots[0]) != "before" || string(late.Snapshots[n-1]) != fmt.Sprintf("snapshot %d", snapshots-1) {
		t.Errorf("%d snapshots: %q", n, late.Snapshots)
	}
	if got, err := next(late.Bus); err != nil || got != "the last" {
		t.Errorf("after the snapshots: %q, %v", got, err)
	}
	consumer, err := late.Bus.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 6})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		t.Fatal(err)
	}
	behind, done := &Bus{name: "marked", frames: make(chan message, 1024)}, make(chan struct{})
	defer func() { close(done); messages.Stop(); behind.pumping.Wait() }()
	behind.pumping.Go(func() { behind.pump(messages, 5, done) })
	for err = nil; err == nil; {
		_, err = next(behind)
	}
	if !errors.Is(err, ErrGap) {
		t.Errorf("reading where frames are gone: %v", err)
	}
	if got, err := late.Bus.Results(ctx); err != nil || len(got) != 0 {
		t.Errorf("results %q, %v", got, err)
	}
	if err := writer.Bus.Done(ctx, []byte("all well")); err != nil {
		t.Fatal(err)
	}
	if got, err := late.Bus.Results(ctx); err != nil || len(got) != 1 || string(got[0]) != "all well" {
		t.Errorf("results %q, %v", got, err)
	}
	if traffic.Sent() < snapshots*3*16 || traffic.Received() < snapshots*3*16 {
		t.Errorf("%d bytes sent, %d received", traffic.Sent(), traffic.Received())
	}
}
