// Package storage writes checkpoint files durably: to an ordinary file (Disk), or to a file on persistent memory that is
// mapped into the program (Mapped). Package checkpoint decides what is written when; the kinds of storage here promise
// that what was written before a Flush is there after a loss of power.
//
// A file is made with CreateDisk, whose publish gives it its name once it is complete, and opened with OpenDisk; OpenDAX
// maps either.
package storage

import (
	"unsafe"

	"evenkeel/internal/badinput"
)

// Block is the unit in which a disk writes, in bytes.
const Block = 4096

// ErrLocked is returned where another process writes the file.
var ErrLocked = badinput.New("checkpoint: another process has the file open for writing")

// Size is the file's length in bytes.
func (d *Disk) Size() (int64, error) {
	info, err := d.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Bypass is a storage whose large writes can go past the page cache.
type Bypass interface {
	// PastCache has them go there from now on. After an error nothing has changed.
	PastCache() error
}

// aligned makes memory that begins at a block.
func aligned(n int) []byte {
	b := make([]byte, n+Block)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (Block - 1)
	return b[skip : skip+n]
}
