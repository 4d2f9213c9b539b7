package checkpoint

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/zeebo/xxh3"
)

const (
	readers   = 4 // at a time: while some hash, others keep the storage busy
	readChunk = 4 << 20
)

// readArrays reads and verifies all arrays of a slot, several at a time, into memory of its own where into is nil.
func (f *File) readArrays(start int64, hashes []uint64, into [][]byte, progress func(int)) error {
	var next atomic.Int64
	var failed atomic.Bool
	var all sync.WaitGroup
	errs := make([]error, len(hashes))
	longest := int64(0)
	for _, a := range f.head.arrays {
		longest = max(longest, a.Len())
	}
	for range min(readers, len(hashes)) {
		all.Go(func() {
			scratch := aligned(int(min(readChunk, align(longest, block))))
			for i := int(next.Add(1)) - 1; i < len(hashes) && !failed.Load(); i = int(next.Add(1)) - 1 {
				var to []byte
				if into != nil {
					to = into[i]
				}
				if errs[i] = f.readArray(i, start+f.head.offsets[i], hashes[i], to, scratch, progress); errs[i] != nil {
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

func (f *File) readArray(i int, at int64, want uint64, to, scratch []byte, progress func(int)) error {
	var sum xxh3.Hasher
	for length := f.head.arrays[i].Len(); length > 0; {
		n := min(readChunk, length)
		b := scratch[:n]
		if to != nil {
			b, to = to[:n], to[n:]
		}
		if err := readChunkAt(f.storage, b, at, scratch); err != nil {
			return fmt.Errorf("array %q: %w", f.head.arrays[i].Name, err)
		}
		_, _ = sum.Write(b) // never fails
		progress(int(n))
		at, length = at+n, length-n
	}
	if sum.Sum64() != want {
		return fmt.Errorf("array %q: checksum differs: %w", f.head.arrays[i].Name, ErrCorrupt)
	}
	return nil
}

// uncachedReader is a storage that can read past the system's cache.
type uncachedReader interface {
	// readUncached reads whole blocks into memory that begins at one; ok is false where it is better to use ReadAt.
	readUncached(p []byte, at int64) (ok bool, err error)
}

// readChunkAt fills b, past the cache where the storage can and the bytes are not in it: then it is twice as fast.
func readChunkAt(s Storage, b []byte, at int64, scratch []byte) error {
	if u, can := s.(uncachedReader); can && len(b) >= 64<<10 {
		whole := b
		if len(b)%block != 0 || uintptr(unsafe.Pointer(unsafe.SliceData(b)))%block != 0 {
			whole = scratch[:align(int64(len(b)), block)]
		}
		ok, err := u.readUncached(whole, at)
		if ok {
			if &whole[0] != &b[0] {
				copy(b, whole)
			}
			return err
		}
	}
	_, err := s.ReadAt(b, at)
	return err
}

// aligned makes memory that begins at a block.
func aligned(n int) []byte {
	b := make([]byte, n+block)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (block - 1)
	return b[skip : skip+n]
}
