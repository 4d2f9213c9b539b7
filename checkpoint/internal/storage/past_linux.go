package storage

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// PastCache has large writes go past the page cache (O_DIRECT). It is an error where the file system, or the disk with its
// blocks, does not allow that.
func (d *Disk) PastCache() error {
	direct, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", d.Fd()), os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	_, err = direct.ReadAt(aligned(Block), 0) // refused where blocks are larger
	if err == nil {
		d.ring, err = newRing(int(direct.Fd()))
	}
	if err != nil {
		direct.Close()
		return err
	}
	d.direct = direct
	return nil
}

// ReadAt is io.ReaderAt's: what is on its way past the cache is read as if it were there.
func (d *Disk) ReadAt(p []byte, at int64) (int, error) {
	if d.ring != nil {
		d.mu.Lock()
		err := d.ring.settle(at, int64(len(p)))
		d.mu.Unlock()
		if err != nil {
			return 0, err
		}
	}
	return d.File.ReadAt(p, at)
}
