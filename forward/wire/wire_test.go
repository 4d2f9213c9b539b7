package wire

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"evenkeel/forward"
	"evenkeel/train"
	"evenkeel/train/data"
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

// world is a small run.
type world struct {
	t      *testing.T
	net    *train.Network
	digits data.Set
	config *forward.Config
	start  *forward.Weights
	header []byte
}

func newWorld(t *testing.T, steps int) *world {
	t.Helper()
	net, err := train.MLP(64, 12, 10)
	if err != nil {
		t.Fatal(err)
	}
	digits, err := data.Digits()
	if err != nil {
		t.Fatal(err)
	}
	c := &forward.Config{Processors: 4, Estimator: forward.Paired, Directions: 2, Key: 5, Steps: steps, Epsilon: 1e-3, LearningRate: 0.01, Schedule: "constant", Examples: []int{4, 4}, Guard: true}
	w := &world{t: t, net: net, digits: digits, config: c, start: forward.NewWeights(net, c.Key)}
	h := forward.NewHeader(*c, forward.Examples{Count: digits.Len()}, forward.FromKey, w.start)
	if w.header, err = h.Encode(); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) processor(rank int, bus forward.Bus) *forward.Processor {
	w.t.Helper()
	r, err := forward.NewReplica(w.header, w.start.Clone())
	if err != nil {
		w.t.Fatal(err)
	}
	return &forward.Processor{Replica: r, Rank: rank, Model: forward.NewModel(w.net), Data: w.digits, Bus: bus, Patience: time.Minute}
}

// join joins by a connection of its own, with the rank's own token, after the run's blocks so far.
func (w *world) join(s *Server, name string, rank int) *forward.Processor {
	w.t.Helper()
	return w.joinAt(s.URL(), s, name, rank)
}

// joinAt is join by another way to the server, whose silence is soon seen.
func (w *world) joinAt(address string, s *Server, name string, rank int) *forward.Processor {
	w.t.Helper()
	conn, err := Connect(address, Options{Rank: rank, Token: RankToken(s.Token(), rank), heartbeat: 500 * time.Millisecond})
	if err != nil {
		w.t.Fatal(err)
	}
	run, err := Open(w.t.Context(), conn, name)
	if err != nil {
		w.t.Fatal(err)
	}
	p := w.processor(rank, nil)
	blocks, err := run.Blocks(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	after := uint64(0)
	for _, b := range blocks {
		block, err := p.Apply(b.Data)
		if err != nil {
			w.t.Fatal(err)
		}
		after = min(block.Position, b.Position)
	}
	bus, err := run.Join(w.t.Context(), rank, after)
	if err != nil {
		w.t.Fatal(err)
	}
	p.Bus = bus
	w.t.Cleanup(func() { bus.Close(); conn.Close() })
	return p
}

// run runs processors and returns the hash that all have.
func (w *world) run(all ...*forward.Processor) string {
	w.t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for i, p := range all {
		wg.Go(func() { errs[i] = p.Run(w.t.Context()) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		w.t.Fatal(err)
	}
	for _, p := range all {
		if p.Weights.Hash() != all[0].Weights.Hash() {
			w.t.Fatal("weights differ")
		}
	}
	return all[0].Weights.Hash()
}

// alone is what all processors come to in one process.
func (w *world) alone() string {
	w.t.Helper()
	memory := forward.NewMemory()
	var all []*forward.Processor
	for rank := range w.config.Processors {
		all = append(all, w.processor(rank, memory.Reader(rank)))
	}
	return w.run(all...)
}

func connect(t *testing.T, s *Server) *nats.Conn {
	t.Helper()
	c, err := Connect(s.URL(), Options{Rank: -1, Token: s.Token()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Over the wire the weights are those of goroutines; one that comes late finds them too, and so does who follows the blocks.
func TestOverTheWire(t *testing.T) {
	s, w := serve(t), newWorld(t, 150)
	want, owner := w.alone(), connect(t, s)
	if err := Create(t.Context(), owner, "a-run", w.header); err != nil {
		t.Fatal(err)
	}
	if err := Create(t.Context(), owner, "a-run", []byte("x")); !errors.Is(err, ErrExists) {
		t.Errorf("a second of that name: %v", err)
	}
	run, err := Open(t.Context(), owner, "a-run")
	if err != nil {
		t.Fatal(err)
	}
	follower, err := run.Follow(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer follower.Close()
	if got := w.run(w.join(s, "a-run", 0), w.join(s, "a-run", 1), w.join(s, "a-run", 2), w.join(s, "a-run", 3)); got != want {
		t.Errorf("over the wire %s, in one process %s", got, want)
	}
	late := w.join(s, "a-run", 1)
	if !late.Done() || late.Weights.Hash() != want {
		t.Errorf("one that comes late: %d steps, %s, want %s", late.Steps(), late.Weights.Hash(), want)
	}
	if err := late.Run(t.Context()); err != nil {
		t.Error(err)
	}
	replica := w.processor(0, nil).Replica
	for !replica.Done() {
		m, err := follower.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if m.Frame != nil {
			t.Fatal("who follows blocks gets frames")
		}
		if replica.Follows(m.Block) {
			if _, err := replica.Apply(m.Block); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := replica.Weights.Hash(); got != want {
		t.Errorf("who follows has %s, want %s", got, want)
	}
	if err := late.Bus.(*Bus).Result(t.Context(), []byte("well")); err != nil {
		t.Error(err)
	}
	if results, err := run.Results(t.Context()); err != nil || len(results) != 1 || string(results[1]) != "well" {
		t.Errorf("results %v, %v", results, err)
	}
	if bytes, last, err := run.Size(t.Context()); err != nil || bytes < 4*150*16 || time.Since(*last) > time.Minute {
		t.Errorf("%d bytes, %v, %v", bytes, last, err)
	}
	if names, err := Runs(t.Context(), owner); err != nil || fmt.Sprint(names) != "[a-run]" {
		t.Errorf("runs %v, %v", names, err)
	}
	if err := Remove(t.Context(), owner, "a-run"); err != nil {
		t.Error(err)
	}
	if err := Remove(t.Context(), owner, "a-run"); !errors.Is(err, ErrNoRun) {
		t.Errorf("removed twice: %v", err)
	}
}

// A server that was stopped and started again on the same address has the run, which goes on by itself.
func TestServerComesBack(t *testing.T) {
	w, dir := newWorld(t, 300), t.TempDir()
	want := w.alone()
	s, err := Serve(ServerOptions{Dir: dir, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	again := ServerOptions{Dir: dir, Token: "secret", Addr: strings.TrimPrefix(s.URL(), "nats://")}
	if _, err := Serve(ServerOptions{Dir: dir}); err == nil || !strings.Contains(err.Error(), "in use by another server") {
		t.Errorf("a second server in the folder: %v", err)
	}
	if err := Create(t.Context(), connect(t, s), "r", w.header); err != nil {
		t.Fatal(err)
	}
	var all []*forward.Processor
	for rank := range 4 {
		all = append(all, w.join(s, "r", rank))
	}
	stopped := 0
	all[0].OnStep = func(step int, _ forward.Commit) error {
		if step%100 != 50 {
			return nil
		}
		stopped++
		if err := s.Close(); err != nil {
			return err
		}
		s, err = Serve(again)
		return err
	}
	if got := w.run(all...); got != want || stopped != 3 {
		t.Errorf("after %d restarts %s, want %s", stopped, got, want)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A server whose storage is gone has another run of that name, or none: who took part stops, and says so.
func TestServerLostItsStorage(t *testing.T) {
	w, dir := newWorld(t, 100_000), t.TempDir()
	s, err := Serve(ServerOptions{Dir: dir, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(s.URL(), "nats://")
	if err := Create(t.Context(), connect(t, s), "r", w.header); err != nil {
		t.Fatal(err)
	}
	var all []*forward.Processor
	for rank := range 4 {
		all = append(all, w.join(s, "r", rank))
	}
	all[0].OnStep = func(step int, _ forward.Commit) error {
		if step != 20 {
			return nil
		}
		if err := errors.Join(s.Close(), os.RemoveAll(dir)); err != nil {
			return err
		}
		if s, err = Serve(ServerOptions{Dir: dir, Token: "secret", Addr: address}); err != nil {
			return err
		}
		return Create(t.Context(), connect(t, s), "r", w.header)
	}
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	errs := make([]error, 4)
	for i, p := range all {
		wg.Go(func() { errs[i] = p.Run(ctx) })
	}
	wg.Wait()
	for rank, err := range errs {
		if !errors.Is(err, ErrLost) {
			t.Errorf("processor %d: %v", rank, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
