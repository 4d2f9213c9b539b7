package storage

import (
	"bytes"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"evenkeel/internal/slow"
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

// What is measured: each way's own time, whoever was first; for little room nothing is.
func TestMeasure(t *testing.T) {
	slow.Skip(t)
	d := pastDisk(t, 4*measured)
	if w, err := d.Measure(0, 8*measured-1); w != (Ways{}) || err != nil {
		t.Errorf("too little room: %+v %v", w, err)
	}
	now := time.Time{}
	defer func() { clock = time.Now }()
	for _, c := range []struct {
		took [4]int // through: write, read; past: write, read
		want Ways
	}{
		{[4]int{50, 50, 31, 20}, Ways{true, true, 62, 40}},
		{[4]int{20, 20, 24, 24}, Ways{true, false, 120, 120}},
		{[4]int{20, 50, 60, 45}, Ways{false, false, 300, 90}},
	} {
		looks := 0
		clock = func() time.Time {
			turn, at := looks/8, looks/2%4
			if turn%2 == 1 { // past the cache first
				at = (at + 2) % 4
			}
			if looks++; looks%2 == 0 {
				now = now.Add(time.Duration(c.took[at]) * time.Second)
			}
			return now
		}
		if got, err := d.Measure(0, 8*measured); got != c.want || err != nil {
			t.Errorf("%v: %+v, want %+v, %v", c.took, got, c.want, err)
		}
	}
	if info, err := os.Stat(d.Name()); err != nil || info.Size() != 4*measured {
		t.Errorf("the file was changed: %v, %v", info.Size(), err)
	}
}

// The usual way is left where the other was faster in every turn, and clearly so; and seldom by chance.
func TestPastIsBetter(t *testing.T) {
	even := []float64{1, 1, 1, 1, 1, 1, 1}
	for _, c := range []struct {
		usual bool
		past  []float64
		want  bool
		ratio uint16
	}{
		{true, even, true, 100},
		{false, even, false, 100},
		{true, []float64{3, 4, 1.1, 5, 1.3, 3, 2}, false, 300},      // slower in every turn
		{true, []float64{3, 4, 0.9, 5, 1.3, 3, 2}, true, 300},       // but one
		{true, []float64{1.2, 1.2, 1.1, 1.2, 1.2, 9, 9}, true, 120}, // a little slower
		{true, []float64{1.25, 1.3, 1.1, 1.25, 1.2, 9, 9}, false, 125},
		{false, []float64{0.3, 0.4, 0.9, 0.5, 0.9, 0.3, 0.2}, true, 40},
		{false, []float64{0.3, 0.4, 1, 0.5, 0.9, 0.3, 0.2}, false, 40}, // not in every turn
		{false, []float64{0.9, 0.9, 0.9, 0.9, 0.9, 0.3, 0.2}, false, 90},
		{false, []float64{0.8, 0.8, 0.9, 0.8, 0.9, 0.3, 0.2}, true, 80},
		{true, []float64{1e9, 1e9, 1e9, 1e9, 1e9, 1e9, 1e9}, false, 65535},
		{false, []float64{0, 0, 0, 0, 0, 0, 0}, true, 1}, // 0 is not measured
	} {
		if got, ratio := pastIsBetter(c.usual, even, c.past); got != c.want || ratio != c.ratio {
			t.Errorf("usual %v, %v: %v, %d, want %v, %d", c.usual, c.past, got, ratio, c.want, c.ratio)
		}
	}
	rng, unusual := rand.New(rand.NewPCG(1, 1)), 0
	for range 10000 { // two ways that are alike, on a machine where times move by a factor of two
		var through, past []float64
		for range turns {
			through, past = append(through, math.Exp(rng.NormFloat64())), append(past, math.Exp(rng.NormFloat64()))
		}
		if got, _ := pastIsBetter(false, through, past); got {
			unusual++
		}
		if got, _ := pastIsBetter(true, through, past); !got {
			unusual++
		}
	}
	if unusual > 250 { // each by 2^-7
		t.Errorf("the unusual way was taken %d times of 20000", unusual)
	}
}
