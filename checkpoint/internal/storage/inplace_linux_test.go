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

// A block that moves when it is written again is reported.
func TestCopiesOnWrite(t *testing.T) {
	real := place
	t.Cleanup(func() { place = real })
	for _, c := range []struct {
		places []uint64
		want   string
	}{{[]uint64{4096, 8192}, "a block moved"}, {[]uint64{4096, 4096}, ""}, {[]uint64{0, 4096}, ""}} {
		asked := 0
		place = func(*Disk, int64) uint64 { asked++; return c.places[asked-1] }
		d, _, err := CreateDisk(filepath.Join(t.TempDir(), "run.ckpt"))
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Allocate(10*Block, nil); err != nil {
			t.Error(err)
		}
		if got := d.CopiesOnWrite(); !strings.Contains(got, c.want) || c.want == "" && got != "" || asked != 2 {
			t.Errorf("%v: said %q after %d looks", c.places, got, asked)
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
