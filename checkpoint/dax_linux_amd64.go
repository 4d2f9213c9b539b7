package checkpoint

import (
	"fmt"
	"io"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapped is a file on persistent memory, mapped with MAP_SYNC: the kernel keeps the file system's own records of the
// mapped blocks durable, so that stores past the caches and a fence are all that a flush needs. Reads go through the
// file: a defect of the memory is then an error, not a signal.
type mapped struct {
	*diskFile
	memory []byte
	flags  int
}

const daxFlags = unix.MAP_SHARED_VALIDATE | unix.MAP_SYNC

// openDAX maps a file, or where it is empty only tries whether that is possible.
func openDAX(d *diskFile) (Storage, error) {
	m := &mapped{diskFile: d, flags: daxFlags}
	size, err := d.Size()
	if err != nil {
		return nil, err
	}
	if size > 0 {
		return m, m.mmap(size)
	}
	if err := d.Truncate(block); err != nil {
		return nil, err
	}
	if err := m.mmap(block); err != nil {
		return nil, err
	}
	return m, m.unmap()
}

func (m *mapped) mmap(size int64) error {
	b, err := unix.Mmap(int(m.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, m.flags)
	if err != nil {
		return fmt.Errorf("map %s with MAP_SYNC: %w; DAX needs a file system mounted with -o dax on persistent memory, leave it out elsewhere", m.Name(), err)
	}
	m.memory = b
	return nil
}

func (m *mapped) unmap() error {
	if m.memory == nil {
		return nil
	}
	b := m.memory
	m.memory = nil
	return unix.Munmap(b)
}

// Allocate is Storage's.
func (m *mapped) Allocate(size int64, progress func(done, total int64)) error {
	if err := m.diskFile.Allocate(size, progress); err != nil {
		return err
	}
	return m.mmap(size)
}

// WriteAt is io.WriterAt's. It stores whole words of 8 bytes; at is a multiple of 8, and what follows p up to the next
// one is room that the format leaves.
func (m *mapped) WriteAt(p []byte, at int64) (int, error) {
	if at < 0 || at%8 != 0 || align(at+int64(len(p)), 8) > int64(len(m.memory)) {
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

// Fence is Storage's.
func (*mapped) Fence() error {
	storeFence()
	return nil
}

// Flush is Storage's: what was stored past the caches is durable after a fence.
func (m *mapped) Flush() error { return m.Fence() }

// Close is Storage's.
func (m *mapped) Close() error {
	if err := m.unmap(); err != nil {
		return err
	}
	return m.diskFile.Close()
}

// storePast copies n bytes, a multiple of 8, with stores that do not stay in the processor's caches. dst is a
// multiple of 8.
//
//go:noescape
func storePast(dst, src unsafe.Pointer, n int)

// storeFence waits until all stores before it have left the processor.
func storeFence()
