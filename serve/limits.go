package serve

import (
	"math"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// limits are those of requests a second.
type limits struct{ addresses, tokens rates }

// mostRate is the most requests a second that a limit may be.
const mostRate = 1e6

// mostRates is how many clients are told apart.
const mostRates = 10_000

// rates limits the rate of each client's requests. Two maps hold the newest clients; those that have long been silent are forgotten.
type rates struct {
	most float64 // requests a second, twice as many at once; 0: no limit

	mu       sync.Mutex
	now, old map[string]*rate.Limiter
}

// wait is how long a client has to wait until it may send a request; 0: it may, and that counts.
func (r *rates) wait(client string, now time.Time) time.Duration {
	if r.most == 0 || client == "" {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.now[client]
	if l == nil {
		if l = r.old[client]; l == nil {
			l = rate.NewLimiter(rate.Limit(r.most), int(math.Ceil(2*r.most)))
		}
		if r.now == nil || len(r.now) >= mostRates {
			r.now, r.old = map[string]*rate.Limiter{}, r.now
		}
		r.now[client] = l
	}
	if l.AllowN(now, 1) {
		return 0
	}
	return time.Duration((1 - l.TokensAt(now)) / r.most * float64(time.Second))
}

// seconds is a time to wait as a header says it: whole seconds, and 1 at least.
func seconds(d time.Duration) string { return strconv.Itoa(max(1, int(math.Ceil(d.Seconds())))) }

// host is the client that a remote address counts for: an IPv4 address, an IPv6 network of 2^64 addresses, or "" for this machine.
func host(remote string) string {
	text, _, err := net.SplitHostPort(remote)
	if err != nil {
		text = remote
	}
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return text
	}
	ip = ip.Unmap().WithZone("")
	if ip.IsLoopback() {
		return ""
	}
	if ip.Is6() {
		if p, err := ip.Prefix(64); err == nil {
			return p.String()
		}
	}
	return ip.String()
}

// crowd is a listener that bounds the connections of each address, so that one address cannot take them all.
type crowd struct {
	net.Listener
	most int

	mu   sync.Mutex
	open map[string]int
}

// Accept is net.Listener's.
func (c *crowd) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := conn.RemoteAddr().String()
		if h, _, err := net.SplitHostPort(from); err == nil {
			from = h
		}
		c.mu.Lock()
		enough := c.open[from] >= c.most
		if !enough {
			c.open[from]++
		}
		c.mu.Unlock()
		if !enough {
			return &counting{Conn: conn, gone: func() { c.leave(from) }}, nil
		}
		_ = conn.Close()
	}
}

func (c *crowd) leave(from string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[from]--; c.open[from] == 0 {
		delete(c.open, from)
	}
}

// counting is a connection that crowd counts until it is closed.
type counting struct {
	net.Conn
	once sync.Once
	gone func()
}

// Close is net.Conn's.
func (c *counting) Close() error {
	c.once.Do(c.gone)
	return c.Conn.Close()
}
