package storage

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	fiemapRequest = 0xC020660B // FS_IOC_FIEMAP
	noCopy        = 0x00800000 // FS_NOCOW_FL
)

// copying are file systems that copy on write by design.
var copying = map[int64]string{unix.BTRFS_SUPER_MAGIC: "btrfs", 0x2FC12FC1: "ZFS", 0xCA451A4E: "bcachefs", 0x3434: "NILFS"}

func (d *Disk) fileSystem() string {
	var s unix.Statfs_t
	if unix.Fstatfs(int(d.Fd()), &s) != nil {
		return ""
	}
	return copying[int64(uint32(s.Type))]
}

// askInPlace has btrfs write a file in place that is empty still, as chattr +C does. Elsewhere it does nothing.
func (d *Disk) askInPlace() {
	if d.fileSystem() != "btrfs" {
		return
	}
	if flags, err := unix.IoctlGetInt(int(d.Fd()), unix.FS_IOC_GETFLAGS); err == nil {
		_ = unix.IoctlSetPointerInt(int(d.Fd()), unix.FS_IOC_SETFLAGS, flags|noCopy) // whether it helped is measured
	}
}

// room refuses what the disk has no space for, before it is reserved: that would fill the disk for a moment.
func (d *Disk) room(size int64) error {
	var s unix.Statfs_t
	known := unix.Fstatfs(int(d.Fd()), &s) == nil && s.Blocks > 0
	if free := int64(min(s.Bavail, 1<<50)) * s.Bsize; known && free < size {
		return fmt.Errorf("%d bytes for %s, %d are free: %w", size, d.Name(), free, unix.ENOSPC)
	}
	return nil
}

// place is where a byte lies on the disk, 0 if the file system does not say. A variable for tests.
var place = func(d *Disk, at int64) uint64 {
	request := struct {
		start, length                    uint64
		flags, mapped, extents, reserved uint32
		extent                           struct {
			logical, physical, length uint64
			_                         [2]uint64
			flags                     uint32
			_                         [3]uint32
		}
	}{start: uint64(at), length: Block, flags: 1, extents: 1} // FIEMAP_FLAG_SYNC
	_, _, failed := unix.Syscall(unix.SYS_IOCTL, d.Fd(), fiemapRequest, uintptr(unsafe.Pointer(&request)))
	if failed != 0 || request.mapped == 0 || request.extent.physical == 0 {
		return 0
	}
	return request.extent.physical + uint64(at) - request.extent.logical
}

// measureInPlace writes a block of zeros again, and notes whether it lies elsewhere then.
func (d *Disk) measureInPlace(at int64) error {
	before := place(d, at)
	if _, err := d.File.WriteAt(make([]byte, Block), at); err != nil {
		return err
	}
	if err := unix.Fsync(int(d.Fd())); err != nil {
		return err
	}
	name, after := d.fileSystem(), place(d, at)
	switch {
	case before != 0 && after != 0 && before != after:
		d.copies = "the file system does not write in place: a block moved when it was written again"
	case (before == 0 || after == 0) && name != "":
		d.copies = "the file system is " + name + ", which copies on write"
	}
	return nil
}

// CopiesOnWrite says why a save may need new space on this file system, as measured when the file was made; "" if it does not.
func (d *Disk) CopiesOnWrite() string { return d.copies }
