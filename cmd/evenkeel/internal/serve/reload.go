package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
	"evenkeel/serve"
)

// certificates are those of the service and of its clients' authority, as the files have them now.
type certificates struct {
	cmd *Cmd
	now atomic.Pointer[tls.Config]
}

// certificates reads them, nil without TLS.
func (c *Cmd) certificates() (*certificates, error) {
	switch {
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return nil, badinput.Errorf("--tls-cert and --tls-key belong together; give both")
	case c.TLSCert == "" && c.ClientCA != "":
		return nil, badinput.New("--client-ca has no effect without --tls-cert and --tls-key")
	case c.TLSCert == "":
		return nil, nil //nolint:nilnil // no certificate is no error
	}
	all := &certificates{cmd: c}
	return all, all.load()
}

// load reads the files. After an error the previous ones stay in use.
func (s *certificates) load() error {
	c := s.cmd
	pair, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
	if err != nil {
		return badinput.Errorf("--tls-cert %s, --tls-key %s: %w", c.TLSCert, c.TLSKey, err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if c.ClientCA != "" {
		text, err := os.ReadFile(c.ClientCA)
		if err != nil {
			return cli.FileError(err)
		}
		config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !config.ClientCAs.AppendCertsFromPEM(text) {
			return badinput.Errorf("--client-ca: %s holds no certificate", c.ClientCA)
		}
	}
	s.now.Store(config)
	return nil
}

// config gives each connection the newest certificates.
func (s *certificates) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.now.Load(), nil }}
}

// lookEvery is how often files are read again: a mounted secret is replaced by swapping a link, which file notifications miss.
var lookEvery = 2 * time.Second

// source is files that are read again when they change.
type source struct {
	name  string
	files []string
	load  func() error
	seen  [][]byte
}

// contents are the files', nil for those that cannot be read.
func (s *source) contents() [][]byte {
	var all [][]byte
	for _, f := range s.files {
		text, _ := os.ReadFile(f) // load says why not
		all = append(all, text)
	}
	return all
}

// refresh loads the files if they have changed.
func (s *source) refresh(a *cli.App) {
	now := s.contents()
	if slices.EqualFunc(now, s.seen, bytes.Equal) {
		return
	}
	s.seen = now
	if err := s.load(); err != nil {
		a.Log.Error().Err(err).Msg(s.name + ": cannot be read again; the previous ones stay in use")
		return
	}
	a.Log.Info().Msg(s.name + ": read again")
}

// tokens reads --token-file.
func (c *Cmd) tokens() (string, error) {
	text, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return "", cli.FileError(err)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return "", badinput.Errorf("--token-file: %s is empty", c.TokenFile)
	}
	return string(text), nil
}

// watch reads tokens and certificates again when their files change, until it is told to stop.
func (c *Cmd) watch(a *cli.App, s *serve.Server, certs *certificates) (stop func()) {
	var sources []*source
	if c.TokenFile != "" {
		sources = append(sources, &source{name: "tokens", files: []string{c.TokenFile}, load: func() error {
			text, err := c.tokens()
			if err != nil {
				return err
			}
			return s.SetTokens(text)
		}})
	}
	if certs != nil {
		sources = append(sources, &source{name: "certificates", files: []string{c.TLSCert, c.TLSKey, c.ClientCA}, load: certs.load})
	}
	if len(sources) == 0 {
		return func() {}
	}
	for _, x := range sources {
		x.seen = x.contents()
	}
	ctx, cancel := context.WithCancel(a.Ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				for _, x := range sources {
					x.refresh(a)
				}
			}
		}
	}()
	return func() {
		cancel()
		<-over
	}
}
