package serve

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"evenkeel/cluster"
	"evenkeel/serve"
)

// A disk that takes nothing does not hold up the job, which adds under its lock; what was added is
// written once it does, as it was then, and what found no room is said.
func TestLogDoesNotWait(t *testing.T) {
	for _, events := range []int{unwritten / 2, 3 * unwritten} {
		path := filepath.Join(t.TempDir(), "pipe")
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Skip(err)
		}
		r, err := os.OpenFile(path, os.O_RDWR, 0) // no end before it is closed
		if err != nil {
			t.Fatal(err)
		}
		l, err := newJobLog(path, "test", "")
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		report := cluster.Report{Nodes: make([]cluster.NodeReport, 1)}
		for k := range events {
			report.Round, report.Nodes[0].Size = k, k
			l.add(serve.Event{Report: &report, Ran: cluster.Plan{Number: k + 1, Sizes: []int{1}}})
		}
		if took := time.Since(begun); took > 5*time.Second {
			t.Fatalf("%d events took %v", events, took)
		}
		var got bytes.Buffer
		read := make(chan error, 1)
		go func() {
			_, err := io.Copy(&got, r)
			read <- err
		}()
		err = l.close()
		time.Sleep(50 * time.Millisecond) // the reader takes the rest
		_ = r.Close()
		if err := <-read; err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
		lines := strings.Split(strings.TrimSpace(got.String()), "\n")[1:]
		want := events
		if behind := events > unwritten; behind != (err != nil && strings.Contains(err.Error(), "rounds behind")) {
			t.Errorf("%d events: %v", events, err)
		} else if behind {
			want = len(lines)
			if want < unwritten || want > unwritten+200 { // and what the pipe holds
				t.Errorf("%d lines", want)
			}
		}
		if len(lines) != want {
			t.Errorf("%d lines of %d events", len(lines), events)
		}
		for k, line := range lines {
			if !strings.Contains(line, `"round":`+strconv.Itoa(k)+",") || !strings.Contains(line, `"size":`+strconv.Itoa(k)+",") && k > 0 {
				t.Fatalf("line %d: %s", k, line)
			}
		}
	}
}
