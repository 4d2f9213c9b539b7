package storage

import (
	"fmt"
	"io"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Mapped is a file on persistent memory, mapped with MAP_SYNC: the kernel keeps the file system's own records of the
// mapped blocks durable, so that stores past the caches and a fence are all that a flush needs. Reads go through the
// file: a defect of the memory is then an error, not a signal.
type Mapped struct {
	*Disk
	memory []byte
	flags  int
}

const daxFlags = unix.MAP_SHARED_VALIDATE | unix.MAP_SYNC

// OpenDAX maps a file, or where it is empty only tries whether that is possible.
func OpenDAX(d *Disk) (*Mapped, error) { return OpenMapped(d, daxFlags) }

// OpenMapped is OpenDAX with flags of mmap: unix.MAP_SHARED alone maps an ordinary file, whose Flush then promises nothing.
func OpenMapped(d *Disk, flags int) (*Mapped, error) {
	m := &Mapped{Disk: d, flags: flags}
	size, err := d.Size()
	if err != nil {
		return nil, err
	}
	if size > 0 {
		return m, m.mmap(size)
	}
	if err := d.Truncate(Block); err != nil {
		return nil, err
	}
	if err := m.mmap(Block); err != nil {
		return nil, err
	}
	return m, m.unmap()
}

func (m *Mapped) mmap(size int64) error {
	b, err := unix.Mmap(int(m.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, m.flags)
	if err != nil {
		return fmt.Errorf("map %s with MAP_SYNC: %w; DAX needs a file system mounted with -o dax on persistent memory, leave it out elsewhere", m.Name(), err)
	}
	m.memory = b
	return nil
}

func (m *Mapped) unmap() error {
	if m.memory == nil {
		return nil
	}
	b := m.memory
	m.memory = nil
	return unix.Munmap(b)
}

// Allocate gives the file its length, full of zeros that are durable, and maps it.
func (m *Mapped) Allocate(size int64, progress func(done, total int64)) error {
	if err := m.Disk.Allocate(size, progress); err != nil {
		return err
	}
	return m.mmap(size)
}

// PastCache does nothing: there is no page cache in between.
func (*Mapped) PastCache() error { return nil }

// WriteAt stores whole words of 8 bytes; at is a multiple of 8, and what follows p up to the next
// one is room that the format leaves.
func (m *Mapped) WriteAt(p []byte, at int64) (int, error) {
	if at < 0 || at%8 != 0 || (at+int64(len(p))+7)&^7 > int64(len(m.memory)) {
		return 0, fmt.Errorf("store %d bytes at %d of %d: %w", len(p), at, len(m.memory), io.ErrShortWrite)
	}
	whole := len(p) &^ 7
	if whole > 0 {
		storePast(unsafe.Pointer(&m.memory[at]), unsafe.Pointer(unsafe.SliceData(p)), whole)
	}
	if whole < len(p) {
		var last [8]byte
		copy(last[:], p[whole:])
		storePast(unsafe.Pointer(&m.memory[at+int64(whole)]), unsafe.Pointer(&last), 8)
	}
	return len(p), nil
}

// Fence keeps later stores from becoming durable before earlier ones.
func (*Mapped) Fence() error {
	fence()
	return nil
}

// fence is a variable so that the tests can see it called: what it does shows only when the power fails.
var fence = storeFence

// Flush returns once everything stored is durable: what was stored past the caches is durable after a fence.
func (m *Mapped) Flush() error { return m.Fence() }

// Close unmaps and closes the file.
func (m *Mapped) Close() error {
	if err := m.unmap(); err != nil {
		return err
	}
	return m.Disk.Close()
}

// storePast copies n bytes, a multiple of 8, with stores that do not stay in the processor's caches. dst is a
// multiple of 8.
//
//go:noescape
func storePast(dst, src unsafe.Pointer, n int)

// storeFence waits until all stores before it have left the processor.
func storeFence()
