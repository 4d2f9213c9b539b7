package main

import (
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"evenkeel/internal/broker"
)

// natsNode is a command of the tests: a NATS server of a cluster. Arguments: its name, port, port for the others, their ports, folder.
func natsNode() {
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil {
			panic(err)
		}
		return n
	}
	o := &server.Options{ServerName: os.Args[1], Host: "127.0.0.1", Port: number(os.Args[2]), JetStream: true, StoreDir: os.Args[5], SyncAlways: true}
	// The others come through gates, which they are told of: nobody listens where this server says that it does.
	o.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: number(os.Args[3]), NoAdvertise: true, Advertise: "127.0.0.1:1"}
	for port := range strings.SplitSeq(os.Args[4], ",") {
		o.Routes = append(o.Routes, &url.URL{Scheme: "nats", Host: "127.0.0.1:" + port})
	}
	if _, err := broker.Start(o, time.Minute); err != nil {
		panic(err)
	}
	select {}
}

// freePorts are ports that nobody listens on now.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var ports []string
	for range n {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		ports = append(ports, port)
	}
	return ports
}

// gate is a proxy that can stop passing anything on, without closing a connection, as a network does that is cut, or pass it on late.
type gate struct {
	mu     sync.RWMutex // held while it is shut
	late   atomic.Int64 // nanoseconds
	listen net.Listener
	to     string
}

func newGate(t *testing.T, port string) *gate {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{listen: l, to: "127.0.0.1:" + port}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			go g.pass(a)
		}
	}()
	return g
}

// passing is what is on its way.
type passing struct {
	data []byte
	at   time.Time // when it arrives
}

func (g *gate) pass(a net.Conn) {
	defer func() { _ = a.Close() }()
	g.wait()
	b, err := net.Dial("tcp", g.to) //nolint:noctx // ends with its peers
	if err != nil {
		return
	}
	defer func() { _ = b.Close() }()
	over := make(chan struct{}, 2)
	for _, d := range [][2]net.Conn{{a, b}, {b, a}} {
		go func() {
			defer func() { over <- struct{}{} }()
			under := make(chan passing, 1000)
			go func() {
				defer close(under)
				for {
					buffer := make([]byte, 16<<10)
					n, err := d[0].Read(buffer)
					under <- passing{buffer[:n], time.Now().Add(time.Duration(g.late.Load()))}
					if err != nil {
						return
					}
				}
			}()
			failed := false
			for p := range under { // to its end, lest the reader waits
				time.Sleep(time.Until(p.at))
				g.wait()
				if _, err := d[1].Write(p.data); err != nil && !failed {
					failed = true
					_ = a.Close()
					_ = b.Close()
				}
			}
		}()
	}
	<-over
}

func (g *gate) wait() {
	g.mu.RLock()
	defer g.mu.RUnlock()
}
