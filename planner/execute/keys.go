package execute

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/google/renameio/v2"

	"evenkeel/internal/badinput"
)

// errKeys is wrapped by errors about certificates and keys that are missing, expired, or of another stage or authority. It is bad input.
var errKeys = badinput.New("execute: certificates")

// Names of the files in a folder of keys.
const authorityFile = "ca.pem"

func certificateFile(stage int) string { return fmt.Sprintf("stage-%d.pem", stage) }
func keyFile(stage int) string         { return fmt.Sprintf("stage-%d-key.pem", stage) }

// hostOf is the host name in a stage's certificate. With it no stage can impersonate another.
func hostOf(stage int) string { return fmt.Sprintf("stage-%d.evenkeel.internal", stage) }

const maxDays = 3650

// MakeKeys writes the certificate of a new authority, and a certificate and a private key for each stage, into a folder. They are valid
// from an hour before now, for clocks that differ, until the duration valid after now. The authority's key is not kept, so it signs no
// further certificates. A folder that holds any of the files is refused.
func MakeKeys(dir string, stages int, now time.Time, valid time.Duration) error {
	if stages < 1 || stages > MaxStages {
		return fmt.Errorf("%w: for %d stages; want 1 to %d", errKeys, stages, MaxStages)
	}
	if valid <= 0 || valid > maxDays*24*time.Hour {
		return fmt.Errorf("%w: valid for %v; want more than 0, at most %d days", errKeys, valid, maxDays)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	names := []string{authorityFile}
	for s := range stages {
		names = append(names, certificateFile(s), keyFile(s))
	}
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %s is there already; choose another folder", errKeys, filepath.Join(dir, name))
		}
	}
	public, authority, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	ca := template("evenkeel plan run: authority", now, valid)
	ca.IsCA, ca.BasicConstraintsValid, ca.MaxPathLenZero, ca.KeyUsage = true, true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, public, authority)
	if err != nil {
		return err
	}
	for s := range stages {
		if err := makeKey(dir, s, stages, template(hostOf(s), now, valid), ca, authority); err != nil {
			return err
		}
	}
	return writePEM(filepath.Join(dir, authorityFile), "CERTIFICATE", der)
}

func template(name string, now time.Time, valid time.Duration) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)) // rand.Reader does not fail
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(valid)}
}

func makeKey(dir string, stage, stages int, c, ca *x509.Certificate, authority ed25519.PrivateKey) error {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	c.DNSNames, c.KeyUsage = []string{hostOf(stage)}, x509.KeyUsageDigitalSignature
	if stage < stages-1 || stage == 0 { // other stages connect to it
		c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if stage > 0 {
		c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	der, err := x509.CreateCertificate(rand.Reader, c, ca, public, authority)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(writePEM(filepath.Join(dir, keyFile(stage)), "PRIVATE KEY", private), writePEM(filepath.Join(dir, certificateFile(stage)), "CERTIFICATE", der))
}

func writePEM(path, what string, der []byte) error {
	return renameio.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: what, Bytes: der}), 0o600)
}

// Keys are a stage's certificate and private key, and the certificate of the authority that all stages share.
type Keys struct {
	stage     int
	own       tls.Certificate
	authority *x509.CertPool
	now       func() time.Time // nil: time.Now
}

// maxKeyBytes is the size of the largest file of keys.
const maxKeyBytes = 64 << 10

// LoadKeys reads a stage's keys from a folder that MakeKeys wrote. Only ca.pem and the stage's own two files need to be there. Errors say
// what to do.
func LoadKeys(dir string, stage int, now time.Time) (*Keys, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{errKeys}, args...)...)
	}
	var texts [3][]byte
	for i, name := range []string{authorityFile, certificateFile(stage), keyFile(stage)} {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err != nil {
			return nil, bad("%w; evenkeel plan keys makes them", err)
		}
		if i == 2 && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
			return nil, bad("%s can be read by others (mode %04o): chmod 600 %s", path, info.Mode().Perm(), path)
		}
		if info.Size() > maxKeyBytes {
			return nil, bad("%s has %d bytes; that is no certificate or key", path, info.Size())
		}
		if texts[i], err = os.ReadFile(path); err != nil {
			return nil, bad("%w", err)
		}
	}
	k := &Keys{stage: stage, authority: x509.NewCertPool()}
	if !k.authority.AppendCertsFromPEM(texts[0]) {
		return nil, bad("%s holds no certificate", filepath.Join(dir, authorityFile))
	}
	var err error
	if k.own, err = tls.X509KeyPair(texts[1], texts[2]); err != nil {
		return nil, bad("%s and %s: %w", filepath.Join(dir, certificateFile(stage)), keyFile(stage), err)
	}
	path := filepath.Join(dir, certificateFile(stage))
	leaf := k.own.Leaf
	switch {
	case now.After(leaf.NotAfter):
		return nil, bad("%s expired on %s; make new ones with evenkeel plan keys", path, leaf.NotAfter.Format(time.DateTime))
	case now.Before(leaf.NotBefore):
		return nil, bad("%s is valid from %s on only; look at this machine's clock", path, leaf.NotBefore.Format(time.DateTime))
	}
	if err := leaf.VerifyHostname(hostOf(stage)); err != nil {
		return nil, bad("%s is not stage %d's: %w", path, stage, err)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: k.authority, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return nil, bad("%s is not signed by %s: %w", path, filepath.Join(dir, authorityFile), err)
	}
	return k, nil
}

// config requires TLS 1.3 and certificates on both sides. A client also requires the host name of the peer stage.
func (k *Keys) config(peer int) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{k.own}, Time: k.now,
		RootCAs: k.authority, ServerName: hostOf(peer),
		ClientCAs: k.authority, ClientAuth: tls.RequireAndVerifyClientCert,
		SessionTicketsDisabled: true,
	}
}

// stageOf is the stage in the certificate of the other end.
func stageOf(state tls.ConnectionState) (int, error) {
	if len(state.PeerCertificates) > 0 {
		for s := range MaxStages {
			if state.PeerCertificates[0].VerifyHostname(hostOf(s)) == nil {
				return s, nil
			}
		}
	}
	return 0, fmt.Errorf("%w: the other side's is not a stage's", errKeys)
}
