package serve

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
)

// client speaks to a service, or to several that share a journal.
type client struct {
	urls  []string
	token string
	http  *http.Client
	turns atomic.Uint32 // calls that had no answer

	log  zerolog.Logger // of who tries again
	lost atomic.Bool    // the newest call of those had no answer
}

// heard logs when the service stops answering and when it answers again, for commands that try again.
func (c *client) heard(err error) {
	switch {
	case err != nil && !errors.Is(err, context.Canceled) && !c.lost.Swap(true):
		c.log.Warn().Err(err).Msg("no answer; trying again")
	case err == nil && c.lost.Swap(false):
		c.log.Info().Msg("the service answers again")
	}
}

// newClient is for the services at a list of URLs, "" for that of the environment.
func newClient(at string, env func(string) string) (*client, error) {
	at = cmp.Or(at, env("EVENKEEL_URL"), "http://"+defaultListen)
	c := &client{token: env("EVENKEEL_TOKEN")}
	for one := range strings.SplitSeq(at, ",") {
		one = strings.TrimSpace(one)
		u, err := url.Parse(one)
		if err == nil && (u.User != nil || u.RawQuery != "") {
			return nil, badinput.New("--url: the address must have a host and a port only; give a token in EVENKEEL_TOKEN")
		}
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, badinput.Errorf("--url: %q is not the address of a service; write http://127.0.0.1:7070, for example, or several separated by commas", one)
		}
		c.urls = append(c.urls, strings.TrimSuffix(one, "/"))
	}
	secure, err := clientTLS(env)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 1000, TLSClientConfig: secure}
	c.http = &http.Client{Transport: transport, Timeout: max(10*time.Second/time.Duration(len(c.urls)), 2*time.Second)}
	return c, nil
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

// do sends a body about a job, "" for all, unless the body is nil, and reads the answer into out, unless that is nil. A problem is an error with its
// text. Where a service gives no answer, or cannot now, the next one is asked; a job's name says which comes first.
func (c *client) do(ctx context.Context, method, job, path string, body, out any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	if job != "" {
		path = "/" + url.PathEscape(job) + path
	}
	for try := 1; ; try++ {
		at := c.urls[(crc32.ChecksumIEEE([]byte(job))+c.turns.Load())%uint32(len(c.urls))] //nolint:gosec // few
		status, err := c.call(ctx, method, at+"/v1/jobs"+path, text, out)
		if err == nil || ctx.Err() != nil || status != 0 && status != http.StatusServiceUnavailable {
			return err
		}
		if c.turns.Add(1); try == len(c.urls) {
			return err
		}
	}
}

// call asks one service. The status is 0 without an answer.
func (c *client) call(ctx context.Context, method, at string, text []byte, out any) (int, error) {
	r, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(text))
	if err != nil {
		return 0, badinput.Wrap(err)
	}
	if text != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if mistrusted(err) {
			return 0, badinput.Errorf("no secure connection to the service: %w; check https or http in EVENKEEL_URL, and the authority in EVENKEEL_CA", err)
		}
		return 0, fmt.Errorf("no answer from the service: %w; evenkeel serve starts one", err)
	}
	defer func() { _ = answer.Body.Close() }()
	got, err := io.ReadAll(io.LimitReader(answer.Body, mostAnswer))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", at, err)
	}
	if answer.StatusCode < 300 {
		if out == nil {
			return answer.StatusCode, nil
		}
		if err := json.Unmarshal(got, out); err != nil {
			return answer.StatusCode, fmt.Errorf("%s: %w", at, err)
		}
		return answer.StatusCode, nil
	}
	var p struct {
		Detail string
		Errors []struct{ Location, Message string }
	}
	if json.Unmarshal(got, &p) != nil || p.Detail == "" {
		return answer.StatusCode, fmt.Errorf("%s: %s: this is not an evenkeel service", at, answer.Status)
	}
	why := []error{fmt.Errorf("%s: %s: %s", at, answer.Status, p.Detail)}
	for _, e := range p.Errors {
		why = append(why, fmt.Errorf("%s: %s", e.Location, e.Message))
	}
	refused := &refusal{answer.StatusCode, errors.Join(why...)}
	if answer.StatusCode < 500 && answer.StatusCode != http.StatusTooManyRequests {
		return answer.StatusCode, badinput.Wrap(refused)
	}
	return answer.StatusCode, refused
}

// refusal is an answer that is a problem.
type refusal struct {
	status int
	error
}

// refusedWith says whether an error is an answer of that status.
func refusedWith(err error, status int) bool {
	r := (*refusal)(nil)
	return errors.As(err, &r) && r.status == status
}

// mistrusted says whether a connection failed because of its certificates or protocol, which trying again does not change.
func mistrusted(err error) bool {
	return errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(tls.RecordHeaderError)) || errors.As(err, new(tls.AlertError))
}
