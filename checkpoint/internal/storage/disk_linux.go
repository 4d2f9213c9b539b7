package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Disk is an ordinary file, written by pwrite into blocks that are allocated already, with write-back begun at once
// and one fdatasync at the end. PastCache has large pieces go past the page cache (decision 34).
type Disk struct {
	*os.File
	direct *os.File // the same past the page cache, or nil
	mu     sync.Mutex
	ring   *ring  // of direct
	copies string // why a save needs new space; "" if it does not
}

// The calls that make bytes durable. The tests record them: that one is left out shows only when the power fails.
var (
	fdatasync = unix.Fdatasync
	fsync     = (*os.File).Sync
)

// Close closes the file.
func (d *Disk) Close() error {
	if d.ring != nil {
		d.ring.close()
		d.ring = nil
		d.direct.Close()
	}
	return d.File.Close()
}

// zeroChunk is how much Allocate writes at a time.
const zeroChunk = 4 << 20

// CreateDisk makes an empty file that does not appear under its name until publish.
func CreateDisk(path string) (s *Disk, publish func() error, err error) {
	temporary := path + ".creating"
	f, err := os.OpenFile(temporary, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	if err := lock(f); err != nil {
		f.Close()
		return nil, nil, err
	}
	if err := f.Truncate(0); err != nil { // of a creation that was interrupted
		f.Close()
		return nil, nil, err
	}
	return &Disk{File: f}, func() error {
		// Never over an existing file: it may hold the only checkpoint.
		if err := unix.Renameat2(unix.AT_FDCWD, temporary, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE); err != nil {
			if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
				return &os.PathError{Op: "create", Path: path, Err: err}
			}
			if err := os.Link(temporary, path); err != nil { // file systems without that flag
				return err
			}
			if err := os.Remove(temporary); err != nil {
				return err
			}
		}
		return syncFolder(filepath.Dir(path))
	}, nil
}

// OpenDisk opens a file; for writing it locks it, or returns ErrLocked.
func OpenDisk(path string, write bool) (*Disk, error) {
	flag := os.O_RDONLY
	if write {
		flag = os.O_RDWR
	}
	f, err := os.OpenFile(path, flag, 0)
	if err != nil {
		return nil, err
	}
	if write {
		if err := lock(f); err != nil {
			f.Close()
			return nil, err
		}
	}
	return &Disk{File: f}, nil
}

// lock keeps a second writer out; the lock ends with the process.
func lock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%s: %w", f.Name(), ErrLocked)
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return nil
}

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return fsync(d)
}

// Allocate reserves the blocks first, so that a full disk is an error here, and then writes zeros: blocks that are only
// reserved have to be marked as written later, within every fdatasync.
func (d *Disk) Allocate(size int64, progress func(done, total int64)) error {
	if err := d.room(size); err != nil {
		return err
	}
	d.askInPlace()
	err := unix.Fallocate(int(d.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = d.Truncate(size)
	}
	if err != nil {
		return fmt.Errorf("reserve %d bytes for %s: %w", size, d.Name(), err)
	}
	zeros := make([]byte, zeroChunk)
	for at := int64(0); at < size; at += zeroChunk {
		if _, err := d.writeCached(zeros[:min(zeroChunk, size-at)], at); err != nil {
			return err
		}
		if progress != nil {
			progress(min(at+zeroChunk, size), size)
		}
	}
	err = fsync(d.File)
	_ = unix.Fadvise(int(d.Fd()), 0, 0, unix.FADV_DONTNEED) // else the first write past the cache takes out each page
	return err
}

// WriteAt is io.WriterAt's. Past the page cache it returns before the bytes are with the disk: what goes wrong then is
// returned by a later call, or by Flush.
func (d *Disk) WriteAt(p []byte, at int64) (int, error) {
	if d.ring == nil {
		return d.writeCached(p, at)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	whole := 0
	if at%Block == 0 && (len(p) >= directMin || d.ring.follows(at)) {
		whole = len(p) / Block * Block
		if err := d.ring.put(p[:whole], at); err != nil {
			return 0, err
		}
	}
	if whole == len(p) {
		return whole, nil
	}
	if err := d.ring.settle(at+int64(whole), int64(len(p)-whole)); err != nil {
		return 0, err
	}
	n, err := d.writeCached(p[whole:], at+int64(whole))
	return whole + n, err
}

// directMin is from what size on a piece goes past the cache.
const directMin = 64 << 10

// writeCached has the kernel begin to write back at once, so that little is left to Flush.
func (d *Disk) writeCached(p []byte, at int64) (int, error) {
	n, err := d.File.WriteAt(p, at)
	if err == nil && n >= Block {
		// Only a hint: what fails here is returned by Flush.
		_ = unix.SyncFileRange(int(d.Fd()), at, int64(n), unix.SYNC_FILE_RANGE_WRITE)
	}
	return n, err
}

// Fence does nothing: a block of a file is written as a whole.
func (*Disk) Fence() error { return nil }

// Flush returns once everything written is durable.
func (d *Disk) Flush() error {
	if d.ring != nil {
		d.mu.Lock()
		err := d.ring.drain()
		d.mu.Unlock()
		if err != nil {
			return fmt.Errorf("%s: %w", d.Name(), err)
		}
	}
	for {
		err := fdatasync(int(d.Fd()))
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) { // an interrupted call says nothing yet; any other error is final
			return fmt.Errorf("fdatasync %s: %w", d.Name(), err)
		}
	}
}
