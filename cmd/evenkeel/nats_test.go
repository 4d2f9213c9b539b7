package main

import (
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/evenkeel/evenkeel/internal/broker"
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
	o.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: number(os.Args[3]), NoAdvertise: true}
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

// gate is a proxy that can stop passing anything on, without closing a connection, as a network does that is cut.
type gate struct {
	mu     sync.RWMutex // held while it is shut
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
			buffer := make([]byte, 64<<10)
			for {
				n, err := d[0].Read(buffer)
				g.wait()
				if _, failed := d[1].Write(buffer[:n]); err != nil || failed != nil {
					return
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
