package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// sector is what a disk writes as a whole.
const sector = 512

// disk is a file system with one file, that keeps what was synced and loses any of the rest when its power fails. The
// kernel caches nothing of it.
type disk struct {
	fs.Inode

	mu       sync.Mutex
	now      []byte             // as programs see it
	durable  []byte             // as it is on the disk
	late     map[int64][][]byte // versions of sectors since the last sync
	ops      int                // writes and syncs so far
	failAt   int                // the operation at which the power fails; 0: never
	off      bool
	observed []string // kinds of operations
}

// insert gives the disk its contents.
func (d *disk) insert(image []byte, failAt int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now, d.durable = append([]byte(nil), image...), append([]byte(nil), image...)
	d.late, d.ops, d.failAt, d.off, d.observed = map[int64][][]byte{}, 0, failAt, false, nil
}

// powerOn brings the disk back after a loss of power: each sector that was not synced is as it was at some moment.
func (d *disk) powerOn(r *rand.Rand) {
	d.mu.Lock()
	defer d.mu.Unlock()
	bias := r.IntN(3) // some, hardly any, nearly all
	for at, versions := range d.late {
		if v := r.IntN(len(versions) + 1); v > 0 && (bias == 0 || bias == 1 && r.IntN(20) == 0 || bias == 2 && r.IntN(20) > 0) {
			copy(d.durable[at:], versions[v-1])
		}
	}
	d.now, d.late = append([]byte(nil), d.durable...), map[int64][][]byte{}
	d.off, d.failAt = false, 0
}

// begin counts an operation, and says whether there still is power.
func (d *disk) begin(kind string) bool {
	if d.off {
		return false
	}
	if d.ops++; d.ops == d.failAt {
		d.off = true
		return false
	}
	d.observed = append(d.observed, kind)
	return true
}

func (d *disk) OnAdd(ctx context.Context) {
	d.AddChild(name, d.NewPersistentInode(ctx, &file{disk: d}, fs.StableAttr{Mode: syscall.S_IFREG}), false)
}

const name = "run.ckpt"

type file struct {
	fs.Inode
	disk *disk
}

func (f *file) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

func (f *file) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	out.Mode, out.Size = 0o600, uint64(len(f.disk.now))
	return 0
}

func (f *file) Read(_ context.Context, _ fs.FileHandle, b []byte, at int64) (fuse.ReadResult, syscall.Errno) {
	d := f.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return nil, syscall.EIO
	}
	if at > int64(len(d.now)) {
		return fuse.ReadResultData(nil), 0
	}
	return fuse.ReadResultData(b[:copy(b, d.now[at:])]), 0
}

func (f *file) Write(_ context.Context, _ fs.FileHandle, b []byte, at int64) (uint32, syscall.Errno) {
	d := f.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.begin("write") {
		return 0, syscall.EIO
	}
	if at+int64(len(b)) > int64(len(d.now)) {
		return 0, syscall.ENOSPC
	}
	copy(d.now[at:], b)
	for s := at / sector * sector; s < at+int64(len(b)); s += sector {
		d.late[s] = append(d.late[s], append([]byte(nil), d.now[s:s+sector]...))
	}
	return uint32(len(b)), 0
}

func (f *file) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	d := f.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.begin("sync") {
		return syscall.EIO
	}
	for s := range d.late {
		copy(d.durable[s:], d.now[s:s+sector])
	}
	clear(d.late)
	return 0
}
