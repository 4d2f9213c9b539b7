package serve

import (
	"bytes"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// The service manager is told by one datagram a state; one that is gone is no reason to fail.
func TestNotify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	for _, at := range []string{path, "@evenkeel-test-" + filepath.Base(t.TempDir())} {
		l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: at, Net: "unixgram"})
		if err != nil {
			t.Skip(err)
		}
		t.Setenv("NOTIFY_SOCKET", at)
		notify(zerolog.Nop(), "READY=1")
		_ = l.SetReadDeadline(time.Now().Add(5 * time.Second))
		var got [64]byte
		n, err := l.Read(got[:])
		_ = l.Close()
		if err != nil || string(got[:n]) != "READY=1" {
			t.Errorf("%s: %q, %v", at, got[:n], err)
		}
	}
	var log bytes.Buffer
	t.Setenv("NOTIFY_SOCKET", path)
	notify(zerolog.New(&log), "STOPPING=1")
	if !strings.Contains(log.String(), "STOPPING=1") {
		t.Errorf("%s", log.String())
	}
	log.Reset()
	t.Setenv("NOTIFY_SOCKET", "")
	if notify(zerolog.New(&log), "READY=1"); log.Len() > 0 {
		t.Errorf("%s", log.String())
	}
}
