package journal

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"evenkeel/internal/fulldisk"
)

// A disk that is full is named within a second, before the answer and as long as it is; what was kept is read. Once there is room the journal goes on.
func TestFullDisk(t *testing.T) {
	j := open(t, Options{Dir: t.TempDir()})
	if _, err := j.Append(t.Context(), "large", 0, make([]byte, fulldisk.Most)); err != nil {
		t.Fatal(err)
	}
	var want []string
	var last uint64
	for k := range 2 {
		var err error
		for range 20 {
			if last, err = j.Append(t.Context(), "job", last, []byte(fmt.Sprint(len(want)))); err != nil {
				t.Fatal(err)
			}
			want = append(want, fmt.Sprint(len(want)))
		}
		free := fulldisk.Fill(t)
		for i, ask := range []func() error{
			func() error { _, err := j.Append(t.Context(), "job", last, []byte("lost")); return err },
			func() error { _, err := j.Append(t.Context(), "other", 0, []byte("lost")); return err },
			func() error { return j.Check(t.Context()) },
			j.Writable,
			func() error { return j.Remove(t.Context(), "other") },
		} {
			begun, full := time.Now(), (*DiskError)(nil)
			if err := ask(); !errors.As(err, &full) || !full.Full || !strings.HasPrefix(err.Error(), "the journal's disk is full: file too large") || time.Since(begun) > time.Second {
				t.Errorf("%d: question %d: %v after %v", k, i, err, time.Since(begun))
			}
		}
		if got, n := read(t, j, "job"); fmt.Sprint(got) != fmt.Sprint(want) || n != last {
			t.Errorf("%v up to %d while the disk is full; want %v up to %d", got, n, want, last)
		}
		free()
		if err := j.Check(t.Context()); err != nil {
			t.Errorf("there is room: %v", err)
		}
	}
	fulldisk.Fill(t)
	if _, err := Open(t.Context(), Options{Dir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "disk is full: file too large; make room") {
		t.Errorf("opened on a full disk: %v", err)
	}
}

// Reports end while something is left for snapshots and removals; new jobs before them.
func TestSpare(t *testing.T) {
	j := open(t, Options{Dir: t.TempDir()})
	free := uint64(1000)
	j.statfs = func(_ string, into *unix.Statfs_t) error {
		into.Blocks, into.Bavail, into.Bsize = 1000, free, 1<<20
		return nil
	}
	for _, x := range []struct {
		free       uint64
		room, more bool
	}{{50, true, true}, {49, false, true}, {13, false, true}, {12, false, false}, {0, false, false}} {
		free = x.free
		if room, more := j.Room(t.Context()), j.Writable(); (room == nil) != x.room || (more == nil) != x.more {
			t.Errorf("%d MiB free: %v, %v", free, room, more)
		}
	}
	if err := j.Writable(); err == nil || err.Error() != "the journal's disk is full: 0 B of 1000 MiB are free" {
		t.Error(err)
	}
	if _, err := j.Append(t.Context(), "job", 0, []byte("a snapshot")); err != nil {
		t.Error(err)
	}
	j.statfs = func(string, *unix.Statfs_t) error { return os.ErrPermission }
	if err := j.Writable(); err == nil || !strings.Contains(err.Error(), "takes no writes: permission denied") {
		t.Error(err)
	}
}
