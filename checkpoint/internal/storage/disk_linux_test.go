package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"evenkeel/internal/badinput"
)

// record notes the calls that make bytes durable, with what had happened by then.
func record(t *testing.T, note func(what string)) {
	t.Helper()
	syncFile, syncData := fsync, fdatasync
	t.Cleanup(func() { fsync, fdatasync = syncFile, syncData })
	fsync = func(f *os.File) error {
		note("fsync " + filepath.Base(f.Name()))
		return syncFile(f)
	}
	fdatasync = func(fd int) error {
		name, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		note("fdatasync " + filepath.Base(name))
		return syncData(fd)
	}
}

// A new file's zeros are durable before it has its name, and its name is durable before it is used; a flush reaches the
// file itself. Without any of these calls all tests but a loss of power pass.
func TestWhatIsSyncedWhen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "folder")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "run.ckpt")
	const size = zeroChunk + 5*Block
	var got []string
	record(t, func(what string) {
		state := "unpublished"
		name := path + ".creating"
		if _, err := os.Lstat(path); err == nil {
			state, name = "published", path
		}
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s, %s, %d bytes", what, state, info.Size()))
	})
	d, publish, err := CreateDisk(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Allocate(size, nil); err != nil {
		t.Fatal(err)
	}
	if err := publish(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.WriteAt([]byte("bytes"), 7); err != nil {
		t.Fatal(err)
	}
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		fmt.Sprintf("fsync run.ckpt.creating, unpublished, %d bytes", size),
		fmt.Sprintf("fsync folder, published, %d bytes", size),
		fmt.Sprintf("fdatasync run.ckpt, published, %d bytes", size),
	}
	if !slices.Equal(got, want) {
		t.Errorf("synced\n%q, want\n%q", got, want)
	}
}

// A flush that was interrupted is tried again; one that failed is an error and is not: the kernel may call pages clean
// that it lost.
func TestFlushErrors(t *testing.T) {
	d, _, err := CreateDisk(filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	before := fdatasync
	defer func() { fdatasync = before }()
	calls := 0
	fdatasync = func(int) error {
		if calls++; calls < 3 {
			return unix.EINTR
		}
		return nil
	}
	if err := d.Flush(); err != nil || calls != 3 {
		t.Errorf("interrupted twice: %v after %d calls", err, calls)
	}
	calls = 0
	fdatasync = func(int) error { calls++; return unix.EIO }
	if err := d.Flush(); !errors.Is(err, unix.EIO) || calls != 1 {
		t.Errorf("failed: %v after %d calls", err, calls)
	}
}

func TestAllocate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	d, publish, err := CreateDisk(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const size = 2*zeroChunk + 9
	var progress []int64
	if err := d.Allocate(size, func(done, total int64) {
		if total != size {
			t.Errorf("total is %d", total)
		}
		progress = append(progress, done)
	}); err != nil {
		t.Fatal(err)
	}
	if want := []int64{zeroChunk, 2 * zeroChunk, size}; !slices.Equal(progress, want) {
		t.Errorf("progress %d, want %d", progress, want)
	}
	var disk unix.Stat_t
	if err := unix.Fstat(int(d.Fd()), &disk); err != nil || disk.Blocks*512 < size {
		t.Errorf("%d bytes are reserved, %v", disk.Blocks*512, err)
	}
	if n, err := d.Size(); n != size || err != nil {
		t.Errorf("size %d, %v", n, err)
	}
	if err := os.WriteFile(path, []byte("another's checkpoint"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := publish(); !errors.Is(err, fs.ErrExist) {
		t.Errorf("published over a file: %v", err)
	}
	if text, _ := os.ReadFile(path); string(text) != "another's checkpoint" {
		t.Errorf("the file now holds %q", text)
	}
}

// One writer at a time; readers do not ask. What an interrupted creation left is overwritten, not what another makes.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path+".creating", []byte("left by a creation that was interrupted"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, publish, err := CreateDisk(path)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := d.Size(); n != 0 {
		t.Errorf("%d bytes are left of the interrupted creation", n)
	}
	if _, _, err := CreateDisk(path); !errors.Is(err, ErrLocked) {
		t.Errorf("two at once create the file: %v", err)
	}
	if err := publish(); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDisk(path, true); !errors.Is(err, ErrLocked) || !badinput.Is(err) {
		t.Errorf("a second writer: %v", err)
	}
	r, err := OpenDisk(path, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.WriteAt([]byte{1}, 0); err == nil {
		t.Error("a reader wrote")
	}
	if err := errors.Join(r.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	w, err := OpenDisk(path, true)
	if err != nil {
		t.Fatalf("after the writer left: %v", err)
	}
	if _, err := w.WriteAt([]byte{1}, 0); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// Past the page cache or through it, from any address and at any place, the bytes are the same.
func TestWritesLandWhereTheyShould(t *testing.T) {
	for _, past := range []bool{false, true} {
		d, _, err := CreateDisk(filepath.Join(t.TempDir(), "x"))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		const size = 12 << 20
		if err := d.Allocate(size, nil); err != nil {
			t.Fatal(err)
		}
		if past && d.PastCache() != nil {
			t.Skip("this file system has no direct input and output")
		}
		r := rand.New(rand.NewPCG(1, 2))
		twin := make([]byte, size)
		source := aligned(size + Block)
		for i := range source {
			source[i] = byte(r.Uint32())
		}
		next := 0
		for i := range 400 {
			at := r.IntN(size)
			switch i % 4 {
			case 0:
				at = at / Block * Block
			case 1, 2:
				at = next % size // goes on where the last ended
			}
			n := min([]int{1, Block, directMin - 1, directMin, directMin + 1, 3 * Block, ringPiece + 3*Block + 5, 5 * ringPiece}[r.IntN(8)], size-at)
			next = at + n
			from := r.IntN(2) * r.IntN(Block)
			p := source[from:][:n]
			if got, err := d.WriteAt(p, int64(at)); got != n || err != nil {
				t.Fatalf("past the cache %v: wrote %d of %d bytes at %d: %v", past, got, n, at, err)
			}
			copy(twin[at:], p)
			if i%7 == 0 { // what is on its way is read as if it were there
				got := make([]byte, min(3*ringPiece+5, size-at))
				if _, err := d.ReadAt(got, int64(at)); err != nil || !bytes.Equal(got, twin[at:at+len(got)]) {
					t.Fatalf("past the cache %v: read other bytes at %d, %v", past, at, err)
				}
			}
		}
		if err := d.Flush(); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, size)
		if _, err := d.ReadAt(got, 0); err != nil || !bytes.Equal(got, twin) {
			t.Errorf("past the cache %v: other bytes, %v", past, err)
		}
	}
}
