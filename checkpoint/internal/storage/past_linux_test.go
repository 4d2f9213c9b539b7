package storage

import (
	"bytes"
	"errors"
	"io"
	"os"
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
	if err := d.PastCache(true, true); err != nil {
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

func TestReadsPastTheCacheEnd(t *testing.T) {
	d := pastDisk(t, 1<<20+5)
	p := make([]byte, directMin+Block)
	if n, err := d.ReadAt(p, 1<<20-directMin); n != directMin+5 || !errors.Is(err, io.EOF) {
		t.Errorf("across the end: %d bytes, %v", n, err)
	}
	if side, size := Readers(d); side != 4 || size != 1<<20 {
		t.Errorf("%d readers of %d bytes", side, size)
	}
	if side, size := Readers(&Disk{}); side != 2 || size != 256<<10 {
		t.Errorf("through the cache: %d readers of %d bytes", side, size)
	}
}

// The faster way is the one whose best turn is shorter, past the cache for writes that are alike; for little room nothing is measured.
func TestMeasure(t *testing.T) {
	d := pastDisk(t, 4*measured)
	if w, r, err := d.Measure(0, 8*measured-1); w || r || err != nil {
		t.Errorf("too little room: %v %v %v", w, r, err)
	}
	now := time.Time{}
	defer func() { clock = time.Now }()
	for _, c := range []struct {
		took        [4]int // through: write, read; past: write, read
		write, read bool
	}{{[4]int{30, 20, 20, 30}, true, false}, {[4]int{20, 30, 30, 20}, false, true}, {[4]int{20, 20, 24, 20}, true, false}, {[4]int{20, 20, 25, 20}, false, false}} {
		looks := 0
		clock = func() time.Time {
			turn := looks / 8
			took := c.took[looks/2%4]
			if turn%2 == 0 { // three of five turns are disturbed
				took = 100 - took
			}
			if looks++; looks%2 == 0 {
				now = now.Add(time.Duration(took))
			}
			return now
		}
		write, read, err := d.Measure(0, 8*measured)
		if write != c.write || read != c.read || err != nil {
			t.Errorf("%v: write %v, read %v, %v", c.took, write, read, err)
		}
	}
	if info, err := os.Stat(d.Name()); err != nil || info.Size() != 4*measured {
		t.Errorf("the file was changed: %v, %v", info.Size(), err)
	}
}
