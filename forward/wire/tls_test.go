package wire

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certificate writes a certificate of 127.0.0.1 and its key.
func certificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: cert}, keyFile: {Type: "EC PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// A server with a certificate speaks TLS alone: who sends the token in clear text is not answered.
func TestCertificateMeansTLS(t *testing.T) {
	certFile, keyFile := certificate(t)
	s, err := Serve(ServerOptions{Addr: "127.0.0.1:0", Token: "secret", CertFile: certFile, KeyFile: keyFile})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	address, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	if address.Scheme != "tls" {
		t.Errorf("the server's address is %s", s.URL())
	}
	if s.Token() != "secret" {
		t.Errorf("the token is %q", s.Token())
	}
	c, err := Connect(s.URL(), Options{Rank: -1, Token: "secret", CAFile: certFile})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if !c.TLSRequired() {
		t.Error("the connection is in clear text")
	}
	if c.Opts.Timeout < 5*time.Second {
		t.Errorf("handshakes have %v: not enough on a slow line or a busy machine", c.Opts.Timeout)
	}
	if c, err := Connect(s.URL(), Options{Rank: -1, Token: "secret"}); err == nil {
		c.Close()
		t.Error("a certificate that nobody vouches for was taken")
	}
	plain, err := net.Dial("tcp", address.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	_ = plain.SetDeadline(time.Now().Add(20 * time.Second))
	answers := bufio.NewReader(plain)
	if info, err := answers.ReadString('\n'); err != nil || !strings.Contains(info, `"tls_required":true`) {
		t.Errorf("the server says %s, %v", info, err)
	}
	if _, err := fmt.Fprint(plain, `CONNECT {"verbose":false,"user":"launch","pass":"secret"}`+"\r\nPING\r\n"); err != nil {
		t.Fatal(err)
	}
	for line, err := answers.ReadString('\n'); err == nil; line, err = answers.ReadString('\n') {
		if strings.HasPrefix(line, "PONG") {
			t.Error("the server answers in clear text")
		}
	}
}
