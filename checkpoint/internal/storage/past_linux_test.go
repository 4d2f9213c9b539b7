package storage

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func pastDisk(t *testing.T, size int64) *Disk {
	t.Helper()
	d, _, err := CreateDisk(filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	if err := d.Allocate(size, nil); err != nil {
		t.Fatal(err)
	}
	if err := d.PastCache(); err != nil {
		t.Skip("this file system has no direct input and output: ", err)
	}
	return d
}

// What the disk did in part is continued; an error reaches the writer, here or in Flush, and nothing is under way afterwards.
func TestRequestsThatFail(t *testing.T) {
	d := pastDisk(t, 16<<20)
	real := d.ring.harvest
	var answers []int64
	came := 0
	d.ring.harvest = func(into *[ringDepth]ioEvent) (int, error) {
		if len(answers) > 0 {
			time.Sleep(20 * time.Millisecond) // so that several come at a time
		}
		n, err := real(into)
		for i := range n {
			if came++; len(answers) > 0 {
				into[i].got, answers = answers[0], answers[1:]
			}
		}
		return n, err
	}
	data := make([]byte, 9*ringPiece)
	for i := range data {
		data[i] = byte(i * 7 >> 8)
	}
	answers = []int64{2 * Block, Block} // the rest is asked for again
	if _, err := d.WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	if came != 9+2 {
		t.Errorf("%d requests, want 11", came)
	}
	got := make([]byte, len(data))
	if _, err := d.ReadAt(got, 0); err != nil || !bytes.Equal(got, data) {
		t.Errorf("other bytes, %v", err)
	}
	for _, c := range []struct {
		answer int64
		want   error
	}{{-int64(unix.EIO), unix.EIO}, {0, io.ErrShortWrite}, {100, io.ErrShortWrite}} {
		answers = []int64{c.answer}
		_, err := d.WriteAt(data, ringPiece)
		if err = errors.Join(err, flushSoon(t, d)); !errors.Is(err, c.want) {
			t.Errorf("the disk said %d: %v", c.answer, err)
		}
		answers = []int64{c.answer} // to a request that only the flush sends
		if _, err := d.WriteAt(data[:ringPiece], ringPiece); err != nil {
			t.Fatal(err)
		}
		if err := d.Flush(); !errors.Is(err, c.want) {
			t.Errorf("the disk said %d to the last request: %v", c.answer, err)
		}
		if err := d.Flush(); err != nil {
			t.Errorf("said twice: %v", err)
		}
		for i, p := range d.ring.pieces {
			if p.fill != 0 || p.sent {
				t.Errorf("piece %d is under way after an error", i)
			}
		}
	}
	answers = nil
	if _, err := d.WriteAt(data, 2*ringPiece); err != nil {
		t.Fatal(err)
	}
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.ReadAt(got, 2*ringPiece); err != nil || !bytes.Equal(got, data) {
		t.Errorf("after the errors: other bytes, %v", err)
	}
}

// flushSoon fails where a flush waits for a request that came long ago.
func flushSoon(t *testing.T, d *Disk) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- d.Flush() }()
	select {
	case err := <-done:
		return err
	case <-time.After(20 * time.Second):
		d.ring = nil // it is lost
		t.Fatal("a flush waits for what is not under way")
		return nil
	}
}

// Neighbours share a request; a flush is asked for only when all requests are done.
func TestNeighboursShareARequest(t *testing.T) {
	d := pastDisk(t, 4<<20)
	real := d.ring.harvest
	var sizes []int64
	d.ring.harvest = func(into *[ringDepth]ioEvent) (int, error) {
		n, err := real(into)
		for _, e := range into[:n] {
			sizes = append(sizes, e.got)
		}
		return n, err
	}
	record(t, func(what string) {
		if len(sizes) == 0 {
			t.Errorf("%s before the requests were done", what)
		}
	})
	at := int64(0)
	for _, n := range []int{directMin, Block, 3 * Block, Block} {
		if _, err := d.WriteAt(make([]byte, n), at); err != nil {
			t.Fatal(err)
		}
		at += int64(n)
	}
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	if len(sizes) != 1 || sizes[0] != at {
		t.Errorf("requests of %d bytes, want one of %d", sizes, at)
	}
}

// Two requests for one place are never under way together: the disk may do them in either order.
func TestOneRequestForAPlace(t *testing.T) {
	d := pastDisk(t, 8<<20)
	write := func(n int, at int64) {
		t.Helper()
		if _, err := d.WriteAt(make([]byte, n), at); err != nil {
			t.Fatal(err)
		}
	}
	write(ringPiece, 0)
	write(ringPiece, 4<<20) // sends the one before
	if !d.ring.pieces[0].sent {
		t.Fatal("nothing is under way")
	}
	write(directMin, ringPiece-directMin)
	if d.ring.pieces[0].sent {
		t.Error("a second write to a place did not wait for the first")
	}
	write(5, ringPiece-directMin) // through the cache
	if d.ring.pieces[2].sent || d.ring.pieces[2].fill > 0 {
		t.Error("a write through the cache did not wait for one past it")
	}
}
