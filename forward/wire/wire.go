// Package wire carries the frames of forward-only training between processes, over NATS: an embedded server, or an
// existing cluster by its URL. A run is a JetStream stream, which keeps all frames in one order for everybody and sends
// them again to a processor that comes back. Snapshots stand for the frames before them, which can then be deleted.
//
// Serve starts an embedded server; Connect connects to it or to another; Create begins a run, once, and Join takes part in
// it, in every processor. See the Example.
package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/evenkeel/evenkeel/internal/badinput"
)

// Errors of runs.
var (
	// ErrExists is returned by Create where there is a run of that name.
	ErrExists = errors.New("wire: there is a run of that name")
	// ErrNoRun is returned by Join where there is none.
	ErrNoRun = badinput.New("wire: no such run")
	// ErrGap is returned where frames were deleted before they were read; join again.
	ErrGap = errors.New("wire: this processor fell so far behind that frames it needs are gone; join again")
	// ErrURL is returned for what is not the address of a server.
	ErrURL = badinput.New("wire: not the address of a server")
	// ErrName is returned for what is not a valid name of a run.
	ErrName = badinput.New("wire: a run's name has letters, digits, - and _, at most 64")
)

var names = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Options of Connect.
type Options struct {
	Token   string
	CAFile  string   // of the server's certificate; empty: the system's
	Traffic *Traffic // if not nil, counts what goes over the connection
}

// How long a lost connection is tried again: then the processor ends, instead of waiting for a run that is over.
const (
	reconnectWait = 200 * time.Millisecond
	reconnectFor  = 2 * time.Minute
)

// Connect connects to a server, and again, for two minutes, whenever the connection is lost.
func Connect(address string, o Options) (*nats.Conn, error) {
	if err := private(address); err != nil {
		return nil, err
	}
	options := []nats.Option{nats.Name("evenkeel forward"), nats.MaxReconnects(int(reconnectFor / reconnectWait)), nats.ReconnectWait(reconnectWait)}
	if o.Token != "" {
		options = append(options, nats.Token(o.Token))
	}
	if o.CAFile != "" {
		options = append(options, nats.RootCAs(o.CAFile))
	}
	if o.Traffic != nil {
		options = append(options, nats.SetCustomDialer(o.Traffic))
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

// Create begins a run. The header is what all its processors must know; snapshots, if it continues earlier steps, stand for
// them.
func Create(ctx context.Context, c *nats.Conn, name string, header []byte, snapshots ...[]byte) error {
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
	for i, m := range append([][]byte{header}, snapshots...) {
		if err != nil {
			break
		}
		what := "header"
		if i > 0 {
			what, m = snapshotSubject, placed(uint64(i), m)
		}
		_, err = js.Publish(ctx, subject(name, what), m, jetstream.WithExpectLastSequence(uint64(i)))
	}
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return fmt.Errorf("%w: %s", ErrExists, name)
	}
	if err != nil {
		return fmt.Errorf("wire: create run %s: %w", name, err)
	}
	return nil
}

// Remove ends a run: its frames are deleted.
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
