package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"evenkeel/internal/badinput"
)

func open(t *testing.T, o Options) *Journal {
	t.Helper()
	j, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	return j
}

// read is a job's messages and the number of the newest.
func read(t *testing.T, j *Journal, job string) ([]string, uint64) {
	t.Helper()
	var got []string
	last, err := j.Read(t.Context(), job, 0, func(m []byte) error {
		got = append(got, string(m))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got, last
}

// What was appended is there when the folder is opened again, job by job, in order, whatever the jobs are called.
func TestKept(t *testing.T) {
	dir := t.TempDir()
	want, last := map[string][]string{}, map[string]uint64{}
	jobs := []string{"a", "a.b", "a.b.c", "a-b_C", "A.", "a..b", "*", ">", "a b", "a%2Eb", "a.*", "é"}
	for round := range 3 {
		j := open(t, Options{Dir: dir})
		for k := range 30 {
			job := jobs[k%len(jobs)]
			text := fmt.Sprint(round, k)
			n, err := j.Append(t.Context(), job, last[job], []byte(text))
			if err != nil {
				t.Fatalf("%s: %v", job, err)
			}
			last[job] = n
			want[job] = append(want[job], text)
		}
		j.Close()
	}
	j := open(t, Options{Dir: dir})
	names, err := j.Jobs(t.Context())
	if slices.Sort(jobs); err != nil || !slices.Equal(names, jobs) {
		t.Errorf("%v, %v", names, err)
	}
	for job, texts := range want {
		if got, n := read(t, j, job); !slices.Equal(got, texts) || n != last[job] {
			t.Errorf("%s: %v up to %d; want %v up to %d", job, got, n, texts, last[job])
		}
		if n, err := j.Last(t.Context(), job); n != last[job] || err != nil {
			t.Errorf("%s: %d, %v", job, n, err)
		}
	}
	if got, n := read(t, j, "none"); got != nil || n != 0 {
		t.Errorf("%v, %d", got, n)
	}
	if err := j.Remove(t.Context(), "a.b"); err != nil {
		t.Fatal(err)
	}
	if got, _ := read(t, j, "a.b"); got != nil {
		t.Errorf("removed: %v", got)
	}
	if got, _ := read(t, j, "a.b.c"); !slices.Equal(got, want["a.b.c"]) {
		t.Errorf("another was removed: %v", got)
	}
	if n, err := j.Append(t.Context(), "a.b", 0, []byte("anew")); err != nil || n == 0 {
		t.Errorf("%d, %v", n, err)
	}
	if c := j.server.JetStreamConfig(); !c.SyncAlways {
		t.Error("what is acknowledged is not on the disk") // a process that is killed does not show it
	}
	for range 3 { // it leaves one message, whatever it is asked
		if err := j.Check(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if info, err := j.stream.Info(t.Context(), jetstream.WithSubjectFilter(probe)); err != nil || info.State.Subjects[probe] != 1 {
		t.Errorf("%v, %v", info.State.Subjects, err)
	}
	if again, err := j.Jobs(t.Context()); err != nil || slices.Contains(again, "%ready") || len(again) != len(want) {
		t.Errorf("%v, %v", again, err)
	}
}

// Who writes behind another's back cannot.
func TestStale(t *testing.T) {
	j := open(t, Options{Dir: t.TempDir()})
	first, err := j.Append(t.Context(), "job", 0, []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := j.Append(t.Context(), "job", first, []byte("2"))
	if err != nil {
		t.Fatal(err)
	}
	for _, last := range []uint64{0, first, second + 1} {
		if n, err := j.Append(t.Context(), "job", last, []byte("x")); !errors.Is(err, ErrStale) {
			t.Errorf("after %d: %d, %v", last, n, err)
		}
	}
	if _, err := j.Append(t.Context(), "other", 0, []byte("1")); err != nil {
		t.Error(err)
	}
	if got, n := read(t, j, "job"); !slices.Equal(got, []string{"1", "2"}) || n != second {
		t.Errorf("%v, %d", got, n)
	}
	if err := j.Remove(t.Context(), "job"); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Append(t.Context(), "job", second, []byte("3")); !errors.Is(err, ErrStale) {
		t.Errorf("after a removal: %v", err)
	}
}

// Before the limit there is no room for further jobs; those that there are still write. Of a disk a twentieth must be free, or 256 MiB.
func TestRoom(t *testing.T) {
	j := open(t, Options{Dir: t.TempDir(), MaxBytes: 100_000})
	last, kept := uint64(0), 0
	var err error
	for j.Room(t.Context()) == nil {
		if last, err = j.Append(t.Context(), "job", last, make([]byte, 900)); err != nil {
			t.Fatal(err)
		}
		kept++
	}
	if err := j.Room(t.Context()); !errors.Is(err, ErrFull) || kept < 90 || kept > 105 {
		t.Errorf("%v after %d messages", err, kept)
	}
	for range 3 {
		if last, err = j.Append(t.Context(), "job", last, make([]byte, 900)); err != nil {
			t.Error(err)
		}
	}
	if err := j.Cut(t.Context(), "job", last); err != nil {
		t.Fatal(err)
	}
	if got, n := read(t, j, "job"); len(got) != 1 || n != last {
		t.Errorf("after a cut: %d messages up to %d, want %d", len(got), n, last)
	}
	if err := j.Room(t.Context()); err != nil {
		t.Errorf("after a cut: %v", err)
	}
	for _, x := range []struct {
		size, free uint64
		want       bool
	}{{1 << 40, 256 << 20, false}, {1 << 40, 256<<20 - 1, true}, {1 << 30, 1<<30/20 + 1, false}, {1 << 30, 1<<30/20 - 1, true}, {100 << 20, 0, true}} {
		if got := tight(x.size, x.free); got != x.want {
			t.Errorf("%+v: %v", x, got)
		}
	}
}

// A folder has one service, limits hold, an error of the reader ends reading, and what cannot be opened is said.
func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	j := open(t, Options{Dir: dir, MaxBytes: 4096})
	if _, err := Open(t.Context(), Options{Dir: dir}); !badinput.Is(err) || !strings.Contains(err.Error(), "in use") {
		t.Errorf("%v", err)
	}
	last, err := uint64(0), error(nil)
	for k := 0; err == nil && k < 100; k++ {
		last, err = j.Append(t.Context(), "job", last, make([]byte, 256))
	}
	if !errors.Is(err, ErrFull) {
		t.Errorf("%v", err)
	}
	for err = nil; err == nil && last < 1000; last++ { // the check's message is smaller, but not for ever
		_, err = j.Append(t.Context(), strconv.Itoa(int(last)), 0, nil)
	}
	if err := j.Check(t.Context()); err == nil {
		t.Error("a full journal is ready")
	}
	odd := errors.New("odd")
	if _, err := j.Read(t.Context(), "job", 0, func([]byte) error { return odd }); !errors.Is(err, odd) || !strings.Contains(err.Error(), "message 1") {
		t.Errorf("%v", err)
	}
	file := dir + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{"nothing": {}, "both": {Dir: dir, URL: "nats://127.0.0.1:1"}, "a file": {Dir: file}, "nobody there": {URL: "nats://127.0.0.1:1"}} {
		if _, err := Open(t.Context(), o); !badinput.Is(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, address := range []string{"nats://user:secret@127.0.0.1:1", "nats://secret@127.0.0.1:1", "nats://127.0.0.1:1,nats://u:secret@127.0.0.1:2", "user:secret@127.0.0.1:1", "nats://u:secret@127.0.0.1:%zz"} {
		if _, err := Open(t.Context(), Options{URL: address}); !badinput.Is(err) || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("%s: %v", address, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := j.Append(ctx, "job", last, nil); err == nil || errors.Is(err, ErrStale) {
		t.Errorf("canceled: %v", err)
	}
}
