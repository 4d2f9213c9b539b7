package checkpoint

import "testing"

// bypassed is a storage that notes whether it is to go past the page cache.
type bypassed struct {
	*Memory
	past bool
}

func (b *bypassed) PastCache() error {
	b.past = true
	return nil
}

// A file with room from 256 MiB on is written past the page cache, whoever made it.
func TestPastFrom(t *testing.T) {
	for mib, want := range map[int]bool{124: false, 126: true} { // and 2 of its slot's manifest
		arrays := []Array{{Name: "w", DType: F32, Kind: Parameter, Shape: []int{mib << 18}}}
		m := &bypassed{Memory: NewMemory(nil)}
		f, err := CreateOn(m, arrays, Options{Slots: 2})
		if err != nil {
			t.Fatal(err)
		}
		if m.past != want {
			t.Errorf("2 slots of %d MiB, new: past the cache is %v", mib, m.past)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		for _, readOnly := range []bool{false, true} {
			m := &bypassed{Memory: m.Memory}
			f, err := OpenOn(m, arrays, Options{ReadOnly: readOnly})
			if err != nil {
				t.Fatal(err)
			}
			if m.past != (want && !readOnly) {
				t.Errorf("2 slots of %d MiB, read only %v: past the cache is %v", mib, readOnly, m.past)
			}
			f.Close()
		}
	}
}

// An array's last block is filled up with zeros, and nothing beyond it is written.
func TestLastBlock(t *testing.T) {
	m := NewMemory(make([]byte, 4*block))
	for i := range m.data {
		m.data[i] = 9
	}
	data := make([]byte, block+5)
	for i := range data {
		data[i] = 1
	}
	if err := writeBlocks(m, data, block); err != nil {
		t.Fatal(err)
	}
	for i, b := range m.Contents() {
		want := byte(9)
		switch {
		case i >= block && i < 2*block+5:
			want = 1
		case i >= 2*block+5 && i < 3*block:
			want = 0
		}
		if b != want {
			t.Fatalf("byte %d is %d, want %d", i, b, want)
		}
	}
}
