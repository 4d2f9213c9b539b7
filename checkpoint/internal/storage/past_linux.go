package storage

import (
	"cmp"
	"fmt"
	"os"
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

// Measure says which way to go on this disk: by turns it writes zeros to the n bytes from at on, past the page cache and through it, and reads them.
// Nothing goes past it where n is too little to tell, or where it cannot. It forgets the file's pages.
//
// Writes usually go past the cache: they take less of the processor's time, and the kernel stops who fills its cache with gigabytes, which so few bytes do
// not show. Reads usually go through it, where the kernel reads ahead.
func (d *Disk) Measure(at, n int64) (Ways, error) {
	defer func() { _ = unix.Fadvise(int(d.Fd()), 0, 0, unix.FADV_DONTNEED) }() // else each is to be taken out of the cache by the first write past it
	if n < 8*measured {
		return Ways{}, nil
	}
	past := &Disk{File: d.File}
	if past.PastCache(true, true) != nil {
		return Ways{}, nil
	}
	defer func() {
		past.ring.close()
		past.direct.Close()
	}()
	var writes, reads [2][]float64 // through, past
	bytes := make([]byte, measured)
	both := []*Disk{{File: d.File}, past}
	for turn := range turns {
		for k := range both {
			way := (turn + k) % 2 // who is first changes
			write, read, err := both[way].timed(bytes, at+int64(way)*measured)
			if err != nil {
				return Ways{}, err
			}
			writes[way], reads[way] = append(writes[way], write), append(reads[way], read)
		}
	}
	var w Ways
	w.Write, w.WriteRatio = pastIsBetter(true, writes[0], writes[1])
	w.Read, w.ReadRatio = pastIsBetter(false, reads[0], reads[1])
	return w, nil
}

// timed is the seconds in which p is written durably, and read again.
func (d *Disk) timed(p []byte, at int64) (write, read float64, err error) {
	begun := clock()
	for piece := 0; piece < len(p); piece += ringPiece {
		if _, err := d.WriteAt(p[piece:piece+ringPiece], at+int64(piece)); err != nil {
			return 0, 0, err
		}
	}
	if err := d.Flush(); err != nil {
		return 0, 0, err
	}
	write = clock().Sub(begun).Seconds()
	_ = unix.Fadvise(int(d.Fd()), at, int64(len(p)), unix.FADV_DONTNEED)
	begun = clock()
	if err := d.readPieces(p, at); err != nil {
		return 0, 0, err
	}
	return write, clock().Sub(begun).Seconds(), nil
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
	return cmp.Or(errs...)
}
