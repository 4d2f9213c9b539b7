package storage

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const noCopy = 0x00800000 // FS_NOCOW_FL

// copying are file systems that copy on write by design.
var copying = map[int64]string{unix.BTRFS_SUPER_MAGIC: "btrfs", 0x2FC12FC1: "ZFS", 0xCA451A4E: "bcachefs", 0x3434: "NILFS"}

// askInPlace has btrfs write a file in place that is empty still, as chattr +C does. It notes that a file system copies on write all the same.
func (d *Disk) askInPlace() {
	var s unix.Statfs_t
	if unix.Fstatfs(int(d.Fd()), &s) != nil {
		return
	}
	name := copying[int64(uint32(s.Type))]
	if name == "btrfs" {
		flags, err := unix.IoctlGetInt(int(d.Fd()), unix.FS_IOC_GETFLAGS)
		if err == nil && unix.IoctlSetPointerInt(int(d.Fd()), unix.FS_IOC_SETFLAGS, flags|noCopy) == nil {
			return
		}
	}
	if name != "" {
		d.copies = "the file system is " + name + ", which copies on write"
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

// CopiesOnWrite says why a save may need new space on this file system; "" if it does not.
func (d *Disk) CopiesOnWrite() string { return d.copies }
