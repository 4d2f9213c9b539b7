package checkpoint

import (
	"encoding/hex"
	"testing"

	"evenkeel/checkpoint/internal/storage"
)

// measuredMemory is a storage that has measured, and notes which way it is told to go.
type measuredMemory struct {
	*Memory
	faster, told storage.Ways
}

func (m *measuredMemory) Measure(at, n int64) (storage.Ways, error) {
	if _, err := m.WriteAt(make([]byte, n), at); err != nil { // all of it is the measurement's
		return storage.Ways{}, err
	}
	return m.faster, nil
}

func (m *measuredMemory) PastCache(write, read bool) error {
	m.told = storage.Ways{Write: write, Read: read}
	return nil
}

// What was faster when the file was made is remembered in it, for every later process, of either language.
func TestWays(t *testing.T) {
	for _, want := range []storage.Ways{{}, {Write: true}, {Read: true}, {Write: true, Read: true}, {WriteRatio: 300, ReadRatio: 41}} {
		m := &measuredMemory{Memory: NewMemory(nil), faster: want}
		arrays := []Array{Of("w", Parameter, []float32{1, 2, 3})}
		f, err := CreateOn(m, arrays, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if m.told.Write != want.Write || m.told.Read != want.Read {
			t.Errorf("%+v is faster, the new file goes %+v", want, m.told)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		file := m.Contents()
		for _, broken := range [][]int{nil, {hintAt + 9}, {block + hintAt + 20}, {hintAt, block + hintAt}, {hintAt + 8, block + hintAt + 8}} {
			b := append([]byte(nil), file...)
			for _, at := range broken {
				b[at] ^= 1
			}
			expect := want
			if len(broken) == 2 {
				expect = storage.Ways{}
			}
			for _, o := range []Options{{}, {ReadOnly: true}} {
				m := &measuredMemory{Memory: NewMemory(b)}
				f, err := OpenOn(m, arrays, o)
				if err != nil {
					t.Fatal(err)
				}
				e := storage.Ways{Write: expect.Write && !o.ReadOnly, Read: expect.Read}
				if m.told != e {
					t.Errorf("%+v was faster, hint broken at %v, %+v: goes %+v, want %+v", want, broken, o, m.told, e)
				}
				if (f.Info().Measured != "") != (expect.WriteRatio > 0) {
					t.Errorf("hint broken at %v: %q", broken, f.Info().Measured)
				}
				if len(f.Info().Damage) > 0 {
					t.Errorf("a hint is no damage: %q", f.Info().Damage)
				}
				f.Close()
			}
		}
	}
	// As Python writes it (transfer.pack_hint).
	for text, want := range map[string]storage.Ways{
		"45564b4c574159530100000000000000f7122e9610f976e0": {Write: true},
		"45564b4c57415953030000000000000040a1bb266ad70995": {Write: true, Read: true},
		"45564b4c57415953010000003e00ffff8be0a49dff8c3d07": {Write: true, WriteRatio: 62, ReadRatio: 65535},
	} {
		b, err := hex.DecodeString(text)
		if err != nil || parseHint(b) != want {
			t.Errorf("%s: %+v, want %+v, %v", text, parseHint(b), want, err)
		}
		h := plan([]Array{Of("w", Parameter, []float32{1})}, Options{}, [16]byte{1})
		h.ways = want
		if got := hex.EncodeToString(h.front(h.table())[hintAt : hintAt+hintLen]); got != text {
			t.Errorf("written %s, want %s", got, text)
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
