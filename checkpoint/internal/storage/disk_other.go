//go:build !linux

package storage

import (
	"fmt"
	"os"
)

// Disk is an ordinary file. Nothing keeps a second writer out on this system.
type Disk struct{ *os.File }

// CreateDisk makes an empty file that does not appear under its name until publish.
func CreateDisk(path string) (s *Disk, publish func() error, err error) {
	temporary := path + ".creating"
	f, err := os.OpenFile(temporary, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, nil, err
	}
	return &Disk{f}, func() error {
		if err := os.Link(temporary, path); err != nil { // never over an existing file
			return err
		}
		return os.Remove(temporary)
	}, nil
}

// OpenDisk opens a file, also for writing.
func OpenDisk(path string, write bool) (*Disk, error) {
	flag := os.O_RDONLY
	if write {
		flag = os.O_RDWR
	}
	f, err := os.OpenFile(path, flag, 0)
	if err != nil {
		return nil, err
	}
	return &Disk{f}, nil
}

// Allocate gives the file its length, full of zeros that are durable, and reports progress in bytes.
func (d *Disk) Allocate(size int64, progress func(done, total int64)) error {
	zeros := make([]byte, 4<<20)
	for at := int64(0); at < size; at += int64(len(zeros)) {
		if _, err := d.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at); err != nil {
			return fmt.Errorf("reserve %d bytes for %s: %w", size, d.Name(), err)
		}
		if progress != nil {
			progress(min(at+int64(len(zeros)), size), size)
		}
	}
	return d.Sync()
}

// Fence does nothing: a block of a file is written as a whole.
func (*Disk) Fence() error { return nil }

// Flush returns once everything written is durable.
func (d *Disk) Flush() error { return d.Sync() }
