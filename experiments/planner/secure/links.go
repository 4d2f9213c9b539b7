package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/planner/pipeline"
)

// links is the listening side: stage 0.
type links struct {
	listener net.Listener
	config   *tls.Config
}

// config is that of package execute, from the files of its MakeKeys.
func config(dir string, stage int) (*tls.Config, error) {
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, fmt.Sprintf("stage-%d.pem", stage)), filepath.Join(dir, fmt.Sprintf("stage-%d-key.pem", stage)))
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		return nil, err
	}
	authority := x509.NewCertPool()
	authority.AppendCertsFromPEM(text)
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}, RootCAs: authority, ServerName: "stage-0.evenkeel.internal",
		ClientCAs: authority, ClientAuth: tls.RequireAndVerifyClientCert, SessionTicketsDisabled: true}, nil
}

func open(dir string) (*links, error) {
	c, err := config(dir, 0)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	return &links{l, c}, err
}

func (l *links) address() string { return l.listener.Addr().String() }
func (l *links) close()          { _ = l.listener.Close() } // it served its purpose

// twoStages is a run of two stages; with no micro-batches they wait for forward and then exchange messages, both at the
// same time, as in the steady state of 1F1B.
type twoStages struct {
	bytes, microBatches, iterations int
	forward, backward               time.Duration
}

// connect takes the other side's next connection and tells it what to do.
func (l *links) connect(secure bool, p twoStages) (net.Conn, error) {
	conn, err := l.listener.Accept()
	if err != nil {
		return nil, err
	}
	head := []byte{0}
	if secure {
		head[0] = 1
	}
	for _, v := range []uint64{uint64(p.bytes), uint64(p.microBatches), uint64(p.iterations), uint64(p.forward), uint64(p.backward)} {
		head = binary.LittleEndian.AppendUint64(head, v)
	}
	if _, err := conn.Write(head); err != nil || !secure {
		return conn, err
	}
	t := tls.Server(conn, l.config)
	return t, t.Handshake()
}

// work is the other side: stage 1, until nobody listens.
func work(address, dir string) error {
	c, err := config(dir, 1)
	if err != nil {
		return err
	}
	for {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return nil //nolint:nilerr // the experiment is over
		}
		if err := answer(conn, c); err != nil {
			if errors.Is(err, io.EOF) || strings.Contains(err.Error(), "reset by peer") {
				return nil // the same
			}
			return err
		}
	}
}

func answer(conn net.Conn, c *tls.Config) error {
	defer func() { _ = conn.Close() }() // everything was read
	var head [41]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return err
	}
	field := func(i int) int { return int(binary.LittleEndian.Uint64(head[1+8*i:])) }
	p := twoStages{field(0), field(1), field(2), time.Duration(field(3)), time.Duration(field(4))}
	if head[0] == 1 {
		t := tls.Client(conn, c)
		if err := t.Handshake(); err != nil {
			return err
		}
		conn = t
	}
	if p.iterations == 0 {
		return nil // it was about the handshake
	}
	t, err := p.run(conn, 1)
	if err != nil {
		return err
	}
	return binary.Write(conn, binary.LittleEndian, t)
}

// rounds of plain and TLS.
const rounds = 9

// pause is what a stage waits between messages where one message is measured.
const pause = 2 * time.Millisecond

// transfer is a run that measures a transfer as stages meet it: a pause, then a message each way at the same time.
func transfer(bytes int) twoStages { return twoStages{bytes: bytes, iterations: 60, forward: pause} }

// handshakes is the median seconds from a TCP connection to a TLS one.
func (l *links) handshakes() (float64, error) {
	var seconds []float64
	for range 31 {
		begun := time.Now()
		conn, err := l.connect(true, twoStages{})
		if err != nil {
			return 0, err
		}
		seconds = append(seconds, time.Since(begun).Seconds())
		_ = conn.Close() // it served its purpose
	}
	return median(seconds), nil
}

// run goes through the iterations of a stage and returns their median seconds and the mean ones of its waits.
func (p twoStages) run(conn net.Conn, stage int) (t iteration, err error) {
	messages := max(p.microBatches, 1)
	order := []pipeline.Operation{}
	if p.microBatches > 0 {
		if order, err = pipeline.Order(stage, 2, p.microBatches, pipeline.OneForwardOneBackward); err != nil {
			return t, err
		}
	}
	in, out := make(chan error, messages), make(chan struct{}, messages)
	var both sync.WaitGroup
	defer both.Wait()
	defer close(out)
	both.Go(func() {
		message := make([]byte, p.bytes)
		for range p.iterations * messages {
			_, err := io.ReadFull(conn, message)
			in <- err
			if err != nil {
				return
			}
		}
	})
	both.Go(func() {
		message := make([]byte, p.bytes)
		for range out {
			if _, err := conn.Write(message); err != nil {
				_ = conn.Close() // the reader says so
			}
		}
	})
	wait := func(d time.Duration, total *float64) {
		begun := time.Now()
		time.Sleep(d)
		*total += time.Since(begun).Seconds()
	}
	var seconds, ways []float64
	for range p.iterations {
		begun, waited := time.Now(), t.Forward+t.Backward
		if p.microBatches == 0 {
			wait(p.forward, &t.Forward)
			out <- struct{}{}
			if err := <-in; err != nil {
				return t, err
			}
		}
		for _, op := range order {
			if op.Backward == (stage == 0) { // what it needs comes from the other stage
				if err := <-in; err != nil {
					return t, err
				}
			}
			if op.Backward {
				wait(p.backward, &t.Backward)
			} else {
				wait(p.forward, &t.Forward)
			}
			if op.Backward == (stage == 1) {
				out <- struct{}{}
			}
		}
		took := time.Since(begun).Seconds()
		seconds, ways = append(seconds, took), append(ways, took-(t.Forward+t.Backward-waited))
	}
	n := float64(p.iterations * messages)
	return iteration{median(seconds[1:]), median(ways[1:]), t.Forward / n, t.Backward / n}, nil
}

// iteration is what run measured, medians and means in seconds: an iteration, what of it was no wait of this stage, and
// the waits.
type iteration struct{ Seconds, Others, Forward, Backward float64 }

// compared are medians over rounds: an iteration, what of it is no wait of stage 0, and the waits of both stages.
type compared struct{ seconds, others, forward, backward float64 }

// compare makes all runs in the clear and encrypted, in turns, again and again, so that all meet alike what else the
// machine does.
func (l *links) compare(all ...twoStages) ([][2]compared, error) {
	values := make([][2][4][]float64, len(all))
	for range rounds {
		for k, p := range all {
			for i, secure := range []bool{false, true} {
				t, other, err := l.once(p, secure)
				if err != nil {
					return nil, err
				}
				for q, v := range []float64{t.Seconds, t.Others, (t.Forward + other.Forward) / 2, (t.Backward + other.Backward) / 2} {
					values[k][i][q] = append(values[k][i][q], v)
				}
			}
		}
	}
	out := make([][2]compared, len(all))
	for k := range out {
		for i, v := range values[k] {
			out[k][i] = compared{median(v[0]), median(v[1]), median(v[2]), median(v[3])}
		}
	}
	return out, nil
}

// once makes one run, and asks the other side what it measured.
func (l *links) once(p twoStages, secure bool) (t, other iteration, err error) {
	conn, err := l.connect(secure, p)
	if err != nil {
		return t, other, err
	}
	defer func() { _ = conn.Close() }() // everything was read
	if t, err = p.run(conn, 0); err != nil {
		return t, other, err
	}
	return t, other, binary.Read(conn, binary.LittleEndian, &other)
}

// median sorts its argument.
func median(x []float64) float64 {
	slices.Sort(x)
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}
