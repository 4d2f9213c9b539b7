package wire

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"

	"evenkeel/internal/badinput"
	"evenkeel/internal/broker"
)

// ErrOpen is returned if others could use the server without a token, or read the traffic.
var ErrOpen = badinput.New("wire: an address beyond loopback needs a token and TLS")

// ServerOptions of Serve.
type ServerOptions struct {
	Addr              string // host:port; empty: 127.0.0.1 and a free port
	Token             string // creates and removes runs; ranks' tokens are derived from it; empty: a random one
	CertFile, KeyFile string // TLS; required beyond loopback
	Dir               string // where runs are kept; empty: a temporary one, removed by Close
}

// Server is an embedded NATS server. Every rank has a token of its own, with which it can send only its own messages.
type Server struct {
	server *server.Server
	token  string
	dir    string   // to remove
	lock   *os.File // of a folder that stays
}

// NewToken returns a random token.
func NewToken() string { return rand.Text() }

// take locks a folder, so that no second server writes to it.
func (s *Server) take(dir string) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return badinput.Errorf("the server's folder: %w", err)
	}
	if s.lock, err = os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return badinput.Errorf("the server's folder: %w", err)
	}
	if err := unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return badinput.Errorf("%s is in use by another server: join its runs with --url, or name another run or folder", dir)
	}
	return nil
}

// maxRanks is the number of ranks with a token.
const maxRanks = 128

// RankToken derives a rank's token from the server's.
func RankToken(token string, rank int) string {
	h := hmac.New(sha256.New, []byte(token))
	fmt.Fprintf(h, "evenkeel forward rank %d", rank)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// users returns the user launch, who creates runs, and those of the ranks.
func users(token string) []*server.User {
	all := []*server.User{{Username: userOf(-1), Password: token}}
	for rank := range maxRanks {
		own := strconv.Itoa(rank)
		all = append(all, &server.User{Username: userOf(rank), Password: RankToken(token, rank), Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: []string{
				subject("*", frameSubject, own), subject("*", blockSubject, "*", own), subject("*", resultSubject, own),
				"$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.MSG.GET.*", "$JS.API.DIRECT.GET.>",
				"$JS.API.CONSUMER.CREATE.>", "$JS.API.CONSUMER.INFO.>", "$JS.API.CONSUMER.MSG.NEXT.>", "$JS.API.CONSUMER.DELETE.>", "$JS.FC.>",
			}},
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
		}})
	}
	return all
}

// Serve starts a server.
func Serve(o ServerOptions) (*Server, error) {
	host, port := "127.0.0.1", server.RANDOM_PORT
	if o.Addr != "" {
		h, p, err := net.SplitHostPort(o.Addr)
		if err != nil {
			return nil, badinput.Errorf("address %q: %w", o.Addr, err)
		}
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 || n > 65535 {
			return nil, badinput.Errorf("address %q: port %q", o.Addr, p)
		}
		host, port = h, n
		if n == 0 {
			port = server.RANDOM_PORT
		}
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) && (o.Token == "" || o.CertFile == "") {
		return nil, fmt.Errorf("%w: %s", ErrOpen, o.Addr)
	}
	s := &Server{token: o.Token}
	if s.token == "" {
		s.token = NewToken()
	}
	options := &server.Options{Host: host, Port: port, Users: users(s.token), JetStream: true, MaxPayload: 4 << 20, StoreDir: o.Dir,
		TLSTimeout: connectFor.Seconds(), AuthTimeout: connectFor.Seconds()}
	if o.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, badinput.Errorf("certificate: %w", err)
		}
		options.TLS = true
		options.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
	}
	if o.Dir != "" {
		if err := s.take(o.Dir); err != nil {
			return nil, err
		}
	} else {
		dir, err := os.MkdirTemp("", "evenkeel-nats-")
		if err != nil {
			return nil, fmt.Errorf("wire: %w", err)
		}
		s.dir, options.StoreDir = dir, dir
	}
	var err error
	s.server, err = broker.Start(options, 10*time.Second)
	if errors.Is(err, broker.ErrSlow) {
		err = fmt.Errorf("the server on %s does not start; is the port in use?", options.Host)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wire: %w", err), s.removeDir())
	}
	return s, nil
}

// URL returns the address to connect to.
func (s *Server) URL() string { return s.server.ClientURL() }

// Token returns the token that creates and removes runs.
func (s *Server) Token() string { return s.token }

// Close ends the server and waits until it has ended.
func (s *Server) Close() error {
	broker.Stop(s.server)
	return s.removeDir()
}

func (s *Server) removeDir() error {
	if s.lock != nil {
		return s.lock.Close()
	}
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}
