package serve

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// dialFrom connects from an address of this machine.
func dialFrom(t *testing.T, from, to string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 5 * time.Second}
	return d.DialContext(t.Context(), "tcp", to)
}

// Who sends more than the limits is told when to come again; others, this machine and probes are not held up.
func TestRates(t *testing.T) {
	now := clock{time.Unix(1_800_000_000, 0)}
	c, s := newClient(t, Config{Token: adminToken, Clock: now.read, TokenRate: 5, AddressRate: 20})
	c.do("PUT", "/v1/jobs/a", object{}, nil) // one of this second's requests of the administrator
	a, b := c.newToken("a", object{"scope": "read"}), c.newToken("a", object{"scope": "read"})
	send := func(path, from, secret string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+path, nil)
		r.RemoteAddr = from
		r.Header.Set("Authorization", "Bearer "+secret)
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		return w
	}
	burst := func(n, want int, path, from, secret string) {
		t.Helper()
		for k := range n {
			if w := send(path, from, secret); (w.Code == http.StatusTooManyRequests) != (k >= want) {
				t.Fatalf("request %d: %d", k, w.Code)
			} else if k >= want && w.Header().Get("Retry-After") != "1" {
				t.Errorf("Retry-After: %q", w.Header().Get("Retry-After"))
			}
		}
	}
	now.now = now.now.Add(time.Hour)
	burst(15, 10, "/v1/jobs/a", "127.0.0.1:5", a.Token)
	burst(10, 10, "/v1/jobs/a", "127.0.0.1:5", b.Token) // another token
	now.now = now.now.Add(time.Second)
	burst(6, 5, "/v1/jobs/a", "127.0.0.1:5", a.Token)
	burst(45, 40, "/v1/jobs/a", "10.0.0.1:5", "no-token-that-there-is")
	burst(1, 0, "/v1/jobs/a", "10.0.0.1:6", b.Token) // the same address
	burst(45, 40, "/openapi.json", "10.0.0.2:5", "")
	burst(45, 40, "/nowhere", "[2001:db8::1]:5", "")
	burst(1, 0, "/nowhere", "[2001:db8::2]:5", "") // the same network
	burst(40, 40, "/nowhere", "[2001:db8:0:1::2]:5", "")
	burst(100, 100, "/livez", "10.0.0.1:5", "")
	burst(100, 100, "/readyz", "10.0.0.1:5", "")
	burst(100, 100, "/nowhere", "[::1]:5", "")
	r := rates{most: 0.1}
	if r.wait("x", now.now); r.wait("x", now.now) != 10*time.Second || seconds(10*time.Second) != "10" || seconds(9100*time.Millisecond) != "10" {
		t.Errorf("%v", r.wait("x", now.now))
	}
	for k := range 5 * mostRates { // nobody's memory grows without bound, and who keeps coming is known
		r.wait(fmt.Sprint(k), now.now)
		if k%(mostRates/2) == 0 && r.wait("x", now.now) == 0 {
			t.Fatal("forgotten")
		}
	}
	if n := len(r.now) + len(r.old); n > 2*mostRates {
		t.Errorf("%d", n)
	}
}

// A body without a length is held to the same limit as one with.
func TestBodiesOfUnknownLength(t *testing.T) {
	c, s := newClient(t, Config{})
	sizes := c.start("job", "0123456789", 60, 2).Sizes
	for size, want := range map[int]int{100: http.StatusOK, ownBytes + 2*rankBytes: http.StatusOK, ownBytes + 2*rankBytes + 1: http.StatusRequestEntityTooLarge} {
		text, err := json.Marshal(report(sizes, 0, 1, 1))
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, bytes.Repeat([]byte(" "), max(0, size-len(text)))...)
		r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/v1/jobs/job/reports", io.MultiReader(bytes.NewReader(text)))
		r.ContentLength = -1
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%d bytes: %d %s", len(text), w.Code, w.Body)
		}
	}
}

// One address cannot take all connections.
func TestCrowd(t *testing.T) {
	at := serveAt(t, Config{})
	var open []io.Closer
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	for range maxConnections {
		conn, err := dialFrom(t, "127.0.0.2", at)
		if err != nil && len(open) == 0 {
			t.Skip(err) // this machine has one such address only
		}
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	ask := func() error {
		conn, err := dialFrom(t, "127.0.0.1", at)
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(3 * time.Second))
		fmt.Fprintf(conn, "GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err == nil && !strings.Contains(line, "200") {
			err = fmt.Errorf("%s", line)
		}
		return err
	}
	if err := ask(); err != nil {
		t.Errorf("another address: %v", err)
	}
	for _, c := range open {
		_ = c.Close()
	}
	open = nil
	for k := 0; ; k++ { // those that are gone make room
		conn, err := dialFrom(t, "127.0.0.2", at)
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(time.Second))
			fmt.Fprintf(conn, "GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
			_, err = bufio.NewReader(conn).ReadString('\n')
			_ = conn.Close()
		}
		if err == nil {
			return
		}
		if k == 100 {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
