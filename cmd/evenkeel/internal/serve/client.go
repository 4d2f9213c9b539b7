package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/internal/badinput"
)

// client speaks to a service.
type client struct {
	url, token string
	http       *http.Client
}

// newClient is for the service at a URL, "" for that of the environment.
func newClient(at string, env func(string) string) (*client, error) {
	if at == "" {
		if at = env("EVENKEEL_URL"); at == "" {
			at = "http://" + defaultListen
		}
	}
	u, err := url.Parse(at)
	if err == nil && (u.User != nil || u.RawQuery != "") {
		return nil, badinput.New("--url: the address holds more than a host and a port; a token goes into EVENKEEL_TOKEN")
	}
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, badinput.Errorf("--url: %q is no address of a service; write http://127.0.0.1:7070, for example", at)
	}
	secure, err := clientTLS(env)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 1000, TLSClientConfig: secure}
	return &client{url: strings.TrimSuffix(at, "/"), token: env("EVENKEEL_TOKEN"), http: &http.Client{Transport: transport, Timeout: 10 * time.Second}}, nil
}

// clientTLS is the authority that a client trusts, and its own certificate, as the environment names them.
func clientTLS(env func(string) string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if path := env("EVENKEEL_CA"); path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			return nil, cli.FileError(err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, badinput.Errorf("EVENKEEL_CA: %s holds no certificate", path)
		}
	}
	if cert, key := env("EVENKEEL_CERT"), env("EVENKEEL_KEY"); cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, badinput.Errorf("EVENKEEL_CERT and EVENKEEL_KEY: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func (c *client) close() { c.http.CloseIdleConnections() }

// mostAnswer is how much of an answer is read.
const mostAnswer = 64 << 20

// do sends a body, unless that is nil, and reads the answer into out, unless that is nil. A problem is an error with its text.
func (c *client) do(ctx context.Context, method, path string, body, out any) error {
	var text io.Reader
	if body != nil {
		t, err := json.Marshal(body)
		if err != nil {
			return err
		}
		text = bytes.NewReader(t)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, text)
	if err != nil {
		return badinput.Wrap(err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("no answer of the service: %w; evenkeel serve starts one", err)
	}
	defer func() { _ = answer.Body.Close() }()
	got, err := io.ReadAll(io.LimitReader(answer.Body, mostAnswer))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if answer.StatusCode < 300 {
		if out == nil {
			return nil
		}
		if err := json.Unmarshal(got, out); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	}
	var p struct {
		Detail string
		Errors []struct{ Location, Message string }
	}
	if json.Unmarshal(got, &p) != nil || p.Detail == "" {
		return fmt.Errorf("%s: %s: it is no service of evenkeel", c.url+path, answer.Status)
	}
	why := []error{fmt.Errorf("%s: %s: %s", c.url, answer.Status, p.Detail)}
	for _, e := range p.Errors {
		why = append(why, fmt.Errorf("%s: %s", e.Location, e.Message))
	}
	if answer.StatusCode < 500 {
		return badinput.Wrap(errors.Join(why...))
	}
	return errors.Join(why...)
}
