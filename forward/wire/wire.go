// Package wire carries the messages of forward-only training between processes, over NATS: an embedded server, or an
// existing cluster by its URL. A run is a JetStream stream in files, which keeps messages in one order for all processors and
// outlives its server: docs/reference/forward-protocol.md.
//
// Serve starts an embedded server; Connect connects to it or to another; Create begins a run, once; Join takes part in
// it, in every processor, and Follow reads its blocks. See the Example.
package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"evenkeel/internal/badinput"
)

// Errors of runs.
var (
	// ErrExists is returned by Create if a run of that name exists.
	ErrExists = errors.New("wire: there is a run of that name")
	// ErrNoRun is returned if there is no run of that name.
	ErrNoRun = badinput.New("wire: no such run")
	// ErrGap is returned if the server deleted frames before they were read; join again.
	ErrGap = errors.New("wire: this processor fell so far behind that frames it needs are gone; join again")
	// ErrLost is returned if the server lost messages that were already read: it came back without its files.
	ErrLost = errors.New("wire: the run on the server is older than what was read from it; its storage was lost")
	// ErrURL is returned for an invalid address of a server.
	ErrURL = badinput.New("wire: not the address of a server")
	// ErrName is returned for an invalid name of a run.
	ErrName = badinput.New("wire: a run's name has letters, digits, - and _, at most 64")
)

var names = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// CheckName returns ErrName for an invalid name of a run.
func CheckName(name string) error {
	if !names.MatchString(name) {
		return fmt.Errorf("%w: %q", ErrName, name)
	}
	return nil
}

// Options of Connect.
type Options struct {
	Rank    int      // of the token; negative: the token that creates and removes runs
	Token   string   // presented both as a password and as a token
	CAFile  string   // of the server's certificate; empty: the system's
	Traffic *Traffic // if not nil, counts the bytes of the connection

	heartbeat time.Duration // 0: heartbeat
}

// userOf returns the user that has a rank's token.
func userOf(rank int) string {
	if rank < 0 {
		return "launch"
	}
	return "rank" + strconv.Itoa(rank)
}

// A lost connection is tried again for reconnectFor; then the processor ends, instead of waiting for a run that may be over.
const (
	reconnectWait = 200 * time.Millisecond
	reconnectFor  = 2 * time.Minute
	// heartbeat is the interval of pings to the server; after three without an answer the connection counts as lost.
	heartbeat = 5 * time.Second
	// connectFor is how long a connection may take to be made, with its handshakes, over a slow line or from a busy machine.
	connectFor = 10 * time.Second
)

// Connect connects to a server. It reconnects, for two minutes, whenever the connection is lost.
func Connect(address string, o Options) (*nats.Conn, error) {
	if err := private(address); err != nil {
		return nil, err
	}
	options := []nats.Option{
		nats.Name("evenkeel forward"), nats.MaxReconnects(int(reconnectFor / reconnectWait)), nats.ReconnectWait(reconnectWait),
		nats.PingInterval(cmp.Or(o.heartbeat, heartbeat)), nats.MaxPingsOutstanding(3), nats.Timeout(connectFor),
	}
	if o.Token != "" {
		options = append(options, nats.Token(o.Token), nats.UserInfo(userOf(o.Rank), o.Token))
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

// private refuses clear text beyond this machine: it would show the token, and let others change frames.
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

const streamPrefix = "EVENKEEL_"

func stream(name string) string { return streamPrefix + name }

func subject(name string, what ...any) string {
	s := "evenkeel.forward." + name
	for _, w := range what {
		s += "." + fmt.Sprint(w)
	}
	return s
}

// The last parts of subjects.
const (
	headerSubject = "header"
	frameSubject  = "frame"
	blockSubject  = "block"
	resultSubject = "result"
)

const (
	// keptMessages is the number of frames of a rank that the server keeps: the steps that a rank may fall behind.
	keptMessages = 2048
	// maxBytes bounds a run's files, and the server reserves it: a frame takes about 100 bytes there, a block about a kilobyte.
	maxBytes = 1 << 30
)

// errNoStorage is JetStream's code for a disk that is too small; the client library has no name for it.
const errNoStorage = 10047

// Create creates a run. Its header becomes message 1 of the stream.
func Create(ctx context.Context, c *nats.Conn, name string, header []byte) error {
	if err := CheckName(name); err != nil {
		return err
	}
	js, err := jetstream.New(c)
	if err != nil {
		return fmt.Errorf("wire: %w", err)
	}
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: stream(name), Subjects: []string{subject(name, ">")}, Storage: jetstream.FileStorage,
		MaxMsgsPerSubject: keptMessages, MaxBytes: maxBytes, Discard: jetstream.DiscardNew,
	})
	if err == nil || errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // a process that was killed may have left it without a header
		_, err = js.Publish(ctx, subject(name, headerSubject), header, jetstream.WithExpectLastSequence(0))
	}
	var api *jetstream.APIError
	if errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamNameInUse) {
		return fmt.Errorf("%w: %s", ErrExists, name)
	}
	if errors.As(err, &api) && api.ErrorCode == errNoStorage {
		return badinput.Errorf("wire: create run %s: the server's disk has no %s left for it", name, humanize.IBytes(maxBytes))
	}
	if err != nil {
		return fmt.Errorf("wire: create run %s: %w", name, err)
	}
	return nil
}

// Remove deletes a run.
func Remove(ctx context.Context, c *nats.Conn, name string) error {
	js, err := jetstream.New(c)
	if err != nil {
		return fmt.Errorf("wire: %w", err)
	}
	if err := js.DeleteStream(ctx, stream(name)); errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("%w: %s", ErrNoRun, name)
	} else if err != nil {
		return fmt.Errorf("wire: remove run %s: %w", name, err)
	}
	return nil
}

// Runs returns the names of the server's runs.
func Runs(ctx context.Context, c *nats.Conn) ([]string, error) {
	js, err := jetstream.New(c)
	if err != nil {
		return nil, fmt.Errorf("wire: %w", err)
	}
	var all []string
	names := js.StreamNames(ctx, jetstream.WithStreamListSubject(subject(">")))
	for s := range names.Name() {
		all = append(all, strings.TrimPrefix(s, streamPrefix))
	}
	if err := names.Err(); err != nil {
		return nil, fmt.Errorf("wire: list runs: %w", err)
	}
	slices.Sort(all)
	return all, nil
}
