// Package storage writes checkpoint files durably: to an ordinary file (Disk), or to a file on persistent memory that is
// mapped into the program (Mapped). Package checkpoint decides what is written when; the kinds of storage here promise
// that what was written before a Flush is there after a loss of power.
//
// A file is made with CreateDisk, whose publish gives it its name once it is complete, and opened with OpenDisk; OpenDAX
// maps either.
package storage

import (
	"math"
	"slices"
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

// Chooser is a storage with two ways to its data: through the page cache and past it.
type Chooser interface {
	// Measure says which way to go, by n bytes of its own that begin at at; it overwrites them.
	Measure(at, n int64) (Ways, error)
	// PastCache chooses the ways from now on.
	PastCache(write, read bool) error
}

// Ways says which data goes past the page cache, and what was measured: the time past the cache over that through it, in percent, the median
// of turns; 0 where it was not measured.
type Ways struct {
	Write, Read           bool
	WriteRatio, ReadRatio uint16
}

const (
	turns    = 7    // of a measurement: each way once
	decisive = 1.25 // a way that is not the usual one is to be that much faster in the middle, and faster in every turn
)

// pastIsBetter decides by turns, in each of which both ways were tried one after the other. Data goes the usual way unless the other was faster in every turn,
// and clearly so: of two ways that are alike the unusual one is taken in less than one of a hundred files, whatever else the machine does.
func pastIsBetter(usual bool, through, past []float64) (better bool, ratio uint16) {
	ratios, faster, slower := make([]float64, len(past)), 0, 0
	for i := range past {
		ratios[i] = past[i] / max(through[i], 1e-9)
		if ratios[i] < 1 {
			faster++
		}
		if ratios[i] > 1 {
			slower++
		}
	}
	slices.Sort(ratios)
	m := ratios[len(ratios)/2]
	ratio = uint16(min(max(math.Round(100*m), 1), math.MaxUint16))
	if usual {
		return slower < len(ratios) || m < decisive, ratio
	}
	return faster == len(ratios) && m <= 1/decisive, ratio
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
