package wire

import (
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"evenkeel/forward"
	"evenkeel/train"
	"evenkeel/train/data"
)

// cable carries connections to a server until it is cut.
type cable struct {
	net.Listener
	to   string
	late time.Duration // by which it carries

	silent atomic.Pointer[silence] // of the connections of now

	mu    sync.Mutex
	cut   bool
	conns []net.Conn
	all   sync.WaitGroup
}

func newCable(t *testing.T, to string, late time.Duration) *cable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{Listener: l, to: to, late: late}
	c.silent.Store(&silence{})
	c.all.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			c.connect(from)
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		c.set(true)
		c.all.Wait()
	})
	return c
}

func (c *cable) connect(from net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to, err := net.Dial("tcp", c.to)
	if err != nil || c.cut {
		_ = from.Close()
		return
	}
	c.conns = append(c.conns, from, to)
	silent := c.silent.Load()
	c.all.Go(func() { _, _ = io.Copy(from, lateReader{to, c.late, silent}) })
	c.all.Go(func() { _, _ = io.Copy(to, lateReader{from, c.late, silent}) })
}

// silence is whether connections carry nothing, without an end.
type silence struct{ atomic.Bool }

// hush silences the connections of now; those to come are as usual.
func (c *cable) hush() { c.silent.Swap(&silence{}).Store(true) }

// lateReader hands on what it reads after a while, or never.
type lateReader struct {
	io.Reader
	late   time.Duration
	silent *silence
}

func (r lateReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	time.Sleep(r.late)
	for err == nil && r.silent.Load() {
		n, err = r.Reader.Read(b)
	}
	return n, err
}

// set cuts the cable, or mends it.
func (c *cable) set(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

// A processor that the network cuts off for a while misses steps, comes back by itself, and ends with everybody's weights.
func TestPartition(t *testing.T) {
	s := serve(t)
	net, err := train.MLP(64, 12, 10)
	if err != nil {
		t.Fatal(err)
	}
	digits, err := data.Digits()
	if err != nil {
		t.Fatal(err)
	}
	c := &forward.Config{Processors: 4, Estimator: forward.Paired, Directions: 2, Key: 5, Steps: 400, Epsilon: 1e-3, LearningRate: 0.01, Schedule: "constant", Examples: []int{4, 4}}
	owner, err := Connect(s.URL(), Options{Rank: -1, Token: s.Token()})
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	start := forward.NewWeights(net, c.Key)
	h := forward.NewHeader(*c, forward.Examples{Count: digits.Len()}, forward.FromKey, start)
	header, err := h.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := Create(t.Context(), owner, "cut", header); err != nil {
		t.Fatal(err)
	}
	address, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	weak := newCable(t, address.Host, 0)
	var all sync.WaitGroup
	processors, errs := make([]*forward.Processor, 4), make([]error, 4)
	for rank := range processors {
		to := s.URL()
		if rank == 3 {
			to = "nats://" + weak.Addr().String()
		}
		conn, err := Connect(to, Options{Rank: -1, Token: s.Token()})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		run, err := Open(t.Context(), conn, "cut")
		if err != nil {
			t.Fatal(err)
		}
		bus, err := run.Join(t.Context(), rank, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer bus.Close()
		replica, err := forward.NewReplica(run.Header, start.Clone())
		if err != nil {
			t.Fatal(err)
		}
		p := &forward.Processor{Replica: replica, Rank: rank, Model: forward.NewModel(net), Data: digits, Bus: bus, Patience: 100 * time.Millisecond}
		p.OnStep = func(step int, _ forward.Commit) error {
			if rank == 0 {
				switch time.Sleep(5 * time.Millisecond); step {
				case 50:
					weak.set(true)
				case 60:
					weak.set(false)
				}
			}
			return nil
		}
		processors[rank] = p
		all.Go(func() { errs[rank] = p.Run(t.Context()) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, p := range processors {
		if got, want := p.Weights.Hash(), processors[0].Weights.Hash(); got != want {
			t.Errorf("processor %d has %s, processor 0 %s", p.Rank, got, want)
		}
	}
	if missed := processors[3].Stats().Missed; missed < 5 || missed > 390 {
		t.Errorf("the pair missed %d of 400 steps", missed)
	}
}

// Close ends what reads, also where the connection has just come back: both end the consumer that was.
func TestCloseAfterTheConnectionCameBack(t *testing.T) {
	s, w := serve(t), newWorld(t, 10)
	if err := Create(t.Context(), connect(t, s), "r", w.header); err != nil {
		t.Fatal(err)
	}
	address, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	weak := newCable(t, address.Host, 0)
	conn, err := Connect("nats://"+weak.Addr().String(), Options{Rank: 0, Token: RankToken(s.Token(), 0)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	run, err := Open(t.Context(), conn, "r")
	if err != nil {
		t.Fatal(err)
	}
	var all []*Bus
	for range 50 {
		bus, err := run.Join(t.Context(), 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, bus)
	}
	for range 3 {
		time.Sleep(200 * time.Millisecond)
		back := conn.StatusChanged(nats.CONNECTED)
		weak.set(true)
		weak.set(false)
		<-back
		conn.RemoveStatusListener(back)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, bus := range all {
			bus.Close()
		}
	}()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("a bus does not end")
	}
}
