package storage

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A file system that copies on write is reported.
func TestCopiesOnWrite(t *testing.T) {
	folder := t.TempDir()
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil {
		t.Fatal(err)
	}
	kind := int64(uint32(s.Type))
	name, known := copying[kind]
	t.Cleanup(func() {
		if delete(copying, kind); known {
			copying[kind] = name
		}
	})
	for _, name := range []string{"", "some"} {
		copying[kind] = name
		d, _, err := CreateDisk(filepath.Join(folder, "run"+name))
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Allocate(10*Block, nil); err != nil {
			t.Error(err)
		}
		if got := d.CopiesOnWrite(); (got != "") != (name != "") || !strings.Contains(got, name) {
			t.Errorf("%q: said %q", name, got)
		}
		d.Close()
	}
}

// A full disk is asked first: nothing is reserved.
func TestFullDiskIsAskedFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.ckpt")
	d, _, err := CreateDisk(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Allocate(math.MaxInt64/2, nil); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "are free") {
		t.Error(err)
	}
	if info, err := os.Stat(path + ".creating"); err != nil || info.Size() != 0 {
		t.Errorf("%v, %v", info, err)
	}
}
