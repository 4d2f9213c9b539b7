package wire

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/internal/broker"
)

// ErrOpen is returned where others could use the server without a token, or read the traffic.
var ErrOpen = badinput.New("wire: an address beyond loopback needs a token and TLS")

// ServerOptions of Serve.
type ServerOptions struct {
	Addr              string // host:port; empty: 127.0.0.1 and a free port
	Token             string // empty: a random one
	CertFile, KeyFile string // TLS; required beyond loopback
}

// Server is an embedded NATS server.
type Server struct {
	server *server.Server
	token  string
	dir    string
}

// Serve starts a server that keeps runs in memory.
func Serve(o ServerOptions) (*Server, error) {
	host, port := "127.0.0.1", server.RANDOM_PORT
	if o.Addr != "" {
		h, p, err := net.SplitHostPort(o.Addr)
		if err != nil {
			return nil, fmt.Errorf("wire: address %q: %w", o.Addr, err)
		}
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 || n > 65535 {
			return nil, fmt.Errorf("wire: address %q: port %q", o.Addr, p)
		}
		host, port = h, n
		if n == 0 {
			port = server.RANDOM_PORT
		}
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) && (o.Token == "" || o.CertFile == "") {
		return nil, fmt.Errorf("%w: %s", ErrOpen, o.Addr)
	}
	token := o.Token
	if token == "" {
		token = rand.Text()
	}
	options := &server.Options{Host: host, Port: port, Authorization: token, JetStream: true, MaxPayload: 1 << 20}
	if o.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("wire: %w", err)
		}
		options.TLS = true
		options.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
	}
	dir, err := os.MkdirTemp("", "evenkeel-nats-")
	if err != nil {
		return nil, fmt.Errorf("wire: %w", err)
	}
	options.StoreDir = dir
	s, err := broker.Start(options, 10*time.Second)
	if errors.Is(err, broker.ErrSlow) {
		err = fmt.Errorf("the server on %s does not come up; is the port taken?", options.Host)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wire: %w", err), os.RemoveAll(dir))
	}
	return &Server{s, token, dir}, nil
}

// URL is where to connect.
func (s *Server) URL() string { return s.server.ClientURL() }

// Token is the secret that clients must present.
func (s *Server) Token() string { return s.token }

// Close ends the server and waits until it has ended.
func (s *Server) Close() error {
	broker.Stop(s.server)
	return os.RemoveAll(s.dir)
}
