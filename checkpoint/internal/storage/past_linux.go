package storage

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// PastCache has writes, reads or both go past the page cache (O_DIRECT). It is an error where the file system, or the disk
// with its blocks, does not allow that; the file is used as before then.
func (d *Disk) PastCache(write, read bool) error {
	if !write && !read {
		return nil
	}
	flag := os.O_RDONLY
	if write {
		flag = os.O_RDWR
	}
	direct, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", d.Fd()), flag|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	if _, err := direct.ReadAt(aligned(Block), 0); err != nil { // refused where blocks are larger
		direct.Close()
		return err
	}
	if write {
		if d.ring, err = newRing(int(direct.Fd())); err != nil {
			direct.Close()
			return err
		}
	}
	d.direct, d.past = direct, read
	return nil
}

// ReadsPastCache says whether reads do: then several of ReadPiece bytes are to be under way at a time.
func (d *Disk) ReadsPastCache() bool { return d.past }

// bounces are pieces of memory that begin at a block.
var bounces = sync.Pool{New: func() any { b := aligned(ringPiece); return &b }}

// ReadAt is io.ReaderAt's.
func (d *Disk) ReadAt(p []byte, at int64) (int, error) {
	if d.ring != nil {
		d.mu.Lock()
		err := d.ring.settle(at, int64(len(p)))
		d.mu.Unlock()
		if err != nil {
			return 0, err
		}
	}
	if !d.past || len(p) < directMin || at%Block != 0 {
		return d.File.ReadAt(p, at)
	}
	bounce := bounces.Get().(*[]byte)
	defer bounces.Put(bounce)
	done := 0
	for done < len(p) {
		want := min(ringPiece, (len(p)-done+Block-1)/Block*Block)
		n, err := d.direct.ReadAt((*bounce)[:want], at+int64(done))
		done += copy(p[done:], (*bounce)[:n])
		if err != nil && done < len(p) {
			return done, err
		}
	}
	return done, nil
}

// measured is how many bytes Measure moves in each of its turns.
const measured = 32 << 20

// clock is the time; a variable for tests.
var clock = time.Now

// Measure says which way is faster on this disk, past the page cache or through it: by turns it writes zeros to the n bytes from at on, and
// reads them. Both are false where that is too little to tell, or the other way cannot be had. It forgets the file's pages.
func (d *Disk) Measure(at, n int64) (write, read bool, err error) {
	defer func() { _ = unix.Fadvise(int(d.Fd()), 0, 0, unix.FADV_DONTNEED) }() // else each is to be taken out of the cache by the first write past it
	if n < 8*measured {
		return false, false, nil
	}
	past := &Disk{File: d.File}
	if past.PastCache(true, true) != nil {
		return false, false, nil
	}
	defer func() {
		past.ring.close()
		past.direct.Close()
	}()
	var took [2][2][]time.Duration // write or read, through or past
	bytes := make([]byte, measured)
	for range 5 {
		for way, to := range []*Disk{{File: d.File}, past} {
			place := at + int64(way)*measured
			begun := clock()
			for piece := 0; piece < measured; piece += ringPiece {
				if _, err := to.WriteAt(bytes[piece:piece+ringPiece], place+int64(piece)); err != nil {
					return false, false, err
				}
			}
			if err := to.Flush(); err != nil {
				return false, false, err
			}
			took[0][way] = append(took[0][way], clock().Sub(begun))
			_ = unix.Fadvise(int(d.Fd()), place, measured, unix.FADV_DONTNEED)
			begun = clock()
			if err := to.readPieces(bytes, place); err != nil {
				return false, false, err
			}
			took[1][way] = append(took[1][way], clock().Sub(begun))
		}
	}
	best := func(t []time.Duration) float64 { return float64(slices.Min(t)) } // what others do only adds
	// Where both are alike, writing past the cache it is: less of the processor's time, and the kernel stops who fills its
	// cache with gigabytes, which so few bytes do not show.
	return best(took[0][1]) < 1.25*best(took[0][0]), best(took[1][1]) < best(took[1][0]), nil
}

// readPieces reads as a restore does.
func (d *Disk) readPieces(p []byte, at int64) error {
	side, size := Readers(d)
	var all sync.WaitGroup
	errs := make([]error, side)
	for k := range side {
		all.Go(func() {
			for i := k * size; i < len(p) && errs[k] == nil; i += side * size {
				_, errs[k] = d.ReadAt(p[i:i+size], at+int64(i))
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
