// Package wire carries the frames of forward-only training between processes, over NATS: an embedded server, or an
// existing cluster by its URL. A run is a JetStream stream, which keeps all frames in one order for everybody and gives
// them again to a processor that comes back.
//
//	server, err := wire.Serve(wire.ServerOptions{})              // on loopback, with a token of its own
//	conn, err := wire.Connect(server.URL(), wire.Options{Token: server.Token()})
//	err = wire.Create(ctx, conn, "run", header)                  // once
//	header, bus, err := wire.Join(ctx, conn, "run")              // every processor
package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/evenkeel/evenkeel/forward"
)

// Errors of runs.
var (
	// ErrExists is told by Create where there is a run of that name.
	ErrExists = errors.New("wire: there is a run of that name")
	// ErrNoRun is told by Join where there is none.
	ErrNoRun = errors.New("wire: no such run")
	// ErrURL is told of addresses that are none.
	ErrURL = errors.New("wire: no address of a server")
	// ErrName is told of names that cannot be.
	ErrName = errors.New("wire: a run's name has letters, digits, - and _, at most 64")
)

var names = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Options of Connect.
type Options struct {
	Token  string
	CAFile string // of the server's certificate; empty: the system's
}

// Connect connects to a server, and again whenever the connection is lost.
func Connect(address string, o Options) (*nats.Conn, error) {
	if err := private(address); err != nil {
		return nil, err
	}
	options := []nats.Option{nats.Name("evenkeel forward"), nats.MaxReconnects(-1), nats.ReconnectWait(200 * time.Millisecond)}
	if o.Token != "" {
		options = append(options, nats.Token(o.Token))
	}
	if o.CAFile != "" {
		options = append(options, nats.RootCAs(o.CAFile))
	}
	c, err := nats.Connect(address, options...)
	if err != nil {
		return nil, fmt.Errorf("wire: connect to %s: %w", address, err)
	}
	return c, nil
}

// private refuses to talk in clear text beyond this machine: frames decide about weights, and the token goes first.
func private(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return fmt.Errorf("%w: %q; want nats://HOST:PORT or tls://HOST:PORT", ErrURL, address)
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme == "tls" || u.Scheme == "wss" || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("%w: %s; use tls://", ErrOpen, address)
}

func stream(name string) string { return "EVENKEEL_" + name }

func subject(name, what string) string { return "evenkeel.forward." + name + "." + what }

// maxBytes bounds what a run keeps in the server's memory: a frame takes about 100 bytes there.
const maxBytes = 4 << 30

// Create begins a run. The header is what all its processors must know.
func Create(ctx context.Context, c *nats.Conn, name string, header []byte) error {
	if !names.MatchString(name) {
		return fmt.Errorf("%w: %q", ErrName, name)
	}
	js, err := jetstream.New(c)
	if err != nil {
		return fmt.Errorf("wire: %w", err)
	}
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: stream(name), Subjects: []string{subject(name, "*")}, Storage: jetstream.MemoryStorage, MaxBytes: maxBytes, Discard: jetstream.DiscardNew,
	})
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return fmt.Errorf("%w: %s", ErrExists, name)
	}
	if err != nil {
		return fmt.Errorf("wire: create run %s: %w", name, err)
	}
	_, err = js.Publish(ctx, subject(name, "header"), header, jetstream.WithExpectLastSequence(0))
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return fmt.Errorf("%w: %s", ErrExists, name)
	}
	if err != nil {
		return fmt.Errorf("wire: create run %s: %w", name, err)
	}
	return nil
}

// Remove ends a run: its frames are forgotten.
func Remove(ctx context.Context, c *nats.Conn, name string) error {
	js, err := jetstream.New(c)
	if err != nil {
		return fmt.Errorf("wire: %w", err)
	}
	if err := js.DeleteStream(ctx, stream(name)); err != nil {
		return fmt.Errorf("wire: remove run %s: %w", name, err)
	}
	return nil
}

// Bus is a run's frames. Close it when the run is over.
type Bus struct {
	js      jetstream.JetStream
	subject string
	frames  chan message
	last    message
	stop    func()
	pumping sync.WaitGroup
}

type message struct {
	data    []byte
	pending uint64 // behind it, when it was sent
	err     error
}

var _ forward.Bus = (*Bus)(nil)

// Join takes part in a run.
func Join(ctx context.Context, c *nats.Conn, name string) (header []byte, bus *Bus, err error) {
	if !names.MatchString(name) {
		return nil, nil, fmt.Errorf("%w: %q", ErrName, name)
	}
	js, err := jetstream.New(c)
	if err != nil {
		return nil, nil, fmt.Errorf("wire: %w", err)
	}
	s, err := js.Stream(ctx, stream(name))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil, fmt.Errorf("%w: %s", ErrNoRun, name)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("wire: join run %s: %w", name, err)
	}
	first, err := s.GetMsg(ctx, 1)
	if err != nil {
		return nil, nil, fmt.Errorf("wire: header of run %s: %w", name, err)
	}
	info, err := s.Info(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("wire: join run %s: %w", name, err)
	}
	consumer, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject(name, "frames")}, DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		return nil, nil, fmt.Errorf("wire: join run %s: %w", name, err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return nil, nil, fmt.Errorf("wire: join run %s: %w", name, err)
	}
	b := &Bus{js: js, subject: subject(name, "frames"), frames: make(chan message, 1024), last: message{pending: info.State.Msgs - 1}}
	done := make(chan struct{})
	b.stop = sync.OnceFunc(func() { close(done); messages.Stop() })
	b.pumping.Go(func() { pump(messages, b.frames, done) })
	return first.Data, b, nil
}

// pump hands messages on until the consumer is stopped.
func pump(from jetstream.MessagesContext, to chan<- message, done <-chan struct{}) {
	for {
		m, err := from.Next()
		next := message{err: err}
		if err == nil {
			next.data = m.Data()
			if meta, err := m.Metadata(); err == nil {
				next.pending = meta.NumPending
			}
		}
		select {
		case to <- next:
		case <-done:
			return
		}
		if errors.Is(err, jetstream.ErrMsgIteratorClosed) {
			return
		}
	}
}

// Publish sends a frame and waits until the stream has it.
func (b *Bus) Publish(ctx context.Context, frame []byte) error {
	if _, err := b.js.Publish(ctx, b.subject, frame); err != nil {
		return fmt.Errorf("wire: publish: %w", err)
	}
	return nil
}

// Next is forward.Bus's.
func (b *Bus) Next(ctx context.Context) ([]byte, error) {
	select {
	case m := <-b.frames:
		if m.err != nil {
			return nil, fmt.Errorf("wire: %w", m.err)
		}
		b.last = m
		return m.data, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Behind is forward.Bus's.
func (b *Bus) Behind() bool { return len(b.frames) > 0 || b.last.pending > 0 }

// Close leaves the run.
func (b *Bus) Close() {
	b.stop()
	b.pumping.Wait()
}

// removeAll is for a server's own folder.
func removeAll(dir string) error {
	if dir == "" {
		return nil
	}
	return os.RemoveAll(dir)
}
