package serve

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"evenkeel/agent/clusters"
	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
	"evenkeel/serve"
)

// certify writes a certificate of 127.0.0.1 that signs itself, and its key.
func certify(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	what := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, what, what, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", pkcs)
}

// With TLS a client needs the authority's certificate and the job's token, and gets no further without either.
func TestTLS(t *testing.T) {
	cert, key := certify(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("a token that is long enough\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := &Cmd{Listen: "127.0.0.1:0", TLSCert: cert, TLSKey: key, TokenFile: token}
	config, _, err := cmd.check(&cli.App{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := serve.New(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	l, err := cmd.listen("")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	own, err := s.CreateJob("job", serve.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	_, c, err := clusters.Load("heldout-8", profile.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct{ url, ca, token, want string }{
		"as it should be": {(&certificates{}).address(l), cert, own, ""},
		"no authority":    {(&certificates{}).address(l), "", own, "certificate"},
		"no token":        {(&certificates{}).address(l), cert, "", "401"},
		"another token":   {(&certificates{}).address(l), cert, own[1:], "401"},
	} {
		to, err := newClient(x.url, func(name string) string {
			return map[string]string{"EVENKEEL_CA": x.ca, "EVENKEEL_TOKEN": x.token}[name]
		})
		if err != nil {
			t.Fatal(err)
		}
		err = newRanks(to, "job", c, cluster.Conditions{}, 1).run(ctx, 3, 0, time.Minute)
		to.close()
		if x.want == "" && err != nil || x.want != "" && (!badinput.Is(err) || !strings.Contains(err.Error(), x.want)) { // which trying again does not change
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
		if err != nil && x.token != "" && strings.Contains(err.Error(), x.token) {
			t.Errorf("%s: the token is in the error: %v", name, err)
		}
	}
}

// Only loopback may be open to everybody.
func TestWhoMayListen(t *testing.T) {
	for at, want := range map[string]bool{
		"127.0.0.1:0": true, "localhost:0": true, "[::1]:0": true, "127.8.9.1:0": true, "0.0.0.0:0": false, ":0": false, "[::]:0": false, "10.0.0.1:0": false, "example.com:0": false,
	} {
		_, _, err := (&Cmd{Listen: at}).check(&cli.App{})
		if (err == nil) != want || err != nil && !badinput.Is(err) {
			t.Errorf("%s: %v", at, err)
		}
	}
}

// Of several services the next one is asked where one is gone or cannot now; what one refuses is not asked again. A job's name says which comes first.
func TestSeveralServices(t *testing.T) {
	var asked []string
	status := map[string]int{}
	service := func(name string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, name+" "+r.URL.EscapedPath())
			w.WriteHeader(status[name])
			_, _ = w.Write([]byte(`{"detail":"no"}`))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	a, b := service("a"), service("b")
	for _, x := range []struct {
		urls []string
		a, b int
		want string // who is asked
		err  bool
	}{
		{[]string{a, b}, 200, 200, "b", false}, // CRC-32 of "my job" is odd
		{[]string{b, a}, 200, 200, "a", false},
		{[]string{a, gone.URL}, 200, 200, "a", false},
		{[]string{a, b}, 200, 503, "b a", false},
		{[]string{a, b}, 503, 503, "b a", true},
		{[]string{a, b}, 200, 404, "b", true},
		{[]string{gone.URL, gone.URL}, 200, 200, "", true},
	} {
		asked = nil
		status["a"], status["b"] = x.a, x.b
		c, err := newClient(strings.Join(x.urls, ", "), func(string) string { return "" })
		if err != nil {
			t.Fatal(err)
		}
		err = c.do(t.Context(), http.MethodGet, "my job", "/sizes", nil, nil)
		want := ""
		for name := range strings.FieldsSeq(x.want) {
			want += name + " /v1/jobs/my%20job/sizes,"
		}
		if got := strings.Join(append(asked, ""), ","); got != want || (err != nil) != x.err {
			t.Errorf("%+v: asked %s, %v", x, got, err)
		}
		c.close()
	}
	for _, bad := range []string{"http://a,", "http://a,b:1", "ftp://a"} {
		if _, err := newClient(bad, func(string) string { return "" }); !badinput.Is(err) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
