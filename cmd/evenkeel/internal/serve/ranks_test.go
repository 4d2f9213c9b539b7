package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"evenkeel/agent/clusters"
	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/internal/badinput"
	"evenkeel/serve"
)

// spoken is a service of a test behind a handler that may answer in its place. lose puts a new one there, which knows nothing.
func spoken(t *testing.T, before func(w http.ResponseWriter, r *http.Request) bool) (url string, lose func()) {
	t.Helper()
	var now atomic.Pointer[string]
	begin := func() {
		s, err := serve.New(t.Context(), serve.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(ctx, l) }()
		t.Cleanup(func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		at := "http://" + l.Addr().String()
		now.Store(&at)
	}
	begin()
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before != nil && before(w, r) {
			return
		}
		again, err := http.NewRequestWithContext(r.Context(), r.Method, *now.Load()+r.URL.RequestURI(), r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		again.Header = r.Header.Clone()
		answer, err := http.DefaultTransport.RoundTrip(again)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer func() { _ = answer.Body.Close() }()
		var b bytes.Buffer
		_, _ = b.ReadFrom(answer.Body)
		w.WriteHeader(answer.StatusCode)
		_, _ = w.Write(b.Bytes())
	}))
	t.Cleanup(front.Close)
	return front.URL, begin
}

func eight(t *testing.T) *cluster.Cluster {
	t.Helper()
	_, c, err := clusters.Load("heldout-8", profile.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Ranks wait for a service that is not there yet, under one id, say so once, and give up when their patience ends.
func TestRanksWait(t *testing.T) {
	var mu sync.Mutex
	ids, refused := map[string]int{}, 0
	url, _ := spoken(t, func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/generations") {
			return false
		}
		var b bytes.Buffer
		_, _ = b.ReadFrom(r.Body)
		var body struct{ ID string }
		_ = json.Unmarshal(b.Bytes(), &body)
		mu.Lock()
		defer mu.Unlock()
		ids[body.ID]++
		if refused++; refused <= 3 {
			w.WriteHeader([]int{http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusBadGateway}[refused-1])
			_, _ = w.Write([]byte(`{"detail":"not now"}`))
			return true
		}
		r.Body = io.NopCloser(&b)
		return false
	})
	var said bytes.Buffer
	to, err := newClient(url, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	defer to.close()
	to.log = zerolog.New(&said)
	r := newRanks(to, "job", eight(t), cluster.Conditions{}, 1)
	if err := r.run(t.Context(), 3, 0, time.Minute); err != nil || r.Verdicts["accepted"] != 3 {
		t.Error(err, r.Verdicts)
	}
	if len(ids) != 1 || refused != 4 {
		t.Errorf("%d ids in %d tries", len(ids), refused)
	}
	if text := said.String(); strings.Count(text, "trying again") != 1 || strings.Count(text, "answers again") != 1 || !strings.Contains(text, "not now") {
		t.Error(text)
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	nobody, err := newClient(gone.URL, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.close()
	begun := time.Now()
	err = newRanks(nobody, "job", eight(t), cluster.Conditions{}, 1).run(t.Context(), 3, 0, 400*time.Millisecond)
	if took := time.Since(begun); err == nil || badinput.Is(err) || !strings.Contains(err.Error(), "no answer from the service") || took < 300*time.Millisecond || took > 5*time.Second {
		t.Errorf("after %v: %v", took, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if err := newRanks(nobody, "job", eight(t), cluster.Conditions{}, 1).run(ctx, 3, 0, time.Hour); err == nil {
		t.Error("it does not end with its context")
	}
}

// Ranks whose service was lost with all that it knew register again, whether rank 0 reports for all or each for itself.
func TestRanksRegisterAgain(t *testing.T) {
	for _, own := range []bool{false, true} {
		var lose atomic.Pointer[func()]
		calls := atomic.Int32{}
		url, again := spoken(t, func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/reports") && calls.Add(1) == 20 {
				(*lose.Load())()
			}
			return false
		})
		lose.Store(&again)
		to, err := newClient(url, func(string) string { return "" })
		if err != nil {
			t.Fatal(err)
		}
		r := newRanks(to, "job", eight(t), cluster.Conditions{}, 1)
		r.own = own
		if err := r.run(t.Context(), 40, 0, time.Minute); err != nil || r.Rounds != 40 {
			t.Errorf("own %t: %v, %d rounds", own, err, r.Rounds)
		}
		if !own && (r.Verdicts["conflict"] == 0 || r.Verdicts["accepted"] < 35) {
			t.Errorf("%v", r.Verdicts)
		}
		to.close()
	}
}

// Ranks that report for themselves are tuned as those whose rank 0 reports.
func TestRanksOwn(t *testing.T) {
	sizes := map[bool][]int{}
	for _, own := range []bool{false, true} {
		var single atomic.Int32
		url, _ := spoken(t, func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, "/ranks/") {
				single.Add(1)
			}
			return false
		})
		to, err := newClient(url, func(string) string { return "" })
		if err != nil {
			t.Fatal(err)
		}
		r := newRanks(to, "job", eight(t), cluster.Conditions{}, 1)
		r.own = own
		if err := r.run(t.Context(), 30, 0, time.Minute); err != nil {
			t.Fatal(err)
		}
		sizes[own] = r.Sizes
		if n := single.Load(); (n > 0) != own {
			t.Errorf("own %t: %d calls of one rank", own, n)
		}
		if want := map[bool]int{false: 30, true: 30 * 4}[own]; r.Verdicts["accepted"] < want || len(r.Verdicts) != 1 {
			t.Errorf("own %t: %v", own, r.Verdicts)
		}
		to.close()
	}
	for i, n := range sizes[true] {
		if want := sizes[false][i]; n < want*7/10-2 || n > want*13/10+2 {
			t.Errorf("own: %v, by rank 0 %v", sizes[true], sizes[false])
			break
		}
	}
}

// A service on all addresses names itself as its certificate does.
func TestAddress(t *testing.T) {
	cert, key := certify(t)
	certs := &certificates{cmd: &Cmd{TLSCert: cert, TLSKey: key}}
	if err := certs.load(); err != nil {
		t.Fatal(err)
	}
	leaf := *certs.now.Load().Certificates[0].Leaf
	leaf.DNSNames = []string{"*.example", "evenkeel.example"}
	other := &certificates{}
	other.now.Store(&tls.Config{Certificates: []tls.Certificate{{Leaf: &leaf}}, MinVersion: tls.VersionTLS12})
	for _, x := range []struct {
		certs *certificates
		ip    net.IP
		want  string
	}{
		{nil, net.IPv4(127, 0, 0, 1), "http://127.0.0.1:70"}, {nil, net.IPv6loopback, "http://[::1]:70"}, {nil, net.IPv6unspecified, "http://localhost:70"},
		{certs, net.IPv4zero, "https://127.0.0.1:70"}, {certs, net.IPv4(10, 0, 0, 1), "https://10.0.0.1:70"}, {other, net.IPv6unspecified, "https://evenkeel.example:70"},
	} {
		if got := x.certs.address(fixed{&net.TCPAddr{IP: x.ip, Port: 70}}); got != x.want {
			t.Errorf("%v: %s, want %s", x.ip, got, x.want)
		}
	}
}

// fixed is a listener's address.
type fixed struct{ at net.Addr }

func (fixed) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (fixed) Close() error              { return nil }
func (f fixed) Addr() net.Addr          { return f.at }
