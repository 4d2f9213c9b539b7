package journal

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"
)

// A journal has room for further jobs while so much is free, and for reports of existing jobs while a quarter of it is free. The rest is for snapshots and
// removals, which free room.
const (
	freeShare = 20        // one part in so many of the limit of bytes, or of the disk
	freeDisk  = 256 << 20 // of a disk this is enough
)

// look is how long the server within the process may take until it is asked whether a write has failed: then it does not answer.
const look = 100 * time.Millisecond

// DiskError says that the disk of the server within the process takes no writes.
type DiskError struct {
	Full bool
	Why  string
}

// Error is error's.
func (e *DiskError) Error() string {
	if e.Full {
		return "the journal's disk is full: " + e.Why
	}
	return "the journal's disk takes no writes: " + e.Why
}

// diskError is the error whose text a failed write left. It does not name the file: clients see it.
func diskError(text string) *DiskError {
	parts := strings.Split(text, ": ")
	why := parts[len(parts)-1]
	return &DiskError{slices.Contains([]string{unix.ENOSPC.Error(), unix.EDQUOT.Error(), unix.EFBIG.Error()}, why), why}
}

// Writable is a *DiskError while the disk of the server within the process takes no reports.
func (j *Journal) Writable() error {
	if err := j.mend(); err != nil {
		return err
	}
	return j.spare(4)
}

// spare is an error if less is free than one part in so many of what further jobs need.
func (j *Journal) spare(part uint64) error {
	if j.server == nil {
		return nil
	}
	var disk unix.Statfs_t
	if err := j.statfs(j.dir, &disk); err != nil {
		return diskError(err.Error())
	}
	size, free := disk.Blocks*uint64(disk.Bsize), disk.Bavail*uint64(disk.Bsize) //nolint:gosec // not negative
	if tight(size, part*free) {
		return &DiskError{true, fmt.Sprintf("%s of %s are free", humanize.IBytes(free), humanize.IBytes(size))}
	}
	return nil
}

// tight says whether a disk has too little free space for further jobs.
func tight(size, free uint64) bool { return free < min(size/freeShare, freeDisk) }

// mend starts JetStream anew after a write that failed, as soon as the disk takes a write.
func (j *Journal) mend() error {
	if !j.broken.Load() {
		return nil
	}
	j.mending.Lock()
	defer j.mending.Unlock()
	if !j.broken.Load() {
		return nil
	}
	if err := tryWrite(j.dir); err != nil {
		return err
	}
	err := j.server.ShutdownJetStream()
	if err == nil {
		err = j.server.EnableJetStream(&server.JetStreamConfig{StoreDir: j.dir, SyncAlways: true, MaxStore: mostStore, MaxMemory: mostStore, Strict: true})
	}
	if err != nil {
		return diskError(err.Error())
	}
	j.broken.Store(false)
	return nil
}

// tryWrite says whether the disk of a folder takes a write of a million bytes.
func tryWrite(dir string) error {
	name := filepath.Join(dir, "probe")
	f, err := os.Create(name)
	if err != nil {
		return diskError(err.Error())
	}
	defer func() { _ = os.Remove(name) }()
	defer f.Close()
	if _, err = f.Write(make([]byte, 1<<20)); err == nil {
		err = f.Sync()
	}
	if err != nil {
		return diskError(err.Error())
	}
	return nil
}

// watch ends a question to the server within the process once one of its writes has failed, until done is closed.
func (j *Journal) watch(done <-chan struct{}, end context.CancelCauseFunc) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			if h := j.server.Healthz(nil); h.Error != "" {
				j.broken.Store(true)
				end(diskError(h.Error))
			}
		}
	}
}
