// Package remote keeps finished checkpoints in storage that speaks S3, and gets them back. A checkpoint is a
// safetensors file for each file of the job, and a list of them with their checksums. The list is written last;
// without it a checkpoint does not count. Keys come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
// AWS_SESSION_TOKEN)
// and stay in memory.
package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// The errors that callers distinguish, to be asked for with errors.Is.
var (
	// ErrConfig: the place or the keys are not usable as they are.
	ErrConfig = errors.New("remote storage is not set up")
	// ErrCorrupt: what was read is not what was written.
	ErrCorrupt = errors.New("what the remote storage returned is damaged")
	// ErrNone: no complete checkpoint is there.
	ErrNone = errors.New("no complete checkpoint in the remote storage")
)

// Config says where checkpoints are kept. Keys are not part of it. The region is AWS_REGION, else us-east-1.
type Config struct {
	URL      string // s3://bucket/prefix
	Endpoint string // http://host:port or https://host; "": AWS_ENDPOINT_URL, else Amazon's
	// Stall is how long no byte may move before a request is given up; 0: 30 s.
	Stall time.Duration
	// Retries of a request that failed for no lasting reason; 0: 4.
	Retries int
}

// Store is a folder of checkpoints in a bucket.
type Store struct {
	client *minio.Client
	bucket string
	prefix string // ends with a slash, or is empty
	where  string // as people know it
	http   *http.Transport
}

// Open checks the configuration; it sends nothing.
func Open(c Config) (*Store, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "s3" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, fmt.Errorf("%q is not a place such as s3://bucket/folder: %w", redact(c.URL), ErrConfig)
	}
	endpoint := cmp.Or(c.Endpoint, os.Getenv("AWS_ENDPOINT_URL"), "https://s3.amazonaws.com")
	e, err := url.Parse(endpoint)
	if err != nil || e.Host == "" || e.Scheme != "http" && e.Scheme != "https" || e.User != nil || strings.Trim(e.Path, "/") != "" {
		return nil, fmt.Errorf("endpoint %q is not such as https://host or http://host:port: %w", redact(endpoint), ErrConfig)
	}
	keys := credentials.NewEnvAWS()
	if v, err := keys.GetWithContext(nil); err != nil || v.AccessKeyID == "" || v.SecretAccessKey == "" {
		return nil, fmt.Errorf("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment: %w", ErrConfig)
	}
	transport := transport(cmp.Or(max(c.Stall, 0), 30*time.Second))
	client, err := minio.New(e.Host, &minio.Options{
		Creds: keys, Secure: e.Scheme == "https", Transport: transport, Region: cmp.Or(os.Getenv("AWS_REGION"), "us-east-1"), MaxRetries: cmp.Or(max(c.Retries, 0), 4),
	})
	if err != nil {
		return nil, fmt.Errorf("endpoint %q: %w: %w", endpoint, err, ErrConfig)
	}
	prefix := strings.Trim(u.Path, "/")
	if prefix != "" {
		prefix += "/"
	}
	return &Store{client: client, bucket: u.Host, prefix: prefix, where: fmt.Sprintf("s3://%s/%s at %s", u.Host, strings.TrimSuffix(prefix, "/"), e.Host), http: transport}, nil
}

// Close lets idle connections go.
func (s *Store) Close() { s.http.CloseIdleConnections() }

// redact takes out what may be a password.
func redact(place string) string {
	if u, err := url.Parse(place); err == nil {
		return u.Redacted()
	}
	return "(unreadable)"
}

// transport gives up connections on which nothing moves.
func transport(stall time.Duration) *http.Transport {
	dialer := &net.Dialer{Timeout: stall}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &moving{c, stall}, nil
		},
		TLSHandshakeTimeout: stall, ResponseHeaderTimeout: stall, ExpectContinueTimeout: time.Second,
		IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 4, DisableCompression: true,
	}
}

// moving is a connection that fails where nothing is read or written for as long as it may stall.
type moving struct {
	net.Conn
	stall time.Duration
}

func (m *moving) Read(b []byte) (int, error) {
	if err := m.SetReadDeadline(time.Now().Add(m.stall)); err != nil {
		return 0, err
	}
	return m.Conn.Read(b)
}

func (m *moving) Write(b []byte) (int, error) {
	if err := m.SetWriteDeadline(time.Now().Add(m.stall)); err != nil {
		return 0, err
	}
	return m.Conn.Write(b)
}

// remedies for what servers say most.
var remedies = map[string]string{
	"AccessDenied":          "the keys may not do this; look at the bucket's policy",
	"InvalidAccessKeyId":    "the server does not know AWS_ACCESS_KEY_ID",
	"SignatureDoesNotMatch": "AWS_SECRET_ACCESS_KEY is not the key's",
	"NoSuchBucket":          "make the bucket first",
	"ExpiredToken":          "AWS_SESSION_TOKEN has expired",
}

// explain says what was tried, where, and what helps.
func (s *Store) explain(what string, err error) error {
	if err == nil {
		return nil
	}
	var said minio.ErrorResponse
	var timeout net.Error
	switch {
	case errors.Is(err, context.Canceled): // a time-out of net/http is a context.DeadlineExceeded, too
	case errors.As(err, &said) && remedies[said.Code] != "":
		return fmt.Errorf("%s: %s: %w: %s", s.where, what, err, remedies[said.Code])
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%s: %s: %w: the server is too slow, or does not answer; what was uploaded before is still there", s.where, what, err)
	}
	return fmt.Errorf("%s: %s: %w", s.where, what, err)
}
