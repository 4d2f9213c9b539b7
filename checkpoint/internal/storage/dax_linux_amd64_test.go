package storage

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestStorePast(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	m := &Mapped{Disk: &Disk{File: file}, flags: unix.MAP_SHARED}
	defer m.Close()
	const size = 1 << 16
	if err := m.Allocate(size, nil); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	twin := make([]byte, size)
	for range 2000 {
		at := 8 * r.IntN(size/8)
		n := r.IntN(min(size-at, 300) + 1)
		p := make([]byte, n)
		for i := range p {
			p[i] = byte(r.Uint32())
		}
		if _, err := m.WriteAt(p, int64(at)); err != nil {
			t.Fatal(err)
		}
		copy(twin[at:at+(n+7)&^7], make([]byte, 8+n)) // up to the next word it may write zeros
		copy(twin[at:], p)
	}
	got := make([]byte, size)
	if _, err := m.ReadAt(got, 0); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, twin) {
		t.Error("stores differ from copies")
	}
	if _, err := m.WriteAt(make([]byte, 9), size-8); err == nil {
		t.Error("stored past the end")
	}
}

// A fence and a flush are one fence of the processor each, and no call of the system.
func TestMappedFences(t *testing.T) {
	before := fence
	defer func() { fence = before }()
	fences := 0
	fence = func() { fences++; before() }
	record(t, func(what string) { t.Errorf("a flush of persistent memory calls %s", what) })
	m := &Mapped{}
	if err := m.Fence(); err != nil || fences != 1 {
		t.Errorf("a fence is %d, %v", fences, err)
	}
	if err := m.Flush(); err != nil || fences != 2 {
		t.Errorf("a flush is %d, %v", fences-1, err)
	}
}

func BenchmarkStorePast(b *testing.B) {
	file, err := os.Create(filepath.Join(b.TempDir(), "x"))
	if err != nil {
		b.Fatal(err)
	}
	m := &Mapped{Disk: &Disk{File: file}, flags: unix.MAP_SHARED}
	defer m.Close()
	const size = 64 << 20
	if err := m.Allocate(size, nil); err != nil {
		b.Fatal(err)
	}
	p := make([]byte, size)
	b.SetBytes(size)
	for b.Loop() {
		if _, err := m.WriteAt(p, 0); err != nil {
			b.Fatal(err)
		}
	}
}
