//go:build !linux

package checkpoint

import (
	"fmt"
	"os"
)

// diskFile is an ordinary file. Nothing keeps a second writer out on this system.
type diskFile struct{ *os.File }

// createDisk makes an empty file that does not appear under its name until publish.
func createDisk(path string, _ bool) (s *diskFile, publish func() error, err error) {
	temporary := path + ".creating"
	f, err := os.OpenFile(temporary, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, nil, err
	}
	return &diskFile{f}, func() error {
		if err := os.Link(temporary, path); err != nil { // never over an existing file
			return err
		}
		return os.Remove(temporary)
	}, nil
}

func openDisk(path string, write, _ bool) (*diskFile, error) {
	flag := os.O_RDONLY
	if write {
		flag = os.O_RDWR
	}
	f, err := os.OpenFile(path, flag, 0)
	if err != nil {
		return nil, err
	}
	return &diskFile{f}, nil
}

// Size is Storage's.
func (d *diskFile) Size() (int64, error) {
	info, err := d.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Allocate is Storage's.
func (d *diskFile) Allocate(size int64, progress func(done, total int64)) error {
	zeros := make([]byte, 4<<20)
	for at := int64(0); at < size; at += int64(len(zeros)) {
		if err := writeFull(d, zeros[:min(int64(len(zeros)), size-at)], at); err != nil {
			return fmt.Errorf("reserve %d bytes for %s: %w", size, d.Name(), err)
		}
		if progress != nil {
			progress(min(at+int64(len(zeros)), size), size)
		}
	}
	return d.Sync()
}

// Fence is Storage's.
func (*diskFile) Fence() error { return nil }

// Flush is Storage's.
func (d *diskFile) Flush() error { return d.Sync() }
