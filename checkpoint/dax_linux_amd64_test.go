package checkpoint

import (
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"evenkeel/checkpoint/internal/storage"
)

// There is no persistent memory on most machines: a file that is mapped without MAP_SYNC takes the same stores.
func TestMapped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.ckpt")
	disk, publish, err := storage.CreateDisk(path)
	if err != nil {
		t.Fatal(err)
	}
	mapped, err := storage.OpenMapped(disk, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	f, err := CreateOn(mapped, model(0), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := publish(); err != nil {
		t.Fatal(err)
	}
	for step := uint64(1); step < 6; step++ {
		save(t, f, step)
	}
	restored(t, f, 5)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f, err = Open(path, model(0), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	restored(t, f, 5)
}

func TestDAXRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.ckpt")
	f, err := Create(path, model(0), Options{DAX: true})
	if err == nil {
		f.Close()
		t.Skip("the folder is on persistent memory")
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINVAL) {
		t.Errorf("error is %v", err)
	}
	if left, _ := filepath.Glob(path + "*"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
