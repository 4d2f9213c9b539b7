package storage

import (
	"errors"
	"fmt"
	"io"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	ringDepth = 4       // requests under way
	ringPiece = 1 << 20 // bytes of one
)

// ring writes whole blocks past the page cache, with several requests under way (Linux AIO), so that no other thread has
// to be woken. It copies what it is given: a piece goes out when it is full, or when what follows lies elsewhere.
type ring struct {
	fd      int
	context uintptr
	pieces  [ringDepth]ringSlot
	current int                                    // being filled
	harvest func(*[ringDepth]ioEvent) (int, error) // waits for one event at least; tests change what it gives
}

// ringSlot is memory that begins at a block, and the request that is under way with it.
type ringSlot struct {
	memory  []byte
	at      int64
	fill    int  // bytes that are in it
	sent    bool // and under way
	done    int  // of which the kernel has written
	request *iocb
}

// iocb and ioEvent are those of linux/aio_abi.h.
type iocb struct {
	data       uint64
	_, _       uint32
	op         uint16
	_          int16
	fd         uint32
	buf, bytes uint64
	at         int64
	_          uint64
	_, _       uint32
}

type ioEvent struct {
	data, _ uint64
	got, _  int64
}

const opWrite = 1

func newRing(fd int) (*ring, error) {
	r := &ring{fd: fd}
	r.harvest = r.events
	if _, _, err := unix.Syscall(unix.SYS_IO_SETUP, ringDepth, uintptr(unsafe.Pointer(&r.context)), 0); err != 0 {
		return nil, fmt.Errorf("io_setup: %w", err)
	}
	for i := range r.pieces {
		m, err := unix.Mmap(-1, 0, ringPiece, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // the kernel writes from it: no garbage collector's
		if err != nil {
			r.close()
			return nil, fmt.Errorf("mmap: %w", err)
		}
		r.pieces[i].memory, r.pieces[i].request = m, &iocb{data: uint64(i), op: opWrite, fd: uint32(fd)}
	}
	return r, nil
}

// follows says whether the piece that is being filled goes on at this place.
func (r *ring) follows(at int64) bool {
	p := &r.pieces[r.current]
	return !p.sent && p.fill > 0 && p.fill < ringPiece && p.at+int64(p.fill) == at
}

// put takes whole blocks.
func (r *ring) put(b []byte, at int64) error {
	for len(b) > 0 {
		p := &r.pieces[r.current]
		if !r.follows(at) {
			if err := r.send(); err != nil {
				return err
			}
			p = &r.pieces[r.current]
			if err := r.finish(r.current); err != nil {
				return err
			}
			if err := r.settle(at, int64(len(b))); err != nil { // never two at one place
				return err
			}
			p.at = at
		}
		n := copy(p.memory[p.fill:], b)
		p.fill += n
		b, at = b[n:], at+int64(n)
	}
	return nil
}

// send has the piece that is being filled on its way.
func (r *ring) send() error {
	i := r.current
	if p := &r.pieces[i]; p.fill == 0 || p.sent {
		return nil
	}
	r.current = (i + 1) % ringDepth
	return r.submit(i)
}

func (r *ring) submit(i int) error {
	p := &r.pieces[i]
	p.request.buf, p.request.bytes, p.request.at = uint64(uintptr(unsafe.Pointer(&p.memory[p.done]))), uint64(p.fill-p.done), p.at+int64(p.done)
	_, err := again(func() (uintptr, unix.Errno) {
		n, _, err := unix.Syscall(unix.SYS_IO_SUBMIT, r.context, 1, uintptr(unsafe.Pointer(&p.request)))
		return n, err
	})
	if err != nil {
		p.fill, p.done = 0, 0
		return fmt.Errorf("io_submit: %w", err)
	}
	p.sent = true
	return nil
}

// again makes a system call until no signal interrupts it.
func again(call func() (uintptr, unix.Errno)) (uintptr, error) {
	for {
		switch n, err := call(); err {
		case 0:
			return n, nil
		case unix.EINTR:
		default:
			return 0, err
		}
	}
}

func (r *ring) events(into *[ringDepth]ioEvent) (int, error) {
	n, err := again(func() (uintptr, unix.Errno) {
		n, _, err := unix.Syscall6(unix.SYS_IO_GETEVENTS, r.context, 1, ringDepth, uintptr(unsafe.Pointer(into)), 0, 0)
		return n, err
	})
	return int(n), err
}

// finish waits until nothing is under way with a piece.
func (r *ring) finish(i int) error {
	for r.pieces[i].sent {
		var events [ringDepth]ioEvent
		n, err := r.harvest(&events)
		if err != nil {
			return fmt.Errorf("io_getevents: %w", err)
		}
		var faults []error
		for _, e := range events[:n] { // all that came is noted, whatever went wrong with one
			faults = append(faults, r.came(int(e.data), e.got))
		}
		if err := errors.Join(faults...); err != nil {
			return err
		}
	}
	return nil
}

// came takes note of what the kernel did, and has it go on where that was a part.
func (r *ring) came(i int, got int64) error {
	p := &r.pieces[i]
	p.sent = false
	p.done += int(max(0, got))
	if got > 0 && p.done < p.fill && p.done%Block == 0 {
		return r.submit(i)
	}
	whole := p.done == p.fill
	p.fill, p.done = 0, 0
	switch {
	case whole:
		return nil
	case got < 0:
		return fmt.Errorf("write past the page cache: %w", unix.Errno(-got))
	}
	return fmt.Errorf("write past the page cache: %w", io.ErrShortWrite)
}

// settle waits for what is on its way to a part of the file.
func (r *ring) settle(at, n int64) error {
	for i := range r.pieces {
		p := &r.pieces[i]
		if p.fill == 0 || p.at >= at+n || p.at+int64(p.fill) <= at {
			continue
		}
		if i == r.current {
			if err := r.send(); err != nil {
				return err
			}
		}
		if err := r.finish(i); err != nil {
			return err
		}
	}
	return nil
}

// drain waits for everything. After an error, too, nothing is under way.
func (r *ring) drain() error {
	err := r.send()
	for i := range r.pieces {
		err = errors.Join(err, r.finish(i))
	}
	return err
}

func (r *ring) close() {
	_ = r.drain() // who wanted to know has flushed
	for _, p := range r.pieces {
		if p.memory != nil {
			_ = unix.Munmap(p.memory)
		}
	}
	_, _, _ = unix.Syscall(unix.SYS_IO_DESTROY, r.context, 0, 0)
}
