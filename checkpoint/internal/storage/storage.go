// Package storage writes checkpoint files durably: to an ordinary file (Disk), or to a file on persistent memory that is
// mapped into the program (Mapped). Package checkpoint decides what is written when; the kinds of storage here promise
// that what was written before a Flush is there after a loss of power.
//
// A file is made with CreateDisk, whose publish gives it its name once it is complete, and opened with OpenDisk; OpenDAX
// maps either.
package storage

import (
	"unsafe"

	"github.com/evenkeel/evenkeel/internal/badinput"
)

// Block is the unit in which a disk writes, in bytes.
const Block = 4096

// ErrLocked is returned where another process writes the file.
var ErrLocked = badinput.New("checkpoint: another process has the file open for writing")

// Chooser is a storage with two ways to its data: through the page cache and past it.
type Chooser interface {
	// Measure says which way is faster, by n bytes of its own that begin at at; it overwrites them.
	Measure(at, n int64) (write, read bool, err error)
	// PastCache chooses the ways from now on.
	PastCache(write, read bool) error
}

// PastReader is a storage whose reads may go past the page cache.
type PastReader interface{ ReadsPastCache() bool }

// Readers is how many read from a storage at a time, and how many bytes each: through the page cache two, so that while one
// hashes the other keeps the disk busy (more disturb its reading ahead); past it as many as keep the disk busy themselves.
func Readers(s any) (side, size int) {
	if d, ok := s.(PastReader); ok && d.ReadsPastCache() {
		return 4, 1 << 20
	}
	return 2, 256 << 10
}

// aligned makes memory that begins at a block.
func aligned(n int) []byte {
	b := make([]byte, n+Block)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (Block - 1)
	return b[skip : skip+n]
}
