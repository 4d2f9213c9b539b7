package checkpoint

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"github.com/evenkeel/evenkeel/checkpoint/internal/storage"
)

// readArrays reads and verifies all arrays of a slot, several at a time, into memory of its own where into is nil.
func (f *File) readArrays(start int64, hashes []uint64, into [][]byte, progress func(int)) error {
	var next atomic.Int64
	var failed atomic.Bool
	var all sync.WaitGroup
	errs := make([]error, len(hashes))
	side, size := storage.Readers(f.storage)
	for range min(side, len(hashes)) {
		all.Go(func() {
			var scratch []byte
			for i := int(next.Add(1)) - 1; i < len(hashes) && !failed.Load(); i = int(next.Add(1)) - 1 {
				var to []byte
				if into != nil {
					to = into[i]
				}
				if scratch, errs[i] = f.readArray(i, int64(size), start+f.head.offsets[i], hashes[i], to, scratch, progress); errs[i] != nil {
					failed.Store(true)
				}
			}
		})
	}
	all.Wait()
	for _, err := range errs { // the first of the file, so that the same damage gives the same error
		if err != nil {
			return err
		}
	}
	return nil
}

// readArray returns its scratch memory for the next one.
func (f *File) readArray(i int, size, at int64, want uint64, to, scratch []byte, progress func(int)) ([]byte, error) {
	var sum xxh3.Hasher
	for length := f.head.arrays[i].Len(); length > 0; {
		n := min(size, length)
		var b []byte
		if to != nil {
			b, to = to[:n], to[n:]
		} else {
			scratch = slices.Grow(scratch[:0], int(n))
			b = scratch[:n]
		}
		if _, err := f.storage.ReadAt(b, at); err != nil {
			return scratch, fmt.Errorf("array %q: %w", f.head.arrays[i].Name, err)
		}
		_, _ = sum.Write(b) // never fails
		progress(int(n))
		at, length = at+n, length-n
	}
	if sum.Sum64() != want {
		return scratch, fmt.Errorf("array %q: checksum differs: %w", f.head.arrays[i].Name, ErrCorrupt)
	}
	return scratch, nil
}
