package serve

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/serve"
)

// safe is a buffer that a service writes while a test reads.
type safe struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safe) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safe) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Certificates, the clients' authority and tokens are exchanged while the service runs; files that are wrong for a while change nothing; nothing secret is logged.
func TestReload(t *testing.T) {
	defer func(before time.Duration) { lookEvery = before }(lookEvery)
	lookEvery = 50 * time.Millisecond
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(file(name)+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file(name)+".new", file(name)); err != nil {
			t.Fatal(err)
		}
	}
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	type identity struct{ cert, key string }
	made := func() identity {
		cert, key := certify(t)
		return identity{cert, key}
	}
	first, second, client, stranger := made(), made(), made(), made()
	put("cert", read(first.cert))
	put("key", read(first.key))
	put("ca", read(client.cert))
	put("token", "the-first-of-the-tokens\n")
	var log safe
	ctx, stop := context.WithCancel(t.Context())
	app := &cli.App{Ctx: ctx, Log: zerolog.New(&log)}
	cmd := &Cmd{Listen: "127.0.0.1:0", TLSCert: file("cert"), TLSKey: file("key"), ClientCA: file("ca"), TokenFile: file("token")}
	config, certs, err := cmd.check(app)
	if err != nil {
		t.Fatal(err)
	}
	s, err := serve.New(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	l, err := cmd.listen("")
	if err != nil {
		t.Fatal(err)
	}
	unwatch := cmd.watch(app, s, certs)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	defer func() {
		stop()
		unwatch()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	ask := func(server, own identity, token string) error {
		c, err := newClient((&certificates{}).address(l), func(name string) string {
			return map[string]string{"EVENKEEL_CA": server.cert, "EVENKEEL_TOKEN": token, "EVENKEEL_CERT": own.cert, "EVENKEEL_KEY": own.key}[name]
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		return c.do(ctx, http.MethodGet, "", "", nil, nil)
	}
	soon := func(what string, server, own identity, token string) {
		t.Helper()
		for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
			err := ask(server, own, token)
			if err == nil {
				return
			}
			if time.Since(begun) > 10*time.Second {
				t.Fatalf("%s: %v\n%s", what, err, log.String())
			}
		}
	}
	refused := func(what string, server, own identity, token, want string) {
		t.Helper()
		if err := ask(server, own, token); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), token) {
			t.Errorf("%s: %v", what, err)
		}
	}
	soon("as it should be", first, client, "the-first-of-the-tokens")
	refused("no certificate", first, identity{}, "the-first-of-the-tokens", "certificate required")
	refused("a stranger's", first, stranger, "the-first-of-the-tokens", "certificate")
	refused("no token", first, client, "another-that-is-not-it", "401")

	put("token", "the-second-of-the-tokens\n")
	soon("the next token", first, client, "the-second-of-the-tokens")
	refused("the token of before", first, client, "the-first-of-the-tokens", "401")
	put("token", "short\n")
	put("key", read(second.key)) // which is not the certificate's
	for begun := time.Now(); !strings.Contains(log.String(), "tokens: cannot be read again") || !strings.Contains(log.String(), "certificates: cannot be read again"); time.Sleep(50 * time.Millisecond) {
		if time.Since(begun) > 10*time.Second {
			t.Fatal(log.String())
		}
	}
	soon("while files are wrong", first, client, "the-second-of-the-tokens")
	put("cert", read(second.cert))
	soon("another certificate", second, client, "the-second-of-the-tokens")
	refused("the one of before", first, client, "the-second-of-the-tokens", "certificate")
	put("ca", read(stranger.cert))
	soon("another authority", second, stranger, "the-second-of-the-tokens")
	refused("who was let in before", second, client, "the-second-of-the-tokens", "certificate")
	for _, secret := range []string{"the-first-of-the-tokens", "the-second-of-the-tokens", "short", "PRIVATE"} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("%s is in the log: %s", secret, log.String())
		}
	}
}

// What a client's environment has wrong is said, and no token with it.
func TestClientEnvironment(t *testing.T) {
	cert, key := certify(t)
	for name, x := range map[string]struct {
		url  string
		env  map[string]string
		want string
	}{
		"a token in the address":  {"https://secret-of-mine@127.0.0.1:1", nil, "EVENKEEL_TOKEN"},
		"a token behind it":       {"https://127.0.0.1:1/?token=secret-of-mine", nil, "EVENKEEL_TOKEN"},
		"a certificate alone":     {"https://127.0.0.1:1", map[string]string{"EVENKEEL_CERT": cert}, "EVENKEEL_CERT and EVENKEEL_KEY"},
		"a key for a certificate": {"https://127.0.0.1:1", map[string]string{"EVENKEEL_CERT": key, "EVENKEEL_KEY": key}, "EVENKEEL_CERT"},
		"no certificate at all":   {"https://127.0.0.1:1", map[string]string{"EVENKEEL_CA": key}, "holds no certificate"},
	} {
		_, err := newClient(x.url, func(name string) string { return x.env[name] })
		if err == nil || !strings.Contains(err.Error(), x.want) || strings.Contains(err.Error(), "secret-of-mine") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
