package execute

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// patience is how long a link may be silent. Both ends send at least five frames in that time.
const patience = 10 * time.Second

// wire is a connection below TLS. It counts the bytes sent, and fails a read or write that makes no progress.
type wire struct {
	net.Conn
	timeout time.Duration
	sent    atomic.Int64
}

func (w *wire) Read(b []byte) (int, error) {
	if err := w.SetReadDeadline(time.Now().Add(w.timeout)); err != nil {
		return 0, err
	}
	return w.Conn.Read(b)
}

func (w *wire) Write(b []byte) (int, error) {
	if err := w.SetWriteDeadline(time.Now().Add(w.timeout)); err != nil {
		return 0, err
	}
	n, err := w.Conn.Write(b)
	w.sent.Add(int64(n))
	return n, err
}

// link is a connection to another stage, with a goroutine for each direction. It calls handle with every frame; handle must not block or keep
// the body. When an error ends the link, it calls lost once.
type link struct {
	peer   int
	wire   *wire
	conn   *tls.Conn
	limit  int // bytes of a body
	handle func(f frame, body []byte) error
	lost   func(l *link, err error)

	queue   chan outgoing
	ending  chan struct{} // closed: write what is queued, and nothing after it
	end     sync.Once
	both    sync.WaitGroup
	told    sync.Once
	written chan struct{} // closed when the writer is done
}

// outgoing is a frame with its body: bytes, or floats that go back to their pool when they are written.
type outgoing struct {
	frame
	body   []byte
	floats []float32
	pool   *pool
}

// secure wraps a connection in TLS: as the TLS client of stage peer, or as the TLS server of any stage if peer is -1.
func secure(ctx context.Context, conn net.Conn, k *Keys, peer int, timeout time.Duration) (*link, error) {
	l := &link{peer: peer, wire: &wire{Conn: conn, timeout: timeout}, queue: make(chan outgoing, 256), ending: make(chan struct{}), written: make(chan struct{})}
	shake := tls.Server
	if peer >= 0 {
		shake = tls.Client
	}
	t := shake(l.wire, k.config(max(peer, 0)))
	l.conn = t
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := t.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // the handshake failed already
		return nil, refined(err, conn.RemoteAddr())
	}
	if peer < 0 {
		var err error
		if l.peer, err = stageOf(t.ConnectionState()); err != nil {
			_ = conn.Close() // the certificate was refused already
			return nil, err
		}
	}
	return l, nil
}

// refined adds advice to the error of a failed handshake.
func refined(err error, addr net.Addr) error {
	invalid, unknown, host := x509.CertificateInvalidError{}, x509.UnknownAuthorityError{}, x509.HostnameError{}
	alert := tls.AlertError(0)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("%w: the one of %s has expired: make new ones with evenkeel plan keys (%w)", errKeys, addr, err)
	case errors.As(err, &unknown):
		return fmt.Errorf("%w: the one of %s is not from this side's authority: give all stages the keys of one evenkeel plan keys (%w)", errKeys, addr, err)
	case errors.As(err, &host):
		return fmt.Errorf("%w: %s shows another stage's: look at --stage, --connect and --keys (%w)", errKeys, addr, err)
	case errors.As(err, &invalid):
		return fmt.Errorf("%w: the one of %s: %w", errKeys, addr, err)
	case errors.As(err, &alert), strings.Contains(err.Error(), "remote error: tls:"):
		return fmt.Errorf("%w: %s refuses this side's: it has expired there, or is not from its authority (%w)", errKeys, addr, err)
	}
	return fmt.Errorf("TLS with %s: %w", addr, err)
}

func (l *link) start(limit int, handle func(frame, []byte) error, lost func(*link, error)) {
	l.limit, l.handle, l.lost = limit, handle, lost
	l.both.Go(l.read)
	l.both.Go(l.write)
}

func (l *link) String() string {
	return fmt.Sprintf("stage %d (%s)", l.peer, l.conn.RemoteAddr())
}

func (l *link) failed(err error) {
	if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
		err = fmt.Errorf("nothing came or went for %v", l.wire.timeout)
	} else if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it closed the connection")
	} else if strings.Contains(err.Error(), "remote error: tls:") {
		err = refined(err, l.conn.RemoteAddr())
	}
	l.told.Do(func() { l.lost(l, err) })
	_ = l.wire.Close() // a link that works in one direction is of no use
}

func (l *link) read() {
	var buffer []byte
	for {
		f, body, err := readFrame(l.conn, l.limit, buffer)
		if err == nil {
			buffer = body[:cap(body)]
			if f.kind == alive {
				continue
			}
			err = l.handle(f, body)
		}
		if err != nil {
			l.failed(err)
			return
		}
	}
}

func (l *link) write() {
	defer close(l.written)
	ticker := time.NewTicker(l.wire.timeout / 5)
	defer ticker.Stop()
	var buffer []byte
	put := func(o outgoing) bool {
		buffer = appendHeader(buffer[:0], o.frame, len(o.body)+4*len(o.floats))
		buffer = appendWords(append(buffer, o.body...), o.floats)
		if o.pool != nil {
			o.pool.put(o.floats)
		}
		_, err := l.conn.Write(buffer)
		if err != nil {
			l.failed(err)
		}
		return err == nil
	}
	for {
		select {
		case o := <-l.queue:
			if !put(o) {
				return
			}
		case <-ticker.C:
			if !put(outgoing{frame: frame{kind: alive}}) {
				return
			}
		case <-l.ending:
			for len(l.queue) > 0 && put(<-l.queue) {
			}
			return
		}
	}
}

// send queues a frame. If the link is lost, it drops the frame.
func (l *link) send(o outgoing) {
	select {
	case l.queue <- o:
	case <-l.written:
	case <-l.ending:
	}
}

func (l *link) tell(k kind, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		l.failed(err) // only a time that is NaN cannot be encoded
		return
	}
	l.send(outgoing{frame: frame{kind: k}, body: text})
}

// close writes all queued frames, closes its direction, and waits up to a second for the other end to do the same: closing a connection with
// unread data may discard what was written.
func (l *link) close() {
	l.end.Do(func() { close(l.ending) })
	if l.handle != nil {
		late := time.AfterFunc(time.Second, func() { _ = l.wire.Close() }) // closed again below
		defer late.Stop()
		<-l.written
		_ = l.conn.CloseWrite() // the other end may be gone
		l.both.Wait()
	}
	_ = l.wire.Close() // everything was written
}

// pool keeps buffers of one size for reuse.
type pool struct {
	size int
	free chan []float32
}

func newPool(size int) *pool { return &pool{size, make(chan []float32, 2*MaxStages)} }

func (p *pool) get() []float32 {
	select {
	case b := <-p.free:
		return b
	default:
		return make([]float32, p.size)
	}
}

func (p *pool) put(b []float32) { offer(p.free, b) }
